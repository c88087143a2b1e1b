/* test_cuda_gemm.cu -- tests of the matrix products and the GPU table of mpt_cuda.h. Products are compared
 * with a triple loop in double. Under emulation they run on tests/emu/cublasLt.h, which refuses what the real
 * library refuses.
 *
 *     cc -O2 -I. -c tests/impl.c
 *     nvcc -std=c++17 -O2 -I. tests/test_cuda_gemm.cu tests/impl_cuda.cu impl.o -lcublasLt
 * or, without a GPU,
 *     c++ -x c++ -std=c++17 -O2 -DMPT_CUDA_EMU -Itests/emu -I. tests/test_cuda_gemm.cu tests/impl_cuda.cu \
 *         -x none impl.o
 */
#include "cuda.h"

#include <cublasLt.h>
#include <utility>

static int compute_capability;

/* op(x) of rows x cols, in any format, on host and device; in memory a line has `padding` elements more. */
struct Matrix {
    mpt_format                 format;      /* MPT_TF32 is stored as MPT_F32 */
    bool                       along_rows;  /* neighbours in memory are neighbours in a row of op(x) */
    int64_t                    lines, ld;
    size_t                     element, shift;
    std::vector<unsigned char> host;
    unsigned char             *memory = nullptr;

    Matrix(mpt_format f, int64_t rows, int64_t cols, bool row_major, bool transposed, int64_t padding,
           size_t shift_ = 0)
        : format(f == MPT_TF32 ? MPT_F32 : f), along_rows(row_major != transposed),
          lines(along_rows ? rows : cols), ld((along_rows ? cols : rows) + padding),
          element((size_t)mpt_format_get(format)->bits / 8), shift(shift_),
          host((size_t)(ld * lines) * element)
    {
        for (size_t i = 0; i < host.size() / element; i++)
            put(i, (double)((int)(mt_random() % 17u) - 8) / 8.0);
        CU(cudaMalloc((void **)&memory, host.size() + shift));
        CU(cudaMemcpy(data(), host.data(), host.size(), cudaMemcpyHostToDevice));
    }
    ~Matrix() { CU(cudaFree(memory)); }
    Matrix(const Matrix &) = delete;
    Matrix &operator=(const Matrix &) = delete;

    void *data() { return memory + shift; }
    std::vector<unsigned char> fetch()
    {
        std::vector<unsigned char> bytes(host.size());
        CU(cudaMemcpy(bytes.data(), data(), bytes.size(), cudaMemcpyDeviceToHost));
        return bytes;
    }
    void put(size_t i, double x)
    {
        mt_put(&host[element * i], element, mpt_encode(format, x, NULL, NULL));
    }
    double at(const std::vector<unsigned char> &bytes, int64_t row, int64_t col) const
    {
        const size_t i = (size_t)(along_rows ? row * ld + col : row + col * ld);
        return mpt_decode(format, mt_get(&bytes[element * i], element));
    }
    double at(int64_t row, int64_t col) const { return at(host, row, col); }
};

struct Case {
    mpt_format a, b, d;
    int64_t    m, n, k, pad;
    bool       row_major, trans_a, trans_b;
    uint32_t   epilogue;
    float      alpha, beta;
};

static bool is_fp8(mpt_format f) { return f == MPT_E4M3 || f == MPT_E5M2; }

static mpt_format bias_format(const Case &c)
{
    return !is_fp8(c.a) ? c.d : c.d == MPT_F16 ? MPT_F16 : MPT_BF16;
}

/* The operands of a case, and the arguments of the call. */
struct Operands {
    Matrix        a, b, d, bias;
    mpt_gemm_args g;

    explicit Operands(const Case &c, size_t shift = 0)
        : a(c.a, c.m, c.k, c.row_major, c.trans_a, c.pad, shift),
          b(c.b, c.k, c.n, c.row_major, c.trans_b, c.pad, shift),
          d(c.d, c.m, c.n, c.row_major, false, c.pad, shift),
          bias(bias_format(c), 1, c.row_major ? c.n : c.m, true, false, 0), g()
    {
        g.m = c.m;
        g.n = c.n;
        g.k = c.k;
        g.lda = a.ld;
        g.ldb = b.ld;
        g.ldd = d.ld;
        g.a = a.data();
        g.b = b.data();
        g.d = d.data();
        g.bias = c.epilogue & MPT_EPILOGUE_BIAS ? bias.data() : nullptr;
        g.a_format = c.a;
        g.b_format = c.b;
        g.d_format = c.d;
        g.bias_format = bias_format(c);
        g.row_major = c.row_major;
        g.trans_a = c.trans_a;
        g.trans_b = c.trans_b;
        g.epilogue = c.epilogue;
        g.alpha = c.alpha;
        g.beta = c.beta;
    }
};

static double after(double x, double bias, uint32_t e)
{
    if (e & MPT_EPILOGUE_BIAS) x += bias;
    if (e & MPT_EPILOGUE_RELU) return x > 0.0 ? x : 0.0;
    if (e & MPT_EPILOGUE_GELU)
        return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return x;
}

/* Operands are multiples of 1/8 up to 1, so every product and sum is exact in FP32: only the last rounding
 * and GELU's tanh differ. The padding of the lines of d must not change. */
static void compare(const Case &c, Operands &o, double factor)
{
    const std::vector<unsigned char> got = o.d.fetch();
    const double tolerance = mpt_format_get(o.d.format)->epsilon;
    const double tanh_error = c.epilogue & MPT_EPILOGUE_GELU ? 0x1p-11 : 0.0;   /* that of tanh.approx */
    for (int64_t i = 0; i < c.m; i++)
        for (int64_t j = 0; j < c.n; j++) {
            double sum = 0.0;
            for (int64_t l = 0; l < c.k; l++) sum += o.a.at(i, l) * o.b.at(l, j);
            sum = (double)c.alpha * factor * sum + (double)c.beta * o.d.at(i, j);
            const double bias = o.bias.at(0, c.row_major ? j : i), want = after(sum, bias, c.epilogue);
            const double rough = tanh_error * (fabs(sum) + fabs(bias));
            if (!CHECK(fabs(o.d.at(got, i, j) - want) <= tolerance * (fabs(want) + 1e-3) + rough))
                printf("    (%d, %d): got %g, want %g\n", (int)i, (int)j, o.d.at(got, i, j), want);
        }
    for (int64_t line = 0; line < o.d.lines; line++)
        for (int64_t i = o.d.ld - c.pad; i < o.d.ld; i++)
            CHECK(!memcmp(&got[(size_t)(line * o.d.ld + i) * o.d.element],
                          &o.d.host[(size_t)(line * o.d.ld + i) * o.d.element], o.d.element));
}

static void product(const Case &c, size_t shift = 0)
{
    Operands o(c, shift);
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    compare(c, o, 1.0);
}

/* Does the device have this format? The emulation has all of them, a real GPU perhaps not. */
static bool has(mpt_format f)
{
    return f == MPT_F32 || (mpt_gpu_from_cc(compute_capability).tensor_cores & mpti_gemm_tc(f)) != 0u;
}

/* If the card lacks a format, its refusal is tested in place of the test, which is not skipped. */
static void lacks(mpt_format f)
{
    const Case c = {f, f, MPT_F32, 16, 16, 16, 0, true, false, true, 0u, 1.0f, 0.0f};
    Operands   o(c);
    if (mpt_gemm_advice(compute_capability, &o.g).refused)
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_UNSUPPORTED);
    else
        product(c);
}

static const mpt_format wide[] = {MPT_F32, MPT_TF32, MPT_F16, MPT_BF16};

TEST(layouts)
{
    for (mpt_format f : wide)
        for (int bits = 0; bits < 8 && has(f); bits++)
            for (int d = 0; d < 2; d++) {
                const Case c = {f, f, d ? MPT_F32 : f == MPT_TF32 ? MPT_F32 : f, 24, 16, 40, d ? 8 : 0,
                                (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, 0u, 1.0f, 0.0f};
                product(c);
            }
}

TEST(odd_sizes_and_alignments)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 1, 33}, {1, 31, 2}};
    for (const auto &s : sizes)
        for (mpt_format f : wide) {
            const Case c = {f, f, f == MPT_TF32 ? MPT_F32 : f, s[0], s[1], s[2], 1, true, false, true,
                            0u, 1.0f, 0.0f};
            if (has(f)) product(c, 4);
        }
}

TEST(alpha_beta_epilogues)
{
    static const uint32_t epilogues[] = {MPT_EPILOGUE_NONE, MPT_EPILOGUE_BIAS, MPT_EPILOGUE_RELU,
                                         MPT_EPILOGUE_BIAS | MPT_EPILOGUE_RELU, MPT_EPILOGUE_GELU,
                                         MPT_EPILOGUE_BIAS | MPT_EPILOGUE_GELU};
    for (uint32_t e : epilogues)
        for (int bits = 0; bits < 4; bits++) {
            const Case c = {MPT_F16, MPT_F16, bits & 1 ? MPT_F16 : MPT_F32, 16, 8, 24, 8, (bits & 2) != 0,
                            false, true, e, 0.5f, bits & 1 ? 2.0f : 0.0f};
            product(c);
        }
}

/* Forward: BIAS, the activation and AUX. Backward: the derivative at aux, times another product, and its
 * sums. aux has lines of its own length, and what lies behind them must not change. */
static void there_and_back(bool gelu, bool row_major, mpt_format f, unsigned char *aux, int64_t more)
{
    const int64_t m = 24, n = 40, k = 16, line = row_major ? n : m, lines = row_major ? m : n;
    const int64_t ld = gelu ? line + 8 * more : 128 + 128 * more;
    const size_t  bytes = (size_t)(lines * ld) * (gelu ? f == MPT_F32 ? 4u : 2u : 1u) / (gelu ? 1u : 8u);
    Case          c = {f, f, f, m, n, k, 8, row_major, false, true, MPT_EPILOGUE_BIAS | MPT_EPILOGUE_AUX,
                       1.0f, 0.0f};
    c.epilogue |= gelu ? MPT_EPILOGUE_GELU : MPT_EPILOGUE_RELU;
    Operands                   x(c);
    std::vector<unsigned char> kept(bytes), all(bytes, 0xa5);
    CU(cudaMemcpy(aux, all.data(), bytes, cudaMemcpyHostToDevice));
    x.g.aux = aux;
    x.g.ldaux = ld;
    STATUS(mpt_cuda_gemm(gpu.cuda, &x.g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    c.epilogue &= MPT_EPILOGUE_BIAS | MPT_EPILOGUE_RELU | MPT_EPILOGUE_GELU;
    compare(c, x, 1.0);
    CU(cudaMemcpy(kept.data(), aux, bytes, cudaMemcpyDeviceToHost));
    for (int64_t l = 0; l < lines; l++)
        for (int64_t i = line; i < ld; i++) {
            const size_t at = (size_t)(l * ld + i), size = f == MPT_F32 ? 4 : 2;
            if (gelu) CHECK(!memcmp(&kept[at * size], &all[at * size], size));
            else if (i >= line + 128) CHECK((kept[at / 8] >> at % 8 & 1u) == (0xa5u >> at % 8 & 1u));
        }
    c.epilogue = MPT_EPILOGUE_BGRAD | (gelu ? MPT_EPILOGUE_DGELU : MPT_EPILOGUE_DRELU);
    Operands y(c);
    y.g.aux = aux;
    y.g.ldaux = ld;
    y.g.bias = y.bias.data();
    STATUS(mpt_cuda_gemm(gpu.cuda, &y.g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    const std::vector<unsigned char> d = y.d.fetch(), sums = y.bias.fetch();
    const double                     epsilon = mpt_format_get(f)->epsilon;
    for (int64_t o = 0; o < line; o++) {
        double sum = 0.0, size = 0.0, rough = 0.0;      /* that of tanh.approx, as in compare */
        for (int64_t other = 0; other < lines; other++) {
            const int64_t i = row_major ? other : o, j = row_major ? o : other;
            double        u = x.bias.at(0, o), want = 0.0, off = 0.0;
            for (int64_t l = 0; l < k; l++) {
                u += x.a.at(i, l) * x.b.at(l, j);
                want += y.a.at(i, l) * y.b.at(l, j);
            }
            if (gelu) u = mpt_decode(f, (uint32_t)mpt_encode(f, u, NULL, NULL));
            const double t = tanh(0.7978845608028654 * (u + 0.044715 * u * u * u));
            const double part = u * 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * u * u);
            if (gelu) off = fabs(want) * (0.5 + fabs(part)) * 0x1p-11;
            want *= gelu ? 0.5 * (1.0 + t) + 0.5 * part * (1.0 - t * t) : u < 0.0 ? 0.0 : 1.0;
            CHECK(fabs(y.d.at(d, i, j) - want) <= epsilon * (fabs(want) + 1e-3) + off);
            sum += want;
            size += fabs(want);
            rough += off;
        }
        CHECK(fabs(y.bias.at(sums, 0, o) - sum) <= epsilon * (size + 1e-3) + rough);
    }
}

TEST(epilogues_of_training)
{
    unsigned char *aux = nullptr;
    CU(cudaMalloc((void **)&aux, 32768));
    for (int bits = 0; bits < 8; bits++)        /* the second of a kind reuses its plan with another aux */
        for (int64_t more = 1; more < 3; more++)
            there_and_back((bits & 1) != 0, (bits & 2) != 0, bits & 4 ? MPT_F16 : MPT_F32,
                           aux + 16384 * (more - 1), more);
    CU(cudaFree(aux));
    for (int bits = 0; bits < 16; bits++) {     /* sums of an operand, which must not lie along k */
        const bool row_major = (bits & 1) != 0, of_a = (bits & 2) != 0, ta = (bits & 4) != 0, tb = bits > 7;
        const Case c = {MPT_F16, MPT_F16, MPT_F32, 24, 40, 16, 0, row_major, ta, tb,
                        of_a ? MPT_EPILOGUE_BGRAD_A : MPT_EPILOGUE_BGRAD_B, 1.0f, 0.0f};
        Operands o(c);
        Matrix   to(MPT_F32, 1, 40, true, false, 0);
        o.g.bias = to.data();
        if (of_a ? ta != row_major : tb == row_major) {
            STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_UNSUPPORTED);
            CHECK(!library_takes(gpu.cuda, &o.g));
            continue;
        }
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
        CU(cudaStreamSynchronize(gpu.stream));
        const std::vector<unsigned char> got = to.fetch();
        for (int64_t i = 0; i < 40; i++) {
            double sum = 0.0;
            for (int64_t l = 0; l < 16; l++) sum += !of_a ? o.b.at(l, i) : i < 24 ? o.a.at(i, l) : 0.0;
            CHECK(to.at(got, 0, i) == (of_a && i >= 24 ? to.at(0, i) : sum));
        }
    }
    const Case c = {MPT_F16, MPT_F16, MPT_F16, 16, 32, 16, 0, true, false, false,
                    MPT_EPILOGUE_GELU | MPT_EPILOGUE_AUX, 1.0f, 0.0f};
    Operands   o(c);
    o.g.ldaux = 32;
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_ARG);      /* without aux */
    o.g.aux = o.bias.data();
    for (int64_t ld : {24, 33}) {
        o.g.ldaux = ld;
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_UNSUPPORTED);
    }
    o.g.ldaux = 32;
    o.g.epilogue = MPT_EPILOGUE_DRELU;          /* lines of bits have a multiple of 128 */
    CHECK(mpt_gemm_advice(compute_capability, &o.g).problems & MPT_GEMM_EPILOGUE);
}

TEST(beta_zero_does_not_read_d)
{
    const Case c = {MPT_F16, MPT_F16, MPT_F32, 8, 8, 8, 0, true, false, false, 0u, 1.0f, 0.0f};
    Operands   o(c);
    CU(cudaMemset(o.d.data(), 0xff, o.d.host.size()));     /* NaN */
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    compare(c, o, 1.0);
}

/* TF32 keeps 11 significant bits of each operand and cannot hold 1 + 2^-12; plain FP32 can. The library may
 * use TF32 but need not: the emulation uses it for large products. */
TEST(tf32_rounds_and_f32_does_not)
{
    const float odd = 1.0f + 1.0f / 4096.0f;
    if (!has(MPT_TF32)) return lacks(MPT_TF32);
    for (int64_t side = 16; side <= 256; side *= 16)
        for (int tf32 = 0; tf32 < 2; tf32++) {
            const Case   c = {MPT_F32, MPT_F32, MPT_F32, side, side, side, 0, true, false, false, 0u,
                              1.0f, 0.0f};
            const size_t n = (size_t)(side * side);
            Operands o(c);
            std::vector<float> a(n, 0.0f), b(n, 0.0f), d(n);
            a[0] = odd;
            b[0] = 1.0f;
            CU(cudaMemcpy(o.a.data(), a.data(), 4 * n, cudaMemcpyHostToDevice));
            CU(cudaMemcpy(o.b.data(), b.data(), 4 * n, cudaMemcpyHostToDevice));
            o.g.a_format = o.g.b_format = tf32 ? MPT_TF32 : MPT_F32;
            STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
            CU(cudaStreamSynchronize(gpu.stream));
            CU(cudaMemcpy(d.data(), o.d.data(), 4 * n, cudaMemcpyDeviceToHost));
            CHECK(tf32 || d[0] == odd);
            CHECK(fabs((double)d[0] - 1.0) < 1.0 / 512.0);
#ifdef MPT_CUDA_EMU
            CHECK((d[0] == odd) == (!tf32 || side == 16));
#endif
        }
}

/* FP32 accumulation, also where k is split among blocks: 2049 - 2048 is 1, but f16 has no 2049. */
TEST(accumulates_in_f32)
{
    const Case            c = {MPT_F16, MPT_F16, MPT_F16, 8, 8, 4096, 0, true, false, true, 0u, 1.0f, 0.0f};
    const size_t          n = 8 * 4096;
    std::vector<uint16_t> a(n), b(n);
    Operands              o(c);
    for (size_t i = 0; i < n; i++) {
        a[i] = mpt_f16_from_f32(i % 4096 == 0 ? 2.0f : i % 4096 < 2048 ? 1.0f : -1.0f).bits;
        b[i] = mpt_f16_from_f32(1.0f).bits;
    }
    CU(cudaMemcpy(o.a.data(), a.data(), 2 * n, cudaMemcpyHostToDevice));
    CU(cudaMemcpy(o.b.data(), b.data(), 2 * n, cudaMemcpyHostToDevice));
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(o.d.at(o.d.fetch(), 0, 0) == 1.0 && o.d.at(o.d.fetch(), 7, 7) == 1.0);
}

/* A plan that was made for an aligned bias is not used for another bias. */
TEST(bias_of_each_alignment)
{
    const Case c = {MPT_F16, MPT_F16, MPT_F16, 16, 24, 40, 0, true, false, true, MPT_EPILOGUE_BIAS,
                    1.0f, 0.0f};
    for (size_t shift = 0; shift < 3; shift++) {
        Operands o(c);
        uint16_t *bias = nullptr;
        CU(cudaMalloc((void **)&bias, 128));
        CU(cudaMemcpy(bias + shift, o.bias.host.data(), o.bias.host.size(), cudaMemcpyHostToDevice));
        o.g.bias = bias + shift;
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
        CU(cudaStreamSynchronize(gpu.stream));
        compare(c, o, 1.0);
        CU(cudaFree(bias));
    }
}

/* The second product of a kind reads its own bias, not that of the product which made the plan. */
TEST(pointers_of_each_call)
{
    const Case c = {MPT_F16, MPT_F16, MPT_F32, 16, 8, 8, 0, true, false, true, MPT_EPILOGUE_BIAS, 1.0f, 0.0f};
    Operands   first(c), second(c);
    STATUS(mpt_cuda_gemm(gpu.cuda, &first.g, gpu.stream), MPT_OK);
    STATUS(mpt_cuda_gemm(gpu.cuda, &second.g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(first.bias.host != second.bias.host);
    compare(c, first, 1.0);
    compare(c, second, 1.0);
}

/* Products of a batch, one below the other in row-major matrices; each has its own b, or all share one. */
TEST(batches)
{
    const int64_t m = 8, n = 24, k = 16, count = 3;
    const Case    c = {MPT_F16, MPT_F16, MPT_F32, m, n, k, 8, true, false, false, 0u, 1.0f, 0.0f};
    for (int one_b = 0; one_b < 2; one_b++) {
        Case whole = c;
        whole.m *= count;
        Operands o(whole);
        Matrix   b(MPT_F16, count * k, n, true, false, 8);
        o.g.m = m;
        o.g.b = b.data();
        o.g.ldb = b.ld;
        o.g.batch = (uint32_t)count;
        o.g.a_stride = m * o.a.ld;
        o.g.b_stride = one_b ? 0 : k * b.ld;
        o.g.d_stride = m * o.d.ld;
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
        CU(cudaStreamSynchronize(gpu.stream));
        const std::vector<unsigned char> got = o.d.fetch();
        for (int64_t i = 0; i < count * m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0.0;
                for (int64_t l = 0; l < k; l++) sum += o.a.at(i, l) * b.at((one_b ? 0 : i / m * k) + l, j);
                CHECK(o.d.at(got, i, j) == sum);
            }
        o.g.a_stride++;                         /* a plan for another alignment, and a slower one */
        CHECK(mpt_gemm_advice(compute_capability, &o.g).problems & MPT_GEMM_PAD_LD);
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
        o.g.d_stride = m * o.d.ld - 9;          /* d of two products overlap */
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_ARG);
        CU(cudaStreamSynchronize(gpu.stream));
    }
}

/* FP8 sums with fewer bits: close to the others and, in the emulation, not the same. */
TEST(fast_accumulation)
{
    const Case c = {MPT_E4M3, MPT_E4M3, MPT_F32, 32, 32, 512, 0, true, false, true, 0u, 1.0f, 0.0f};
    double     most[2] = {0.0, 0.0};
    if (!has(MPT_E4M3)) return lacks(MPT_E4M3);
    for (uint32_t fast = 0; fast < 2; fast++) {
        Operands o(c);
        for (size_t i = 0; i < o.a.host.size(); i++) o.a.put(i, i % 512 ? 0x1p-6 : 448.0);
        CU(cudaMemcpy(o.a.data(), o.a.host.data(), o.a.host.size(), cudaMemcpyHostToDevice));
        o.g.fast_accumulate = fast;
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
        CU(cudaStreamSynchronize(gpu.stream));
        const std::vector<unsigned char> got = o.d.fetch();
        for (int64_t i = 0; i < 32; i++)
            for (int64_t j = 0; j < 32; j++) {
                double sum = 0.0;
                for (int64_t l = 0; l < 512; l++) sum += o.a.at(i, l) * o.b.at(l, j);
                most[fast] = fmax(most[fast], fabs(o.d.at(got, i, j) - sum));
            }
    }
    CHECK(most[0] <= 4.0 && most[1] < 32.0);        /* Tensor Cores add groups in fewer bits than FP32 has */
#ifdef MPT_CUDA_EMU
    CHECK(most[0] == 0.0 && most[1] > 0.0);
#endif
}

static void fp8_product(mpt_format fa, mpt_format fb, mpt_format fd, bool row_major, uint32_t e,
                        int64_t k = 48, int64_t pad = 16)
{
    const Case  c = {fa, fb, fd, 32, 16, k, pad, row_major, !row_major, row_major, e, 1.0f, 0.0f};
    const float scales[3] = {1.0f, 0.25f, 0.5f};
    float      *device = nullptr, amax = -1.0f;
    Operands    o(c);
    CU(cudaMalloc((void **)&device, 4 * sizeof *device));
    CU(cudaMemcpy(device, scales, sizeof scales, cudaMemcpyHostToDevice));
    o.g.a_scale = device + 2;         /* both off 16 bytes, one of them by 8 */
    o.g.b_scale = device + 1;
    if (is_fp8(fd)) {
        o.g.d_scale = device;
        o.g.d_amax = device + 3;
    }
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    compare(c, o, 0.125);
    if (is_fp8(fd)) {
        double most = 0.0;
        const std::vector<unsigned char> got = o.d.fetch();
        for (int64_t i = 0; i < c.m; i++)
            for (int64_t j = 0; j < c.n; j++) most = fmax(most, fabs(o.d.at(got, i, j)));
        CU(cudaMemcpy(&amax, device + 3, sizeof amax, cudaMemcpyDeviceToHost));
        CHECK(fabs((double)amax - most) <= most * mpt_format_get(fd)->epsilon);
    }
    CU(cudaFree(device));
}

TEST(fp8)
{
    if (!has(MPT_E4M3)) return lacks(MPT_E4M3);
    for (int row_major = 0; row_major < 2; row_major++) {
        fp8_product(MPT_E4M3, MPT_E4M3, MPT_F32, row_major != 0, 0u);
        fp8_product(MPT_E4M3, MPT_E4M3, MPT_F32, row_major != 0, MPT_EPILOGUE_BIAS);
        fp8_product(MPT_E4M3, MPT_E4M3, MPT_BF16, row_major != 0, MPT_EPILOGUE_BIAS);
        fp8_product(MPT_E5M2, MPT_E4M3, MPT_F16, row_major != 0, MPT_EPILOGUE_BIAS);
        fp8_product(MPT_E4M3, MPT_E5M2, MPT_F32, row_major != 0, 0u);
        fp8_product(MPT_E4M3, MPT_E4M3, MPT_E4M3, row_major != 0, 0u);
    }
}

/* While an object of this type lives, gpu.cuda is a context of an emulated card of this compute capability. A
 * real card stays what it is; its Tensor Cores may add in fewer bits than FP32 has. */
#ifdef MPT_CUDA_EMU
static const double block_tolerance = 1e-6;
struct Card {
    mpt_cuda *const         outer = gpu.cuda;
    const int               before = compute_capability;
    const mpt_emu::Controls saved = mpt_emu::controls();

    explicit Card(int cc)
    {
        mpt_emu::controls().major = cc / 10;
        mpt_emu::controls().minor = cc % 10;
        compute_capability = cc;
        CHECK_EQ_I(mpt_cuda_create(&gpu.cuda, 0), MPT_OK);
        CHECK_EQ_I(mpt_cuda_gemm_open(gpu.cuda, NULL, 0), MPT_OK);
    }
    ~Card()
    {
        mpt_cuda_destroy(gpu.cuda);
        gpu.cuda = outer;
        compute_capability = before;
        mpt_emu::controls() = saved;
    }
};
#else
static const double block_tolerance = 1e-3;
struct Card {
    explicit Card(int) {}
};
#endif

/* A matrix with lines along k, which the device quantizes in blocks, and the numbers that these represent. */
struct Blocks {
    std::vector<float> value;
    uint8_t           *codes = nullptr, *scales = nullptr;
    float              tensor_scale = 1.0f;

    Blocks(mpt_block block, size_t lines, size_t k)
        : value(lines * k)
    {
        const size_t         n = lines * k, size = (size_t)mpt_block_get(block)->size;
        const size_t         tiles = (lines + 127) / 128 * ((k / size + 3) / 4);
        mpt_block_opts       o = {};
        std::vector<float>   x(n);
        std::vector<uint8_t> packed(n), each(n / size);
        float               *device = nullptr;
        for (size_t i = 0; i < n; i++)      /* blocks of all magnitudes */
            x[i] = ldexpf((float)((int)(mt_random() % 2001u) - 1000), (int)(i / size * 7 % 23) - 12);
        CHECK_EQ_I(mpt_block_tensor_scale(block, x.data(), n, &tensor_scale), MPT_OK);
        o.packed = 1;
        o.tensor_scale = tensor_scale;
        CHECK_EQ_I(mpt_block_quantize_n(block, packed.data(), each.data(), x.data(), n, &o), MPT_OK);
        CHECK_EQ_I(mpt_block_dequantize_n(block, value.data(), packed.data(), each.data(), n, &o), MPT_OK);
        CU(cudaMalloc((void **)&device, n * sizeof(float)));
        CU(cudaMalloc((void **)&codes, n));
        CU(cudaMalloc((void **)&scales, tiles * 512));
        CU(cudaMemcpy(device, x.data(), n * sizeof(float), cudaMemcpyHostToDevice));
        CHECK_EQ_I(mpt_cuda_block_quantize_n(gpu.cuda, block, codes, scales, MPT_F32, device, n, k, &o,
                                             gpu.stream), MPT_OK);
        CU(cudaStreamSynchronize(gpu.stream));
        CU(cudaFree(device));
    }
    ~Blocks()
    {
        CU(cudaFree(codes));
        CU(cudaFree(scales));
    }
    Blocks(const Blocks &) = delete;
    Blocks &operator=(const Blocks &) = delete;
};

static mpt_gemm_args block_args(mpt_block a, mpt_block b, int64_t m, int64_t n, int64_t k, bool row_major)
{
    mpt_gemm_args g;
    memset(&g, 0, sizeof g);
    g.m = m, g.n = n, g.k = k;
    g.lda = g.ldb = k;
    g.ldd = row_major ? n : m;
    g.a_format = mpt_block_get(a)->element;
    g.b_format = mpt_block_get(b)->element;
    g.d_format = MPT_F32;
    g.bias_format = MPT_BF16;
    g.row_major = row_major;
    g.trans_a = !row_major;
    g.trans_b = row_major;
    g.alpha = 1.0f;
    g.block_scales = (uint32_t)mpt_block_get(a)->size;
    return g;
}

/* From quantization to the product, all on the device, against the numbers that the blocks represent. */
static void block_product(mpt_block fa, mpt_block fb, int64_t m, int64_t n, int64_t k, bool row_major)
{
    const Blocks  a(fa, (size_t)m, (size_t)k), b(fb, (size_t)n, (size_t)k);
    Matrix        d(MPT_F32, m, n, row_major, false, 0);
    mpt_gemm_args g = block_args(fa, fb, m, n, k, row_major);
    g.a = a.codes, g.b = b.codes, g.d = d.data();
    g.a_scale = a.scales, g.b_scale = b.scales;
    g.alpha = a.tensor_scale * b.tensor_scale;
    STATUS(mpt_cuda_gemm(gpu.cuda, &g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    const std::vector<unsigned char> got = d.fetch();
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double want = 0.0, size = 0.0;
            for (int64_t l = 0; l < k; l++) {
                const double x = (double)a.value[(size_t)(i * k + l)] * (double)b.value[(size_t)(j * k + l)];
                want += x;
                size += fabs(x);
            }
            CHECK(fabs(d.at(got, i, j) - want) <= block_tolerance * size);
        }
}

/* Are there block-scaled products? A card, or a library, without them must refuse with the reason. */
static bool has_blocks(void)
{
    const mpt_gemm_args g = block_args(MPT_NVFP4, MPT_NVFP4, 16, 16, 64, true);
    const bool          card = !mpt_gemm_advice(compute_capability, &g).refused;
    CHECK(card == (compute_capability >= 100));
    if (card && CUBLAS_VERSION >= 120800) return true;
    mpt_gemm_args with = g;
    Matrix        some(MPT_F32, 64, 64, true, false, 0);
    with.a = with.b = with.a_scale = with.b_scale = with.d = some.data();
    STATUS(mpt_cuda_gemm(gpu.cuda, &with, gpu.stream), MPT_E_UNSUPPORTED);
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "block-scaled products need") != NULL);
    CHECK(some.fetch() == some.host);
    return false;
}

TEST(block_scaled)
{
    (void)has_blocks();
    const Card here(100);
    if (!has_blocks()) return;
    static const int64_t shapes[][3] = {{16, 32, 32}, {128, 16, 128}, {140, 48, 160}};
    for (const auto &s : shapes)
        for (int row_major = 0; row_major < 2; row_major++) {
            if (gpu.small && s[0] > 100) continue;
            block_product(MPT_NVFP4, MPT_NVFP4, s[0], s[1], s[2], row_major != 0);
            block_product(MPT_MXFP8_E4M3, MPT_MXFP8_E4M3, s[0], s[1], s[2], row_major != 0);
            block_product(MPT_MXFP8_E5M2, MPT_MXFP8_E4M3, s[0], s[1], s[2], row_major != 0);
        }
}

/* One shape, with a scale for each tensor and with scales of blocks: neither uses the plan of the other. */
TEST(scales_of_both_kinds)
{
    const Card here(100);
    if (!has_blocks()) return;
    for (int again = 0; again < 2; again++) {
        fp8_product(MPT_E4M3, MPT_E4M3, MPT_F32, true, 0u, 64, 0);
        block_product(MPT_MXFP8_E4M3, MPT_MXFP8_E4M3, 32, 16, 64, true);
    }
}

TEST(block_scaled_refusals)
{
    const Card here(121);
    Matrix     some(MPT_F32, 64, 64, true, false, 0);
    if (!has_blocks()) return;
    const mpt_gemm_args nv = block_args(MPT_NVFP4, MPT_NVFP4, 32, 32, 64, true);
    const mpt_gemm_args mx = block_args(MPT_MXFP8_E4M3, MPT_MXFP8_E4M3, 32, 32, 64, true);
    const auto expect = [&](mpt_gemm_args g, unsigned problem, mpt_status status) {
        g.a = g.b = g.bias = g.d = some.data();
        if (!g.a_scale && status != MPT_E_ARG) g.a_scale = some.data();
        if (!g.b_scale) g.b_scale = some.data();
        CHECK((mpt_gemm_advice(compute_capability, &g).problems & problem) == problem);
        STATUS(mpt_cuda_gemm(gpu.cuda, &g, gpu.stream), status);
        const unsigned first = problem & (0u - problem);
        if (problem) CHECK(strstr(mpt_cuda_error_text(gpu.cuda), mpt_gemm_problem_text(first)) != NULL);
        CU(cudaStreamSynchronize(gpu.stream));
        CHECK(some.fetch() == some.host);
    };
    mpt_gemm_args g = nv;
    expect(g, 0u, MPT_E_ARG);                                       /* without scales */
    g.block_scales = 32u;
    expect(g, MPT_GEMM_BLOCKS, MPT_E_UNSUPPORTED);                  /* MXFP4 */
    g = nv, g.block_scales = 0u;
    expect(g, MPT_GEMM_FORMATS, MPT_E_UNSUPPORTED);
    g = nv, g.d_format = MPT_E4M3;
    expect(g, MPT_GEMM_FORMATS, MPT_E_UNSUPPORTED);
    g = nv, g.trans_b = 0u, g.ldb = 32;
    expect(g, MPT_GEMM_FP8_LAYOUT, MPT_E_UNSUPPORTED);
    g = nv, g.k = 48;
    expect(g, MPT_GEMM_FP8_PAD | MPT_GEMM_BLOCKS, MPT_E_UNSUPPORTED);
    g = nv, g.a_scale = (const char *)some.data() + 8;
    expect(g, MPT_GEMM_BLOCKS, MPT_E_UNSUPPORTED);
    g = nv, g.b_scale = (const char *)some.data() + 8;
    expect(g, MPT_GEMM_BLOCKS, MPT_E_UNSUPPORTED);
    g = nv, g.n = 31;
    expect(g, MPT_GEMM_FP8_PAD, MPT_E_UNSUPPORTED);
    g = mx, g.block_scales = 16u;
    expect(g, MPT_GEMM_BLOCKS, MPT_E_UNSUPPORTED);
    g = mx, g.b_format = MPT_E2M1;
    expect(g, MPT_GEMM_FORMATS, MPT_E_UNSUPPORTED);
    g = mx, g.batch = 2u, g.d_stride = 1024;
    expect(g, MPT_GEMM_BLOCKS, MPT_E_UNSUPPORTED);
    g = mx, g.epilogue = MPT_EPILOGUE_BGRAD_A;
    expect(g, MPT_GEMM_EPILOGUE, MPT_E_UNSUPPORTED);
    g = mx, g.a_format = g.b_format = MPT_BF16;
    expect(g, MPT_GEMM_SCALES | MPT_GEMM_BLOCKS, MPT_E_UNSUPPORTED);
    for (int cc : {75, 80, 89, 90}) CHECK(mpt_gemm_advice(cc, &mx).problems & MPT_GEMM_NO_BLOCKS);
    for (int cc : {100, 103, 120, 121}) CHECK_EQ_U(mpt_gemm_advice(cc, &mx).problems, MPT_GEMM_FINE);
}

/* mpt_cuda_gemm must refuse with the text of the advice, and write nothing. */
static void refused(const Case &c, unsigned problem, mpt_status status, size_t shift = 0, int scale = -1)
{
    Operands                o(c, shift);
    float *const            scalar = (float *)o.bias.data();
    if (scale == 0) o.g.a_scale = scalar;
    if (scale == 1) o.g.b_scale = scalar;
    if (scale == 2) o.g.d_scale = scalar;
    if (scale == 3) o.g.d_amax = scalar;
    o.g.bias = scalar;
    o.g.aux = o.d.data();
    o.g.ldaux = 128;
    const mpt_gemm_verdict advice = mpt_gemm_advice(compute_capability, &o.g);
    CHECK(advice.problems & problem);
    CHECK(advice.refused && !advice.tensor_cores);
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), status);
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), mpt_gemm_problem_text(problem)) != NULL);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(o.d.fetch() == o.d.host);
}

/* FP8 with current scaling: one pass records amax, the update computes scales from it, a second pass converts
 * with them, and the product undoes them. Without scales the operands would be far below FP8's range. */
TEST(fp8_by_current_scaling)
{
    const int64_t      m = 32, n = 48, k = 64;
    const size_t       sizes[2] = {(size_t)(m * k), (size_t)(n * k)};
    std::vector<float> host[2], d((size_t)(m * n));
    float             *x[2], *scales, *result;
    mpt_e4m3          *code[2];
    mpt_fp8_scaling    s = {};
    if (!has(MPT_E4M3)) return lacks(MPT_E4M3);
    CU(cudaMalloc((void **)&scales, 16 * sizeof(float)));
    CU(cudaMalloc((void **)&result, d.size() * sizeof(float)));
    s.recipe = mpt_fp8_defaults(MPT_E4M3);
    s.recipe.length = 1;
    s.count = 2;
    s.scale = scales, s.amax = scales + 2, s.inverse = scales + 4, s.history = scales + 12;
    s.inverse_step = 4;
    STATUS(mpt_cuda_fp8_init(gpu.cuda, &s, gpu.stream), MPT_OK);
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < sizes[i]; j++)
            host[i].push_back(((float)(mt_random() % 2001u) - 1000.0f) * (i ? 1.0e-7f : 1.0e-9f));
        CU(cudaMalloc((void **)&x[i], sizes[i] * sizeof(float)));
        CU(cudaMalloc((void **)&code[i], sizes[i]));
        CU(cudaMemcpy(x[i], host[i].data(), sizes[i] * sizeof(float), cudaMemcpyHostToDevice));
    }
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < 2; i++)
            STATUS(mpt_cuda_fp8_encode_n(gpu.cuda, MPT_E4M3, step ? code[i] : NULL, MPT_F32, x[i], sizes[i],
                                         s.scale + i, s.amax + i, gpu.stream), MPT_OK);
        if (!step)
            STATUS(mpt_cuda_fp8_update(gpu.cuda, &s, gpu.stream), MPT_OK);
    }
    mpt_gemm_args g;
    memset(&g, 0, sizeof g);
    g.m = m, g.n = n, g.k = k;
    g.lda = g.ldb = k, g.ldd = n;
    g.a = code[0], g.b = code[1], g.d = result;
    g.a_format = g.b_format = MPT_E4M3;
    g.d_format = MPT_F32;
    g.row_major = g.trans_b = 1;
    g.alpha = 1.0f;
    g.a_scale = s.inverse, g.b_scale = s.inverse + 4;
    STATUS(mpt_cuda_gemm(gpu.cuda, &g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CU(cudaMemcpy(d.data(), result, d.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double error = 0.0, size = 0.0;
    for (int64_t row = 0; row < m; row++)
        for (int64_t col = 0; col < n; col++) {
            double want = 0.0;
            for (int64_t l = 0; l < k; l++)
                want += (double)host[0][(size_t)(row * k + l)] * (double)host[1][(size_t)(col * k + l)];
            const double off = (double)d[(size_t)(row * n + col)] - want;
            error += off * off;
            size += want * want;
        }
    CHECK(size > 0.0 && sqrt(error / size) < 0.05);     /* 3 bits of fraction: 0.02 per operand, at random */
    for (int i = 0; i < 2; i++) {
        CU(cudaFree(x[i]));
        CU(cudaFree(code[i]));
    }
    CU(cudaFree(scales));
    CU(cudaFree(result));
}

/* Scales are refused where nothing is FP8, and those of d where d is not. */
TEST(scales_that_are_refused)
{
    Case c = {MPT_BF16, MPT_BF16, MPT_F32, 16, 16, 16, 0, true, false, true, 0u, 1.0f, 0.0f};
    if (!has(MPT_BF16)) return lacks(MPT_BF16);
    for (int which = 0; which < 4; which++) refused(c, MPT_GEMM_SCALES, MPT_E_UNSUPPORTED, 0, which);
    c.a = c.b = MPT_E4M3;
    for (int which = 2; which < 4 && has(MPT_E4M3); which++)
        refused(c, MPT_GEMM_SCALES, MPT_E_UNSUPPORTED, 0, which);
}

TEST(refusals)
{
    Case c = {MPT_F16, MPT_F16, MPT_BF16, 16, 16, 16, 0, true, false, true, 0u, 1.0f, 0.0f};
    refused(c, MPT_GEMM_FORMATS, MPT_E_UNSUPPORTED);
    c.d = MPT_F16;
    c.b = MPT_BF16;
    refused(c, MPT_GEMM_FORMATS, MPT_E_UNSUPPORTED);
    c.b = MPT_F16;
    for (uint32_t e : {MPT_EPILOGUE_RELU | MPT_EPILOGUE_GELU, MPT_EPILOGUE_AUX, MPT_EPILOGUE_BGRAD, 512u,
                       MPT_EPILOGUE_BIAS | MPT_EPILOGUE_DRELU, MPT_EPILOGUE_DGELU | MPT_EPILOGUE_AUX,
                       MPT_EPILOGUE_BGRAD_A | MPT_EPILOGUE_BGRAD_B,
                       MPT_EPILOGUE_BIAS | MPT_EPILOGUE_BGRAD_B}) {
        c.epilogue = e;
        refused(c, MPT_GEMM_EPILOGUE, MPT_E_UNSUPPORTED);
    }
    c.epilogue = 0u;
    Operands o(c);
    o.g.lda = 15;
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_ARG);
    o.g.lda = 16;
    o.g.k = 0;
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_ARG);
    o.g.k = 16;
    o.g.epilogue = MPT_EPILOGUE_BIAS;       /* without a bias */
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_ARG);
    o.g.epilogue = 0u;
    o.g.a = NULL;
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_gemm(NULL, &o.g, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_gemm(gpu.cuda, NULL, gpu.stream), MPT_E_ARG);
}

TEST(fp8_refusals)
{
    if (!has(MPT_E4M3)) return lacks(MPT_E4M3);
    Case c = {MPT_E5M2, MPT_E5M2, MPT_F32, 32, 32, 32, 0, true, false, true, 0u, 1.0f, 0.0f};
    refused(c, MPT_GEMM_FP8_PAIR, MPT_E_UNSUPPORTED);
    c.a = MPT_E4M3;
    c.trans_b = false;
    if (compute_capability / 10 != 10) refused(c, MPT_GEMM_FP8_LAYOUT, MPT_E_UNSUPPORTED);
    c.trans_b = true;
    c.k = 24;
    refused(c, MPT_GEMM_FP8_PAD, MPT_E_UNSUPPORTED);
    c.k = 32;
    refused(c, MPT_GEMM_FP8_PAD, MPT_E_UNSUPPORTED, 4);
    c.m = 17;           /* no matrix has lines of this length */
    product(c);
    c.d = MPT_BF16;
    c.n = 24;           /* lines of d have 48 bytes; 24 bytes of b would not do, but b lies along k */
    product(c);
    c.n = 20;
    refused(c, MPT_GEMM_FP8_PAD, MPT_E_UNSUPPORTED);
    c.m = c.n = 32;
    c.d = MPT_E4M3;
    c.beta = 1.0f;
    refused(c, MPT_GEMM_FORMATS, MPT_E_UNSUPPORTED);
    c.beta = 0.0f;
    c.d = MPT_E5M2;
    c.b = MPT_E4M3;
    refused(c, MPT_GEMM_FORMATS, MPT_E_UNSUPPORTED);
    c.b = MPT_E5M2;
    product(c);
}

TEST(open_and_order)
{
    const Case c = {MPT_F16, MPT_F16, MPT_F16, 8, 8, 8, 0, true, false, false, 0u, 1.0f, 0.0f};
    Operands   o(c);
    mpt_cuda  *other = nullptr;
    void      *workspace = nullptr;
    CHECK_EQ_I(mpt_cuda_create(&other, 0), MPT_OK);
    CHECK_EQ_I(mpt_cuda_gemm(other, &o.g, gpu.stream), MPT_E_ORDER);
    CU(cudaMalloc(&workspace, 8192));
    CHECK_EQ_I(mpt_cuda_gemm_open(other, (char *)workspace + 128, 4096), MPT_E_ARG);
    for (size_t bytes : {0, 255}) CHECK_EQ_I(mpt_cuda_gemm_open(other, workspace, bytes), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_gemm_open(NULL, workspace, 8192), MPT_E_ARG);
    CHECK_EQ_I(mpt_cuda_gemm_open(other, workspace, 8190), MPT_OK);
    CHECK_EQ_I(mpt_cuda_gemm_open(other, NULL, 0), MPT_OK);        /* changes nothing */
    CHECK_EQ_I(mpt_cuda_gemm(other, &o.g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    compare(c, o, 1.0);
    std::swap(gpu.cuda, other);     /* a scale that is copied goes into the workspace, not behind it */
    if (has(MPT_E4M3)) fp8_product(MPT_E4M3, MPT_E4M3, MPT_BF16, true, 0u);
    std::swap(gpu.cuda, other);
    mpt_cuda_destroy(other);
    CU(cudaFree(workspace));
}

/* The table of GPUs and its advice, and the row of this device. */
TEST(gpus)
{
    static const struct { int cc; const char *name; unsigned tensor_cores; } rows[] = {
        {35, "Maxwell or older", 0u}, {60, "Pascal", 0u}, {61, "Pascal", 0u}, {70, "Volta", MPT_TC_F16},
        {72, "Volta", MPT_TC_F16}, {75, "Turing", MPT_TC_F16},
        {80, "Ampere", MPT_TC_F16 | MPT_TC_BF16 | MPT_TC_TF32},
        {87, "Ampere", MPT_TC_F16 | MPT_TC_BF16 | MPT_TC_TF32},
        {89, "Ada", MPT_TC_F16 | MPT_TC_BF16 | MPT_TC_TF32 | MPT_TC_FP8},
        {90, "Hopper", MPT_TC_F16 | MPT_TC_BF16 | MPT_TC_TF32 | MPT_TC_FP8},
        {100, "Blackwell", 31u}, {121, "Blackwell", 31u}, {-1, "Maxwell or older", 0u},
        {999, "Blackwell", 31u}};
    mpt_gpu here;
    for (const auto &r : rows) {
        const mpt_gpu g = mpt_gpu_from_cc(r.cc);
        CHECK_EQ_S(g.name, r.name);
        CHECK_EQ_U(g.tensor_cores, r.tensor_cores);
        CHECK_EQ_I(g.cc, r.cc);
        CHECK(strlen(g.advice) > 20);
    }
    STATUS(mpt_cuda_gpu(gpu.cuda, &here), MPT_OK);
    CHECK_EQ_I(here.cc, compute_capability);
    STATUS(mpt_cuda_gpu(gpu.cuda, NULL), MPT_E_ARG);
    STATUS(mpt_cuda_gpu(NULL, &here), MPT_E_ARG);
}

TEST(advice)
{
    mpt_gemm_args g = {};
    g.m = 100;
    g.n = 64;
    g.k = 30;
    g.lda = 30;
    g.ldb = 64;
    g.ldd = 64;
    g.row_major = 1u;
    g.a_format = g.b_format = g.d_format = g.bias_format = MPT_F16;
    mpt_gemm_verdict a = mpt_gemm_advice(90, &g);
    CHECK_EQ_U(a.problems, MPT_GEMM_PAD_M | MPT_GEMM_PAD_K | MPT_GEMM_PAD_LD);
    CHECK(!a.refused && a.tensor_cores);
    CHECK_EQ_I(a.m, 104);
    CHECK_EQ_I(a.n, 64);
    CHECK_EQ_I(a.k, 32);
    g.m = a.m;
    g.k = g.lda = a.k;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_FINE);
    CHECK_EQ_U(mpt_gemm_advice(70, &g).problems, MPT_GEMM_FINE);
    a = mpt_gemm_advice(61, &g);
    CHECK_EQ_U(a.problems, MPT_GEMM_NO_TENSOR_CORES);
    CHECK(!a.refused && !a.tensor_cores);
    g.a = (const void *)8;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_ALIGN);
    g.a = NULL;
    g.a_format = g.b_format = g.d_format = g.bias_format = MPT_BF16;
    CHECK_EQ_U(mpt_gemm_advice(75, &g).problems, MPT_GEMM_NO_BF16);
    CHECK(mpt_gemm_advice(75, &g).refused);
    g.a_format = g.b_format = MPT_TF32;
    g.d_format = g.bias_format = MPT_F32;
    CHECK_EQ_U(mpt_gemm_advice(80, &g).problems, MPT_GEMM_FINE);
    CHECK_EQ_U(mpt_gemm_advice(75, &g).problems, MPT_GEMM_NO_TENSOR_CORES);
    g.a_format = g.b_format = MPT_E4M3;
    g.d_format = MPT_BF16;
    g.bias_format = MPT_BF16;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_FP8_LAYOUT | MPT_GEMM_PAD_M);
    g.m = 112;
    g.ldb = 32;
    g.trans_b = 1u;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_FINE);
    CHECK_EQ_U(mpt_gemm_advice(80, &g).problems, MPT_GEMM_NO_FP8);
    g.trans_b = 0u;
    g.ldb = 64;
    CHECK_EQ_U(mpt_gemm_advice(100, &g).problems, MPT_GEMM_FINE);
    CHECK_EQ_U(mpt_gemm_advice(120, &g).problems, MPT_GEMM_FP8_LAYOUT);
    g = mpt_gemm_args();
    g.m = g.n = g.k = g.lda = g.ldb = g.ldd = 64;
    g.a_format = g.b_format = g.d_format = MPT_BF16;
    g.batch = 2;
    g.a_stride = g.b_stride = g.d_stride = 64 * 64;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_FINE);
    for (int64_t *p : {&g.a_stride, &g.b_stride, &g.d_stride, &g.lda, &g.ldb, &g.ldd}) {
        const mpt_gemm_args saved = g;
        *p += 1;
        if (p == &g.ldd) g.d_stride += 64;
        CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_PAD_LD);
        g = saved;
        if (p != &g.a_stride && p != &g.b_stride) continue;
        *p = 0;
        CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_FINE);
        *p = -8;
        CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_SHAPE);
        g = saved;
    }
    g.d_stride = 64 * 64 - 8;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_SHAPE);
    g.d_stride = 64 * 64;
    g.batch = 0x80000000u;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_SHAPE);
    g.batch = 0;
    g.d = (void *)8;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_ALIGN);
    g.d = NULL;
    g.epilogue = MPT_EPILOGUE_GELU | MPT_EPILOGUE_AUX;
    g.ldaux = 64;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_FINE);
    g.aux = (void *)8;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_EPILOGUE);
    g.aux = NULL;
    g.batch = 2;
    CHECK_EQ_U(mpt_gemm_advice(90, &g).problems, MPT_GEMM_EPILOGUE);
    g.batch = 0;
    g.epilogue = 0;
    for (int64_t *p : {&g.k, &g.m, &g.n}) {     /* lines of a, then a and d, that are no multiple of 16 */
        g.a_format = MPT_E4M3;
        g.b_format = MPT_E5M2;
        g.trans_a = p == &g.k;
        g.trans_b = p == &g.n;
        g.epilogue = MPT_EPILOGUE_GELU | MPT_EPILOGUE_AUX;
        CHECK(mpt_gemm_advice(100, &g).problems & MPT_GEMM_EPILOGUE);
        g.epilogue = 0;
        *p = 56;
        CHECK(mpt_gemm_advice(100, &g).problems & MPT_GEMM_FP8_PAD);
        *p = 64;
    }
#define MPTI_X(id, bit, refused, text) CHECK_EQ_S(mpt_gemm_problem_text(id), text);
    MPT_GEMM_PROBLEMS(MPTI_X)
#undef MPTI_X
    CHECK_EQ_S(mpt_gemm_problem_text(0u), "");
    CHECK_EQ_S(mpt_gemm_problem_text(3u), "");
}

/* A product captured before its plan exists, and replayed: it reads the data as of the replay. */
TEST(capture)
{
    const Case      c = {MPT_F16, MPT_F16, MPT_F32, 16, 16, 24, 0, true, false, true, 0u, 1.0f, 0.0f};
    cudaGraph_t     graph = NULL;
    cudaGraphExec_t exec = NULL;
    Operands        o(c), again(c);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    CU(cudaThreadExchangeStreamCaptureMode(&mode));
    CU(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeGlobal));
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
    CU(cudaStreamEndCapture(gpu.stream, &graph));
    CU(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == cudaStreamCaptureModeThreadLocal);    /* relaxed during the product only */
    CHECK(o.d.fetch() == o.d.host);         /* nothing has run yet */
    CU(cudaGraphInstantiate(&exec, graph, 0));
    CU(cudaGraphLaunch(exec, gpu.stream));
    CU(cudaStreamSynchronize(gpu.stream));
    compare(c, o, 1.0);
    o.a.host = again.a.host;
    CU(cudaMemcpy(o.a.data(), o.a.host.data(), o.a.host.size(), cudaMemcpyHostToDevice));
    CU(cudaGraphLaunch(exec, gpu.stream));
    CU(cudaStreamSynchronize(gpu.stream));
    compare(c, o, 1.0);
    CU(cudaGraphExecDestroy(exec));
    CU(cudaGraphDestroy(graph));
}

#ifdef MPT_CUDA_EMU
/* Plans: one per kind of product, made once; the least recently used one makes room. */
TEST(plans)
{
    Case c = {MPT_F16, MPT_F16, MPT_F16, 8, 8, 8, 0, true, false, false, 0u, 1.0f, 0.0f};
    product(c);
    unsigned long before = mpt_emu::blas().heuristics;
    product(c);
    product(c);
    CHECK_EQ_U(mpt_emu::blas().heuristics, before);
    {
        Operands o(c);                  /* the same kind, said in another way */
        o.g.batch = 1u;
        o.g.ldaux = 7;
        o.g.bias_format = MPT_BF16;
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
        if (o.g.trans_a) o.g.trans_a = 2u;
        if (o.g.trans_b) o.g.trans_b = 2u;
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
    }
    CHECK_EQ_U(mpt_emu::blas().heuristics, before);
    c.beta = 1.0f;
    product(c);
    c.beta = 3.0f;
    product(c);
    CHECK_EQ_U(mpt_emu::blas().heuristics, before + 1);
    for (int64_t m = 1; m <= GEMM_PLANS; m++) {    /* more kinds than places */
        Case d = c;
        d.m = 8 * m;
        d.n = 16;
        product(d);
    }
    before = mpt_emu::blas().heuristics;
    product(c);
    CHECK_EQ_U(mpt_emu::blas().heuristics, before + 1);
    Case first = c;                         /* a plan that was used in between stays */
    first.m = 8 * (GEMM_PLANS / 2);
    first.n = 32;
    product(first);
    for (int64_t m = 1; m <= GEMM_PLANS + 8; m++) {
        Case d = c;
        d.m = 8 * m;
        d.n = 24;
        if (m == GEMM_PLANS / 2) product(first);
        product(d);
    }
    before = mpt_emu::blas().heuristics;
    product(first);
    CHECK_EQ_U(mpt_emu::blas().heuristics, before);
    Case wider = c;                         /* another leading dimension is another plan */
    wider.pad = 16;
    wider.beta = 0.0f;
    for (int which = 0; which < 4; which++) {
        Operands o(wider);
        if (which == 1) o.g.lda = o.a.ld -= 8;
        if (which == 2) o.g.ldb = o.b.ld -= 8;
        if (which == 3) o.g.ldd = o.d.ld -= 8;
        wider.pad = which == 3 ? 8 : 16;
        STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
        CU(cudaStreamSynchronize(gpu.stream));
        compare(wider, o, 1.0);
    }
}

TEST(failures_leak_nothing)
{
    const size_t outstanding = mpt_emu::blas_outstanding(), memory = mpt_emu::outstanding();
    mpt_cuda    *other = nullptr;
    CHECK_EQ_I(mpt_cuda_create(&other, 0), MPT_OK);
    mpt_emu::controls().fail_malloc = 1;
    CHECK_EQ_I(mpt_cuda_gemm_open(other, NULL, 0), MPT_E_MEMORY);
    mpt_emu::blas().fail_create = 1;
    CHECK_EQ_I(mpt_cuda_gemm_open(other, NULL, 0), MPT_E_MEMORY);
    CHECK_EQ_U(mpt_emu::blas_outstanding(), outstanding);
    CHECK_EQ_I(mpt_cuda_gemm_open(other, NULL, 0), MPT_OK);
    mpt_cuda_destroy(other);
    CHECK_EQ_U(mpt_emu::blas_outstanding(), outstanding);
    CHECK_EQ_U(mpt_emu::outstanding(), memory);
}

/* A refusal that no rule of ours foresees: cuBLAS' status, nothing is queued, and the next call works. */
TEST(cublas_refuses)
{
    const Case           c = {MPT_F16, MPT_F16, MPT_F32, 16, 16, 16, 0, true, false, false, 0u, 1.0f, 0.0f};
    Operands             o(c);
    const auto           before = o.d.fetch();
    const size_t         alive = mpt_emu::blas_outstanding();
    mpt_emu::blas().fail_plan = 1;
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_CUBLAS);
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "mpt_cuda_gemm: CUBLAS_STATUS_NOT_SUPPORTED") != NULL);
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "no way to do this product") != NULL);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(o.d.fetch() == before);
    CHECK(mpt_emu::blas_outstanding() <= alive);      /* the oldest plan may have made room */
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CHECK(o.d.fetch() != before);
    mpt_emu::controls().device_count = 2;
    CU(cudaSetDevice(1));
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_E_CUDA);
    CHECK(strstr(mpt_cuda_error_text(gpu.cuda), "cudaSetDevice") != NULL);
    CU(cudaSetDevice(0));
    mpt_emu::controls().device_count = 1;
}

TEST(no_wait_and_no_malloc_in_a_product)
{
    const Case c = {MPT_F32, MPT_F32, MPT_F32, 8, 8, 8, 0, true, false, false, 0u, 1.0f, 0.0f};
    Operands   o(c);
    mpt_emu::reset_counters();
    STATUS(mpt_cuda_gemm(gpu.cuda, &o.g, gpu.stream), MPT_OK);
    CHECK_EQ_U(mpt_emu::counters().syncs, 0u);
    CHECK_EQ_U(mpt_emu::counters().mallocs, 0u);
    CU(cudaStreamSynchronize(gpu.stream));
}

/* On every generation, the emulated library takes a product exactly if the advice does not refuse it. */
TEST(every_generation)
{
    static const int ccs[] = {61, 75, 80, 89, 90, 100, 103, 120, 121};
    static const mpt_format formats[] = {MPT_F32, MPT_TF32, MPT_F16, MPT_BF16, MPT_E4M3, MPT_E5M2};
    const mpt_emu::Controls saved = mpt_emu::controls();
    for (int cc : ccs) {
        mpt_cuda *other = nullptr;
        mpt_emu::controls().major = cc / 10;
        mpt_emu::controls().minor = cc % 10;
        CHECK_EQ_I(mpt_cuda_create(&other, 0), MPT_OK);
        CHECK_EQ_I(mpt_cuda_gemm_open(other, NULL, 4096), MPT_OK);
        for (mpt_format f : formats)
            for (int bits = 0; bits < 16; bits++) {
                const mpt_format d = f == MPT_TF32 ? MPT_F32 : is_fp8(f) ? MPT_BF16 : f;
                const Case c = {f, f == MPT_E5M2 ? MPT_E4M3 : f, d, bits & 8 ? 24 : 32, 32, 32, 0,
                                (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, 0u, 1.0f, 0.0f};
                Operands o(c);
                const mpt_gemm_verdict a = mpt_gemm_advice(cc, &o.g);
                CHECK_EQ_I(mpt_cuda_gemm(other, &o.g, gpu.stream), a.refused ? MPT_E_UNSUPPORTED : MPT_OK);
                /* the library itself, without the advice */
                CHECK_EQ_I(library_takes(other, &o.g), !a.refused);
                CU(cudaStreamSynchronize(gpu.stream));
            }
        for (int bits = 0; bits < 64; bits++) {     /* blocks */
            const bool    row_major = (bits & 2) != 0, four = (bits & 1) != 0;
            const mpt_block block = four ? MPT_NVFP4 : MPT_MXFP8_E5M2;
            mpt_gemm_args g = block_args(block, four ? block : MPT_MXFP8_E4M3, 32, 32, 64, row_major);
            Matrix        some(MPT_F32, 64, 64, true, false, 0);
            g.a = g.b = g.a_scale = g.b_scale = g.d = some.data();
            if (bits & 4) g.trans_a = !g.trans_a;
            if (bits & 8) g.block_scales = 48u - g.block_scales;
            if (bits & 16) g.k = 48;
            if (bits & 32) g.d_format = MPT_F16;
            g.fast_accumulate = bits & 32;
            const mpt_gemm_verdict a = mpt_gemm_advice(cc, &g);
            CHECK_EQ_I(mpt_cuda_gemm(other, &g, NULL), a.refused ? MPT_E_UNSUPPORTED : MPT_OK);
            CHECK_EQ_I(library_takes(other, &g), !a.refused);
            CU(cudaDeviceSynchronize());
        }
        mpt_cuda_destroy(other);
    }
    mpt_emu::controls() = saved;
}
#endif

/* Each test needs an open context and the device's compute capability, also when it is run alone. */
static mpt_status opened;

TEST(opens) { CHECK_EQ_I(opened, MPT_OK); }

static void run_all(void)
{
    mpt_gpu here = {};
    opened = mpt_cuda_gemm_open(gpu.cuda, NULL, 0);
    if (!opened) opened = mpt_cuda_gpu(gpu.cuda, &here);
    compute_capability = here.cc;
    RUN(opens);
    RUN(gpus);
    RUN(advice);
    RUN(layouts);
    RUN(odd_sizes_and_alignments);
    RUN(alpha_beta_epilogues);
    RUN(epilogues_of_training);
    RUN(beta_zero_does_not_read_d);
    RUN(tf32_rounds_and_f32_does_not);
    RUN(accumulates_in_f32);
    RUN(bias_of_each_alignment);
    RUN(batches);
    RUN(fast_accumulation);
    RUN(pointers_of_each_call);
    RUN(fp8);
    RUN(fp8_by_current_scaling);
    RUN(block_scaled);
    RUN(scales_of_both_kinds);
    RUN(block_scaled_refusals);
    RUN(refusals);
    RUN(fp8_refusals);
    RUN(scales_that_are_refused);
    RUN(open_and_order);
    RUN(capture);
#ifdef MPT_CUDA_EMU
    RUN(plans);
    RUN(failures_leak_nothing);
    RUN(no_wait_and_no_malloc_in_a_product);
    RUN(cublas_refuses);
    RUN(every_generation);
#endif
}

int main(int argc, char **argv)
{
    const int failed = cuda_main(argc, argv, run_all);
#ifdef MPT_CUDA_EMU
    if (mpt_emu::blas_outstanding()) {
        printf("FAIL: something of the library was not given back\n");
        return 1;
    }
#endif
    return failed;
}
