/* cublasLt.h -- test-only stand-in for the part of cublasLt that mpt_cuda.h uses, beside cuda_runtime.h of
 * this folder: a plain triple loop with the refusals of the real library, so that code that passes here does
 * not fail there because of a layout, an alignment or a type. Sources: cuBLAS library documentation, "Using
 * the cuBLASLt API", the tables of cublasLtMatmul.
 *
 * It refuses: types that do not go together; FP8 without its layout (except on compute capability 10.x), with
 * lines of a matrix or pointers that are no multiple of 16 bytes, below 8.9; scales where nothing is FP8;
 * bf16 below 8.0; blocks below 10.0, not along k, of MXFP4, without scales or with another scale mode; a bias
 * of another type; a workspace too small for the plan; a descriptor, layout or handle that is not alive;
 * pointers, including that of the bias, less aligned than when the plan was made.
 * It does what the real one may do: loads a plan's kernel at its first product, which no strict capture
 * allows; splits k and adds the parts in the type of d where the preference allows it; takes no TF32 for
 * small products; has a tanh of 11 bits.
 * It counts descriptors, layouts and handles: mpt_emu::blas_outstanding() is 0 when all were destroyed.
 * It reads the scales of blocks from all of their tiles, including those beyond the matrix.
 * CUBLAS_VERSION may be set lower: below 12.8 nothing for blocks is declared.
 * It adds in double and rounds once to float where the real one adds in FP32: compare with a tolerance. */
#ifndef MPT_EMU_CUBLASLT_H
#define MPT_EMU_CUBLASLT_H

#include <cuda_runtime.h>

#include <cmath>

#ifndef CUBLAS_VERSION
#define CUBLAS_VERSION 130100
#endif
#if CUBLAS_VERSION >= 120800
#define EMU_OF_12_8(x) x
#else
#define EMU_OF_12_8(x) EMU_##x
#endif

typedef enum {
    CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14, CUDA_R_8F_E4M3 = 28, CUDA_R_8F_E5M2 = 29,
    EMU_OF_12_8(CUDA_R_4F_E2M1) = 33
} cudaDataType;
typedef cudaDataType cudaDataType_t;
typedef enum {
    CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 } cublasComputeType_t;
typedef enum {
    CUBLASLT_MATMUL_DESC_TRANSA = 3, CUBLASLT_MATMUL_DESC_TRANSB = 4, CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17,
    CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER = 20,
    CUBLASLT_MATMUL_DESC_AMAX_D_POINTER = 21, CUBLASLT_MATMUL_DESC_FAST_ACCUM = 25,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26, EMU_OF_12_8(CUBLASLT_MATMUL_DESC_A_SCALE_MODE) = 31,
    EMU_OF_12_8(CUBLASLT_MATMUL_DESC_B_SCALE_MODE) = 32
} cublasLtMatmulDescAttributes_t;
typedef enum {
    EMU_OF_12_8(CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) = 0,
    EMU_OF_12_8(CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3) = 1,
    EMU_OF_12_8(CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0) = 2
} cublasLtMatmulMatrixScale_t;
typedef enum {
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
} cublasLtMatrixLayoutAttribute_t;
typedef enum {
    CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_RELU = 2, CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_RELU_BIAS = 6, CUBLASLT_EPILOGUE_GELU = 32, CUBLASLT_EPILOGUE_GELU_BIAS = 36,
    CUBLASLT_EPILOGUE_RELU_AUX = 130, CUBLASLT_EPILOGUE_RELU_AUX_BIAS = 134, CUBLASLT_EPILOGUE_DRELU = 136,
    CUBLASLT_EPILOGUE_DRELU_BGRAD = 152, CUBLASLT_EPILOGUE_GELU_AUX = 160,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164, CUBLASLT_EPILOGUE_DGELU = 192, CUBLASLT_EPILOGUE_DGELU_BGRAD = 208,
    CUBLASLT_EPILOGUE_BGRADA = 256, CUBLASLT_EPILOGUE_BGRADB = 512
} cublasLtEpilogue_t;
typedef enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
} cublasLtMatmulPreferenceAttributes_t;
typedef enum {
    CUBLASLT_REDUCTION_SCHEME_NONE = 0, CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,
    CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4,
    CUBLASLT_REDUCTION_SCHEME_MASK = 7
} cublasLtReductionScheme_t;

/* A descriptor holds what the caller has set, nothing more. */
struct cublasLtContext { int unused; };
struct cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute;
    cublasOperation_t   op_a, op_b;
    uint32_t            epilogue;
    cudaDataType_t      bias_type;
    bool                bias_typed;
    const void         *bias, *a_scale, *b_scale, *d_scale;
    void               *d_amax, *aux;
    int64_t             ld_aux;
    int8_t              fast;
    int32_t             a_mode, b_mode;
};
struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType_t type;
    uint64_t       rows, cols;
    int64_t        ld;
    int32_t        batch;
    int64_t        stride;
};
struct cublasLtMatmulPreferenceOpaque_t { uint64_t workspace; uint32_t reductions, align[4]; };
typedef cublasLtContext                  *cublasLtHandle_t;
typedef cublasLtMatmulDescOpaque_t       *cublasLtMatmulDesc_t;
typedef cublasLtMatrixLayoutOpaque_t     *cublasLtMatrixLayout_t;
typedef cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;
/* A plan remembers what it was made for: the workspace that it needs and the alignments that it relies on,
 * including that of the bias. */
struct cublasLtMatmulAlgo_t { uint64_t workspace, shape[3], kernel; uint32_t split, align[5]; };
struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t               workspaceSize;
    cublasStatus_t       state;
    float                wavesCount;
    int                  reserved[4];
};

namespace mpt_emu {

struct Blas {
    std::set<const void *> alive;
    int fail_create = 0;        /* k > 0: the k-th cublasLtCreate from now fails, once */
    int fail_plan = 0;          /* likewise a plan: refused for a reason that nobody documented */
    unsigned long heuristics = 0;   /* calls of cublasLtMatmulAlgoGetHeuristic: plans made */
    std::set<uint64_t> loaded;      /* the plans whose kernel is on the device */
};
inline Blas &blas() { static Blas *b = new Blas; return *b; }
inline size_t blas_outstanding() { return blas().alive.size(); }

template <class T> cublasStatus_t blas_create(T **out)
{
    *out = new T();
    blas().alive.insert(*out);
    return CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t blas_destroy(T *p)
{
    if (!blas().alive.erase(p)) return CUBLAS_STATUS_INVALID_VALUE;
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}
inline bool blas_alive(const void *p) { return blas().alive.count(p) != 0; }

inline bool is_fp8(cudaDataType_t t) { return t == CUDA_R_8F_E4M3 || t == CUDA_R_8F_E5M2; }
inline bool is_fp4(cudaDataType_t t) { return (int)t == 33; }
inline size_t bytes_of(cudaDataType_t t) { return t == CUDA_R_32F ? 4 : is_fp8(t) || is_fp4(t) ? 1 : 2; }

/* Modes of scales, and how many elements a block has in such a mode. */
enum { SCALE_NONE = 0, SCALE_VEC16 = 1, SCALE_VEC32 = 2 };
inline uint64_t block_of(int32_t mode) { return mode == SCALE_VEC16 ? 16 : 32; }

/* A number of 1 + e + m bits, the highest exponent for Inf and NaN. fn: no Inf; e4m3 has one NaN only. */
inline double small_value(uint32_t code, int e, int m, bool fn)
{
    const uint32_t sign = code >> (e + m), field = code >> m & ((1u << e) - 1), man = code & ((1u << m) - 1);
    const int bias = (1 << (e - 1)) - 1;
    double x = field ? ldexp(1.0 + ldexp((double)man, -m), (int)field - bias)
                     : ldexp((double)man, 1 - bias - m);
    if (field == (1u << e) - 1 && !fn) x = man ? NAN : INFINITY;
    if (fn && e == 4 && (code & 0x7f) == 0x7f) x = NAN;     /* e2m1 has none */
    return sign ? -x : x;
}

inline double get(const void *p, cudaDataType_t type, size_t i)
{
    if (type == CUDA_R_32F) { float x; memcpy(&x, (const float *)p + i, 4); return x; }
    if (is_fp4(type))
        return small_value(((const uint8_t *)p)[i / 2] >> i % 2 * 4 & 15, 2, 1, true);
    if (is_fp8(type))
        return type == CUDA_R_8F_E4M3 ? small_value(((const uint8_t *)p)[i], 4, 3, true)
                                      : small_value(((const uint8_t *)p)[i], 5, 2, false);
    uint16_t c;
    memcpy(&c, (const uint16_t *)p + i, 2);
    return type == CUDA_R_16F ? small_value(c, 5, 10, false) : small_value(c, 8, 7, false);
}

/* The nearest of all codes: slow and plain; ties go to the even code, FP8 saturates as cublasLt does. */
inline uint32_t nearest(double x, cudaDataType_t type)
{
    const bool     fn = type == CUDA_R_8F_E4M3, half = type == CUDA_R_16F, e5m2 = type == CUDA_R_8F_E5M2;
    const int      e = half || e5m2 ? 5 : fn ? 4 : 8, m = half ? 10 : e5m2 ? 2 : fn ? 3 : 7;
    const uint32_t sign = std::signbit(x) ? 1u << (e + m) : 0u;
    const uint32_t inf = fn ? 0x7f : ((1u << e) - 1) << m;
    if (std::isnan(x)) return fn ? 0x7f : inf | 1u << (m - 1);
    const double a = fabs(x);
    uint32_t low = 0, high = inf;   /* value(low) <= a; value(high) > a, counting inf as the next binade */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        (small_value(middle, e, m, fn) <= a ? low : high) = middle;
    }
    const double below = small_value(low, e, m, fn);
    const double above = high == inf ? 2 * below - small_value(low - 1, e, m, fn)
                                     : small_value(high, e, m, fn);
    if (a - below > above - a || (a - below == above - a && low % 2)) low = high;
    if (low >= inf && (is_fp8(type))) low = inf - 1;
    return sign | low;
}

inline void put(void *p, cudaDataType_t type, size_t i, float x)
{
    if (type == CUDA_R_32F) { memcpy((float *)p + i, &x, 4); return; }
    const uint32_t code = nearest(x, type);
    if (is_fp8(type)) ((uint8_t *)p)[i] = (uint8_t)code;
    else { const uint16_t c = (uint16_t)code; memcpy((uint16_t *)p + i, &c, 2); }
}

/* The scale of block k of a line: tiles of 128 lines by 4 blocks; in a tile lines 32 apart are neighbours. */
inline double block_scale(const void *scales, int32_t mode, uint64_t line, uint64_t k, uint64_t blocks)
{
    const uint64_t tile = line / 128 * ((blocks + 3) / 4) + k / 4;
    const uint64_t at = tile * 512 + line % 32 * 16 + line % 128 / 32 * 4 + k % 4;
    const uint8_t  code = ((const uint8_t *)scales)[at];
    if (mode == SCALE_VEC16) return small_value(code, 4, 3, true);
    return code == 255 ? NAN : ldexp(1.0, code - 127);
}
/* Tiles must be complete: scales beyond the matrix must be numbers, since zeros times them are added. */
inline double tiles_beyond(const void *scales, int32_t mode, uint64_t lines, uint64_t blocks)
{
    double sum = 0.0;
    for (uint64_t l = 0; l < (lines + 127) / 128 * 128; l++)
        for (uint64_t k = 0; k < (blocks + 3) / 4 * 4; k++)
            if (l >= lines || k >= blocks) sum += 0.0 * block_scale(scales, mode, l, k, blocks);
    return sum;
}

/* TF32 keeps 10 bits of the fraction; Tensor Cores cut off the rest. */
inline double tf32(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, 4);
    u &= 0xffffe000u;
    memcpy(&f, &u, 4);
    return f;
}

struct Product {
    cublasLtMatmulDescOpaque_t   o;
    cublasLtMatrixLayoutOpaque_t a, b, c, d;
    float       alpha, beta;
    const void *pa, *pb, *pc;
    void       *pd;
    bool        split;      /* k in two halves, added in the type of d */
    uint64_t m() const { return d.rows; }
    uint64_t n() const { return d.cols; }
    uint64_t k() const { return o.op_a == CUBLAS_OP_N ? a.cols : a.rows; }
};

inline double at(const Product &p, const void *x, const cublasLtMatrixLayoutOpaque_t &l, bool transposed,
                 uint64_t row, uint64_t col)
{
    const double v = get(x, l.type, transposed ? col + row * (uint64_t)l.ld : row + col * (uint64_t)l.ld);
    const bool   cores = p.m() >= 64 && p.n() >= 64 && p.k() >= 64;     /* TF32 is allowed, not promised */
    return p.o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && cores ? tf32(v) : v;
}

inline double through(double x, cudaDataType_t type)
{
    unsigned char code[4];
    put(code, type, 0, (float)x);
    return get(code, type, 0);
}

/* tanh.approx.f32 has a relative error of up to 2^-11, FP8's fast accumulation about 14 bits. */
inline double rough(double x, int bits)
{
    int e = 0;
    const double f = frexp(x, &e);
    return ldexp(floor(ldexp(f, bits)), e - bits);
}
inline double rough_tanh(double x) { return rough(tanh(x), 11); }

/* GELU in its tanh form, and its derivative. */
inline double gelu_tanh(double x) { return rough_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)); }
inline double gelu(double x) { return 0.5 * x * (1.0 + gelu_tanh(x)); }
inline double gelu_slope(double x)
{
    const double t = gelu_tanh(x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x);
}

/* Bits in epilogues that are not epilogues by themselves. */
enum { EPILOGUE_DRELU = 8, EPILOGUE_BGRAD = 16, EPILOGUE_DGELU = 64, EPILOGUE_AUX = 128,
       EPILOGUE_SUMS = EPILOGUE_BGRAD | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB };

inline float scalar(const void *p) { return p ? *(const float *)p : 1.0f; }

inline void run_product(const Product &p)
{
    const uint32_t      e = p.o.epilogue;
    const bool          blocks = p.o.a_mode != SCALE_NONE;
    const float         scale = p.alpha * (blocks ? 1.0f : scalar(p.o.a_scale) * scalar(p.o.b_scale));
    float               amax = 0.0f;
    const uint64_t      m = p.m(), n = p.n(), k = p.k();
    std::vector<double> a(m * k), b(k * n), sums(m < n ? n : m);    /* both along k */
    const bool          derivative = (e & (EPILOGUE_DRELU | EPILOGUE_DGELU)) != 0;
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t l = 0; l < k; l++) a[i * k + l] = at(p, p.pa, p.a, p.o.op_a == CUBLAS_OP_T, i, l);
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t l = 0; l < k; l++) b[j * k + l] = at(p, p.pb, p.b, p.o.op_b == CUBLAS_OP_T, l, j);
    double beyond = 0.0;
    if (blocks) {
        const uint64_t size = block_of(p.o.a_mode), in_line = (k + size - 1) / size;
        for (uint64_t i = 0; i < m * k; i++)
            a[i] *= block_scale(p.o.a_scale, p.o.a_mode, i / k, i % k / size, in_line);
        for (uint64_t i = 0; i < n * k; i++)
            b[i] *= block_scale(p.o.b_scale, p.o.b_mode, i / k, i % k / size, in_line);
        beyond = tiles_beyond(p.o.a_scale, p.o.a_mode, m, in_line) +
                 tiles_beyond(p.o.b_scale, p.o.b_mode, n, in_line);
    }
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i < m; i++) {
            double sum = beyond;
            for (uint64_t l = 0; l < k; l++) {
                if (p.split && l == k / 2) sum = through(sum, p.d.type);
                sum += a[i * k + l] * b[j * k + l];
                if (p.o.fast && is_fp8(p.a.type)) sum = rough(sum, 14);
            }
            double x = (double)scale * sum;
            if (p.beta != 0.0f) x += (double)p.beta * get(p.pc, p.c.type, i + j * (uint64_t)p.c.ld);
            if (e & CUBLASLT_EPILOGUE_BIAS) x += get(p.o.bias, p.o.bias_type, i);
            const uint64_t at_aux = i + j * (uint64_t)p.o.ld_aux;
            uint8_t *const bits = (uint8_t *)p.o.aux + at_aux / 8, bit = (uint8_t)(1u << at_aux % 8);
            if (e & EPILOGUE_AUX && !derivative && e & CUBLASLT_EPILOGUE_RELU)
                *bits = (uint8_t)(x < 0.0 ? *bits & ~bit : *bits | bit);  /* seen on an H100 */
            if (e & EPILOGUE_AUX && !derivative && e & CUBLASLT_EPILOGUE_GELU)
                put(p.o.aux, p.d.type, at_aux, (float)x);
            if (e & EPILOGUE_DRELU) x = *bits & bit ? x : 0.0;
            if (e & EPILOGUE_DGELU) x *= gelu_slope(get(p.o.aux, p.d.type, at_aux));
            if (e & EPILOGUE_BGRAD) sums[i] += x;
            if (e & CUBLASLT_EPILOGUE_RELU) x = x > 0.0 || std::isnan(x) ? x : 0.0;
            if (e & CUBLASLT_EPILOGUE_GELU) x = gelu(x);
            amax = fmaxf(amax, (float)fabs(x));
            put(p.pd, p.d.type, i + j * (uint64_t)p.d.ld, (float)(x * (double)scalar(p.o.d_scale)));
        }
    if (p.o.d_amax) *(float *)p.o.d_amax = amax;
    for (uint64_t i = 0; e & CUBLASLT_EPILOGUE_BGRADA && i < m * k; i++) sums[i / k] += a[i];
    for (uint64_t i = 0; e & CUBLASLT_EPILOGUE_BGRADB && i < n * k; i++) sums[i / k] += b[i];
    for (uint64_t i = 0; e & EPILOGUE_SUMS && i < (e & CUBLASLT_EPILOGUE_BGRADB ? n : m); i++)
        put((void *)(uintptr_t)p.o.bias, p.o.bias_type, i, (float)sums[i]);
}

/* What the real library refuses. */
inline cublasStatus_t blas_check(const cublasLtMatmulDescOpaque_t &o, const cublasLtMatrixLayoutOpaque_t &a,
                                 const cublasLtMatrixLayoutOpaque_t &b, const cublasLtMatrixLayoutOpaque_t &c,
                                 const cublasLtMatrixLayoutOpaque_t &d)
{
    const int      cc = 10 * controls().major + controls().minor;
    const int64_t  unit = o.epilogue & (CUBLASLT_EPILOGUE_RELU | EPILOGUE_DRELU) ? 128 : 8;
    const bool     fp4 = is_fp4(a.type) || is_fp4(b.type), fp8 = fp4 || is_fp8(a.type) || is_fp8(b.type);
    const bool     blocks = fp4 || o.a_mode != SCALE_NONE || o.b_mode != SCALE_NONE;
    const bool     bias = (o.epilogue & (CUBLASLT_EPILOGUE_BIAS | EPILOGUE_SUMS)) != 0;
    const uint64_t m = o.op_a == CUBLAS_OP_N ? a.rows : a.cols, k = o.op_a == CUBLAS_OP_N ? a.cols : a.rows;
    const uint64_t n = o.op_b == CUBLAS_OP_N ? b.cols : b.rows, k2 = o.op_b == CUBLAS_OP_N ? b.rows : b.cols;
    if (!m || !n || !k || k != k2) return CUBLAS_STATUS_INVALID_VALUE;
    if (d.rows != m || d.cols != n || c.rows != m || c.cols != n) return CUBLAS_STATUS_INVALID_VALUE;
    for (const cublasLtMatrixLayoutOpaque_t *l : {&a, &b, &c, &d})
        if (l->ld < (int64_t)l->rows || l->batch != d.batch) return CUBLAS_STATUS_INVALID_VALUE;
    if (c.type != (is_fp8(d.type) ? CUDA_R_16BF : d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (a.type == CUDA_R_16BF && cc < 80) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (bias && (!o.bias || !o.bias_typed)) return CUBLAS_STATUS_INVALID_VALUE;
    bool known = false;
    for (uint32_t e : {1, 2, 4, 6, 32, 36, 130, 134, 136, 152, 160, 164, 192, 208, 256, 512})
        known = known || e == o.epilogue;
    if (!known) return CUBLAS_STATUS_INVALID_VALUE;
    if (o.epilogue & (EPILOGUE_AUX | EPILOGUE_SUMS) && (fp8 || d.batch > 1))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((o.epilogue & CUBLASLT_EPILOGUE_BGRADA && o.op_a != CUBLAS_OP_N) ||     /* seen on an H100 */
        (o.epilogue & CUBLASLT_EPILOGUE_BGRADB && o.op_b != CUBLAS_OP_T))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (o.epilogue & EPILOGUE_AUX &&
        (!o.aux || o.ld_aux < (int64_t)m || (uintptr_t)o.aux % 16 || o.ld_aux % unit))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (fp8) {
        const size_t d_bytes = bytes_of(d.type);
        const int    in_16 = fp4 ? 32 : 16;
        const bool   dims = a.rows % (unsigned)in_16 == 0 && b.rows % (unsigned)in_16 == 0 &&
                            m * d_bytes % 16 == 0 && a.ld % in_16 == 0 && b.ld % in_16 == 0 &&
                            d.ld * (int64_t)d_bytes % 16 == 0;
        const bool   types = fp4 ? is_fp4(a.type) && is_fp4(b.type) : is_fp8(a.type) && is_fp8(b.type);
        if (cc < 89 || !dims || !types) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (blocks) {       /* along k is the one order that is known here; the real one has more on 10.x */
            const int32_t mode = fp4 ? SCALE_VEC16 : SCALE_VEC32;
            if (o.a_mode != mode || o.b_mode != mode || !o.a_scale || !o.b_scale)
                return CUBLAS_STATUS_INVALID_VALUE;
            if (cc < 100 || o.op_a != CUBLAS_OP_T || o.op_b != CUBLAS_OP_N || is_fp8(d.type) ||
                k % 32 || d.batch > 1 || o.fast)
                return CUBLAS_STATUS_NOT_SUPPORTED;
        }
        if (((uintptr_t)o.a_scale | (uintptr_t)o.b_scale) % 16)     /* seen on an H100, with 13.1 */
            return CUBLAS_STATUS_NOT_SUPPORTED;
        if (a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (a.type == b.type && d.type == CUDA_R_8F_E5M2) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (!is_fp8(d.type) && (o.d_scale || o.d_amax)) return CUBLAS_STATUS_NOT_SUPPORTED;
        if ((o.op_a != CUBLAS_OP_T || o.op_b != CUBLAS_OP_N) && cc / 10 != 10)
            return CUBLAS_STATUS_NOT_SUPPORTED;
        if (bias && o.bias_type != (d.type == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF))
            return CUBLAS_STATUS_NOT_SUPPORTED;
        return CUBLAS_STATUS_SUCCESS;
    }
    if (o.a_scale || o.b_scale || o.d_scale || o.d_amax) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (a.type != b.type || (d.type != a.type && d.type != CUDA_R_32F)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return bias && o.bias_type != d.type ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

} /* namespace mpt_emu */

inline const char *cublasLtGetStatusString(cublasStatus_t s)
{
    switch (s) {
    case CUBLAS_STATUS_SUCCESS:          return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:  return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:     return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:    return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:    return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:   return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:    return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown";
}

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    if (mpt_emu::gate()) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (mpt_emu::due(mpt_emu::blas().fail_create)) return CUBLAS_STATUS_ALLOC_FAILED;
    return mpt_emu::blas_create(out);
}
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return mpt_emu::blas_destroy(h); }

inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    mpt_emu::blas_create(out);
    (*out)->compute = compute;
    (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t o) { return mpt_emu::blas_destroy(o); }

inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o,
                                                     cublasLtMatmulDescAttributes_t which, const void *value,
                                                     size_t size)
{
    if (!mpt_emu::blas_alive(o)) return CUBLAS_STATUS_INVALID_VALUE;
    const struct { cublasLtMatmulDescAttributes_t which; void *field; size_t size; } row[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &o->op_a, sizeof o->op_a},
        {CUBLASLT_MATMUL_DESC_TRANSB, &o->op_b, sizeof o->op_b},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &o->epilogue, sizeof o->epilogue},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias, sizeof o->bias},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o->aux, sizeof o->aux},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &o->ld_aux, sizeof o->ld_aux},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &o->a_scale, sizeof o->a_scale},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &o->b_scale, sizeof o->b_scale},
        {CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, &o->d_scale, sizeof o->d_scale},
        {CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, &o->d_amax, sizeof o->d_amax},
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &o->fast, sizeof o->fast},
        {(cublasLtMatmulDescAttributes_t)31, &o->a_mode, sizeof o->a_mode},
        {(cublasLtMatmulDescAttributes_t)32, &o->b_mode, sizeof o->b_mode},
        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &o->bias_type, sizeof o->bias_type}};
    for (const auto &r : row)
        if (r.which == which) {
            if (size != r.size) return CUBLAS_STATUS_INVALID_VALUE;
            memcpy(r.field, value, size);
            o->bias_typed = o->bias_typed || which == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE;
            return CUBLAS_STATUS_SUCCESS;
        }
    return CUBLAS_STATUS_INVALID_VALUE;
}

inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld)
{
    mpt_emu::blas_create(out);
    **out = {type, rows, cols, ld, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                       cublasLtMatrixLayoutAttribute_t which,
                                                       const void *value, size_t size)
{
    if (!mpt_emu::blas_alive(l)) return CUBLAS_STATUS_INVALID_VALUE;
    if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && size == 4) memcpy(&l->batch, value, 4);
    else if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && size == 8) memcpy(&l->stride, value, 8);
    else return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return mpt_emu::blas_destroy(l);
}

inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    mpt_emu::blas_create(out);
    **out = {0, 7, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return mpt_emu::blas_destroy(p);
}

inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                           cublasLtMatmulPreferenceAttributes_t which,
                                                           const void *value, size_t size)
{
    const int i = (int)which - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (!mpt_emu::blas_alive(p)) return CUBLAS_STATUS_INVALID_VALUE;
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == 8) memcpy(&p->workspace, value, 8);
    else if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && size == 4)
        memcpy(&p->reductions, value, 4);
    else if (i >= 0 && i < 4 && size == 4) memcpy(&p->align[i], value, 4);
    else return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t h, cublasLtMatmulDesc_t o, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t p, int wanted,
    cublasLtMatmulHeuristicResult_t *out, int *found)
{
    for (const void *x : {(const void *)h, (const void *)o, (const void *)a, (const void *)b, (const void *)c,
                          (const void *)d, (const void *)p})
        if (!mpt_emu::blas_alive(x)) return CUBLAS_STATUS_INVALID_VALUE;
    mpt_emu::blas().heuristics++;
    *found = 0;
    if (mpt_emu::due(mpt_emu::blas().fail_plan)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const bool fp8 = mpt_emu::is_fp8(a->type) || mpt_emu::is_fp4(a->type);
    for (int i = 0; fp8 && i < 4; i++)
        if (p->align[i] < 16) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (cublasStatus_t e = mpt_emu::blas_check(*o, *a, *b, *c, *d)) return e;
    memset(out, 0, sizeof *out);
    out->algo.workspace = p->workspace < 4096 ? p->workspace : 4096;
    out->algo.shape[0] = d->rows;
    out->algo.shape[1] = d->cols;
    out->algo.shape[2] = o->op_a == CUBLAS_OP_N ? a->cols : a->rows;
    memcpy(out->algo.align, p->align, sizeof p->align);
    out->algo.align[4] = 256;
    while ((uintptr_t)o->bias % out->algo.align[4]) out->algo.align[4] /= 2;
    const uint32_t in_d = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    out->algo.split = d->type != CUDA_R_32F && (p->reductions & in_d) != 0 && out->algo.shape[2] >= 256;
    out->algo.kernel = mpt_emu::blas().heuristics;
    out->workspaceSize = out->algo.workspace;
    out->state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t h, cublasLtMatmulDesc_t o, const void *alpha, const void *pa, cublasLtMatrixLayout_t a,
    const void *pb, cublasLtMatrixLayout_t b, const void *beta, const void *pc, cublasLtMatrixLayout_t c,
    void *pd, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
    cudaStream_t stream)
{
    for (const void *x : {(const void *)h, (const void *)o, (const void *)a, (const void *)b, (const void *)c,
                          (const void *)d})
        if (!mpt_emu::blas_alive(x)) return CUBLAS_STATUS_INVALID_VALUE;
    if (cublasStatus_t e = mpt_emu::blas_check(*o, *a, *b, *c, *d)) return e;
    if (pc == pd && c->type != d->type) return CUBLAS_STATUS_INVALID_VALUE;     /* seen on an H100 */
    const mpt_emu::Product p = {*o, *a, *b, *c, *d, *(const float *)alpha, *(const float *)beta,
                                pa, pb, pc, pd, algo && algo->split};
    const uint64_t shape[3] = {p.m(), p.n(), p.k()};
    if (!algo || memcmp(shape, algo->shape, sizeof shape) || bytes < algo->workspace ||
        (algo->workspace && !workspace))
        return CUBLAS_STATUS_INVALID_VALUE;
    const void *pointer[5] = {pa, pb, pc, pd, o->bias};
    for (int i = 0; i < 5; i++)
        if ((uintptr_t)pointer[i] % algo->align[i]) return CUBLAS_STATUS_INVALID_VALUE;
    const cublasLtMatrixLayout_t layout[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (layout[i]->stride * (int64_t)mpt_emu::bytes_of(layout[i]->type) % algo->align[i] && d->batch > 1)
            return CUBLAS_STATUS_INVALID_VALUE;
    if (mpt_emu::blas().loaded.insert(algo->kernel).second && mpt_emu::gate_unsafe())
        return CUBLAS_STATUS_INTERNAL_ERROR;
    const uint64_t used = algo->workspace;
    const cudaError_t e = mpt_emu::enqueue(stream, [=]() {
        if (used) memset(workspace, 0x5a, used);    /* so that ASan sees one that was freed */
        for (int64_t i = 0; i < p.d.batch; i++) {
            const auto at = [i](const void *x, const cublasLtMatrixLayoutOpaque_t &l) {
                return (char *)x + i * l.stride * (int64_t)mpt_emu::bytes_of(l.type);
            };
            mpt_emu::Product one = p;
            one.pa = at(p.pa, p.a), one.pb = at(p.pb, p.b), one.pc = at(p.pc, p.c), one.pd = at(p.pd, p.d);
            mpt_emu::run_product(one);
        }
    });
    return e ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

#endif /* MPT_EMU_CUBLASLT_H */
