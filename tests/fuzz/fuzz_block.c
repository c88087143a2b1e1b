/* fuzz_block.c -- libFuzzer target: block formats. Any bytes dequantize without access outside the arrays, to
 * the same numbers packed and unpacked; these numbers quantize to the same codes packed and unpacked. */
#include "fuzz.h"

/* A copy of exactly this size, so that ASan detects an access one byte past the end. */
static uint8_t *copy_of(const uint8_t *p, size_t size)
{
    uint8_t *r = (uint8_t *)malloc(size ? size : 1u);
    must(r != NULL);
    if (size && p)
        memcpy(r, p, size);
    return r;
}

/* Packed and unpacked codes must give the same numbers; quantizing must not write past its arrays. */
static void one_block_format(mpt_block block, const uint8_t *data, size_t size, const mpt_block_opts *opts)
{
    const mpt_block_info *b = mpt_block_get(block);
    const int             bits = mpt_format_get(b->element)->bits;
    const size_t          count = size / 40u + 1u, n = size < count ? 0
        : (size - count) % (count * (size_t)b->size + 1u);
    const size_t          blocks = (n + (size_t)b->size - 1u) / (size_t)b->size,
        packed_size = mpt_packed_size(n, bits);
    mpt_block_opts        o = *opts;
    uint8_t              *scales, *codes, *packed, *again;
    float                *x, *y;
    if (blocks + n > size)
        return;
    scales = copy_of(data, blocks);
    codes = copy_of(data + blocks, n);
    packed = copy_of(NULL, packed_size);
    again = copy_of(NULL, packed_size);
    x = (float *)(void *)copy_of(NULL, n * sizeof *x);
    y = (float *)(void *)copy_of(NULL, n * sizeof *y);
    o.packed = 0;
    must(mpt_block_dequantize_n(block, x, codes, scales, n, &o) == MPT_OK);
    must(mpt_pack_n(packed, codes, n, bits) == MPT_OK);
    o.packed = 1;
    must(mpt_block_dequantize_n(block, y, packed, scales, n, &o) == MPT_OK);
    must(!n || !memcmp(x, y, n * sizeof *x));
    must(mpt_block_quantize_n(block, again, scales, x, n, &o) == MPT_OK);
    o.packed = 0;
    must(mpt_block_quantize_n(block, codes, scales, x, n, &o) == MPT_OK);
    must(mpt_pack_n(packed, codes, n, bits) == MPT_OK);
    must(!packed_size || !memcmp(packed, again, packed_size));
    must(mpt_block_dequantize_n(block, y, codes, scales, n, &o) == MPT_OK);
    must(mpt_unpack_n(codes, packed, n, bits) == MPT_OK);
    free(scales);
    free(codes);
    free(packed);
    free(again);
    free(x);
    free(y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mpt_block_opts o;
    uint32_t       tensor;
    int            i;
    if (size < 8)
        return 0;
    memset(&o, 0, sizeof o);
    memcpy(&tensor, data, sizeof tensor);
    tensor &= 0x7fffffffu;
    o.scaling = (mpt_block_scaling)(data[4] % 4u);
    o.element.rounding = (mpt_rounding)(data[5] % MPT_ROUNDING_COUNT);
    o.element.seed = data[6];
    for (i = 0; i < (int)MPT_BLOCK_COUNT; i++) {
        o.tensor_scale = i == (int)MPT_NVFP4 && tensor < 0x7f800000u ? mpti_f32_make(tensor) : 0.0f;
        one_block_format((mpt_block)i, data + 8, size - 8, &o);
    }
    return 0;
}
