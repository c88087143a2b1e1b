/* test_cuda_report.cu -- tests of mpt_cuda.h over many tensors and many ranks: range reports against
 * mpt_range_add, byte by byte, and mpt_cuda_combine against mpt_step_combine.
 *
 *     cc -O2 -I. -c tests/impl.c
 *     nvcc -std=c++17 -O2 -I. tests/test_cuda_report.cu tests/impl_cuda.cu impl.o -lcublasLt
 * or, without a GPU,
 *     c++ -x c++ -std=c++17 -O2 -DMPT_CUDA_EMU -Itests/emu -I. tests/test_cuda_report.cu tests/impl_cuda.cu \
 *         -x none impl.o
 *
 * --small is for ThreadSanitizer and the like: shorter tensors. */
#include "cuda.h"

#ifdef MPT_CUDA_EMU
#include <nccl.h>
#endif

#include <memory>

/* Every limit of every format, and the floats beside it. */
static const std::vector<uint32_t> &limits()
{
    static std::vector<uint32_t> all;
    static bool                  done = false;
    for (int f = 0; f < (int)MPT_FORMAT_COUNT && !done; f++) {
        auto r = std::make_unique<mpt_range>();
        if (mpt_range_init(r.get(), (mpt_format)f) != MPT_OK) continue;
        for (uint64_t limit : {r->least_kept, r->least_normal, r->least_overflow}) {
            const uint32_t u = mpti_f32_bits((float)mpti_f64_make(limit)) & 0x7fffffffu;
            for (uint32_t d = 0; d < 3; d++) all.push_back(u + d - 1u);
        }
    }
    done = true;
    return all;
}

/* n numbers in a format, on both sides; the device's copy begins `off` elements off its alignment. */
struct Numbers {
    mpt_format                 format;
    size_t                     n, off;
    std::vector<unsigned char> host;
    unsigned char             *memory = nullptr;

    Numbers(mpt_format f, size_t n_, size_t off_)
        : format(f), n(n_), off(off_ * element_size(f)), host(n * element_size(f))
    {
        for (size_t i = 0; i < n; i++) {
            uint32_t u = (uint32_t)mt_random();
            if (mt_random() % 4)                        /* near the range of f16 */
                u = (u & 0x807fffffu) | (uint32_t)(95 + mt_random() % 50) << 23;
            if (mt_random() % 16 == 0) u &= 0x80000000u;
            if (mt_random() % 4 == 0) u = (u & 0x80000000u) | limits()[mt_random() % limits().size()];
            if (f == MPT_F32) memcpy(&host[4 * i], &u, 4);
            else memcpy(&host[2 * i], (const char *)&u + 2 * (mt_random() % 2), 2);
        }
        CU(cudaMalloc((void **)&memory, host.size() + off));
        CU(cudaMemcpy(memory + off, host.data(), host.size(), cudaMemcpyHostToDevice));
    }
    ~Numbers() { CU(cudaFree(memory)); }
    Numbers(const Numbers &) = delete;
    Numbers &operator=(const Numbers &) = delete;

    /* counts each `every`-th group of eight */
    void count(mpt_range *r, size_t every) const
    {
        for (size_t i = 0; i < n; i += 8 * every)
            CHECK_EQ_I(mpt_range_add(r, format, &host[i * element_size(format)], n - i < 8 ? n - i : 8),
                       MPT_OK);
    }
};

static void compare(const mpt_cuda_ranges *ranges, size_t tensor, const mpt_range &want)
{
    auto got = std::make_unique<mpt_range>();
    memset((void *)got.get(), 0x5a, sizeof *got);
    STATUS(mpt_cuda_ranges_get_sync(gpu.cuda, ranges, tensor, got.get(), gpu.stream), MPT_OK);
    CHECK_EQ_U(got->count, want.count);
    CHECK_EQ_U(got->flushed, want.flushed);
    CHECK_EQ_U(got->overflow, want.overflow);
    CHECK(!memcmp(got.get(), &want, sizeof want));
}

static const size_t sizes[] = {0, 1, 9, 2047, 20000, 33000};

static void against(mpt_format format, mpt_format from, uint32_t every, bool many = false)
{
    std::vector<std::unique_ptr<Numbers>>   numbers;
    std::vector<std::unique_ptr<mpt_range>> want;
    std::vector<mpt_tensor>                 tensors;
    mpt_cuda_list                          *list = nullptr;
    mpt_cuda_ranges                        *ranges = nullptr;
    std::vector<size_t> all(sizes, sizes + COUNT_OF(sizes));
    if (many) {                     /* blocks with several chunks, of one tensor and of others */
        for (size_t i = 0; i < 70; i++) all.push_back(1 + i % 9);
        all.push_back((size_t)70 * 16384);
    }
    for (size_t n : all) {
        if (gpu.small && !many && n > 2047)
            continue;
        numbers.push_back(std::make_unique<Numbers>(from, n, n % 3));
        mpt_tensor t = mpt_tensor_grad_f32("t", NULL, n);
        t.grad = numbers.back()->memory + numbers.back()->off;
        t.grad_format = from;
        tensors.push_back(t);
        want.push_back(std::make_unique<mpt_range>());
        CHECK_EQ_I(mpt_range_init(want.back().get(), format), MPT_OK);
    }
    STATUS(mpt_cuda_list_create(gpu.cuda, &list, tensors.data(), tensors.size()), MPT_OK);
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, format), MPT_OK);
    for (int pass = 0; pass < 2; pass++) {              /* the second adds to the first */
        STATUS(mpt_cuda_ranges_add(gpu.cuda, ranges, MPT_CUDA_GRAD, every, gpu.stream), MPT_OK);
        for (size_t i = 0; i < want.size(); i++) {
            numbers[i]->count(want[i].get(), every);
            compare(ranges, i, *want[i]);
        }
    }
    /* an array that is missing adds nothing */
    STATUS(mpt_cuda_ranges_add(gpu.cuda, ranges, MPT_CUDA_PARAM, 1, gpu.stream), MPT_OK);
    for (size_t i = 0; i < want.size(); i++) compare(ranges, i, *want[i]);
    mpt_cuda_ranges_destroy(ranges);
    mpt_cuda_list_destroy(list);
}

TEST(every_format)
{
    for (int f = 0; f < (int)MPT_FORMAT_COUNT; f++)
        if (f != MPT_E8M0 && mpt_format_get((mpt_format)f)->sign_bits) against((mpt_format)f, MPT_F32, 1);
}

TEST(every_source)
{
    against(MPT_F16, MPT_F16, 1);
    against(MPT_F16, MPT_BF16, 1);
    against(MPT_E4M3, MPT_BF16, 1);
    against(MPT_BF16, MPT_F32, 1);
}

TEST(sampling)
{
    against(MPT_F16, MPT_F32, 3);
    against(MPT_F16, MPT_BF16, 16);
}

/* Blocks with several chunks. On a large GPU each has one. */
TEST(few_blocks)
{
#ifdef MPT_CUDA_EMU
    const mpt_emu::Controls saved = mpt_emu::controls();
    mpt_cuda *const         cuda = gpu.cuda;
    mpt_emu::controls().sms = 1;
    STATUS(mpt_cuda_create(&gpu.cuda, 0), MPT_OK);
#endif
    for (uint32_t every : {1u, 2047u, 2048u, 2049u, 4096u, 0xffffffffu})
        if (every == 1u || !gpu.small) against(MPT_F16, MPT_BF16, every, true);
#ifdef MPT_CUDA_EMU
    mpt_cuda_destroy(gpu.cuda);
    gpu.cuda = cuda;
    mpt_emu::controls() = saved;
#endif
}

/* Each of the three arrays of a tensor. */
TEST(arrays)
{
    Numbers          grad(MPT_F16, 100, 0), param(MPT_BF16, 100, 0), master(MPT_F32, 100, 0);
    const Numbers   *const arrays[] = {&grad, &param, &master};
    mpt_tensor       t = mpt_tensor_grad_f32("t", NULL, 100);
    mpt_cuda_list   *list = nullptr;
    t.grad = grad.memory;
    t.grad_format = MPT_F16;
    t.param = param.memory;
    t.param_format = MPT_BF16;
    t.master = (float *)master.memory;
    STATUS(mpt_cuda_list_create(gpu.cuda, &list, &t, 1), MPT_OK);
    for (int which = 0; which < 3; which++) {
        mpt_cuda_ranges *ranges = nullptr;
        auto             want = std::make_unique<mpt_range>();
        CHECK_EQ_I(mpt_range_init(want.get(), MPT_F16), MPT_OK);
        arrays[which]->count(want.get(), 1);
        STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_F16), MPT_OK);
        STATUS(mpt_cuda_ranges_add(gpu.cuda, ranges, (mpt_cuda_array)which, 1, gpu.stream), MPT_OK);
        compare(ranges, 0, *want);
        mpt_cuda_ranges_destroy(ranges);
    }
    mpt_cuda_list_destroy(list);
}

TEST(bad_arguments)
{
    Numbers          grad(MPT_F16, 100, 0);
    mpt_tensor       t = mpt_tensor_grad_f32("t", NULL, 100);
    mpt_cuda_list   *list = nullptr;
    mpt_cuda_ranges *ranges = nullptr;
    auto             r = std::make_unique<mpt_range>();
    t.grad = grad.memory;
    t.grad_format = MPT_F16;
    STATUS(mpt_cuda_list_create(gpu.cuda, &list, &t, 1), MPT_OK);
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_E8M0), MPT_E_UNSUPPORTED);
    CHECK(!ranges);
    STATUS(mpt_cuda_ranges_create(gpu.cuda, NULL, list, MPT_F16), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, NULL, MPT_F16), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_create(NULL, &ranges, list, MPT_F16), MPT_E_ARG);
#ifdef MPT_CUDA_EMU
    mpt_emu::controls().fail_malloc = 1;
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_F16), MPT_E_MEMORY);
    mpt_emu::controls().fail_copy = 1;
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_F16), MPT_E_CUDA);
    CHECK(!ranges);
#endif
    STATUS(mpt_cuda_ranges_create(gpu.cuda, &ranges, list, MPT_F16), MPT_OK);
    STATUS(mpt_cuda_ranges_add(gpu.cuda, ranges, MPT_CUDA_GRAD, 0, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_add(gpu.cuda, ranges, (mpt_cuda_array)3, 1, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_add(gpu.cuda, NULL, MPT_CUDA_GRAD, 1, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_get_sync(gpu.cuda, ranges, 1, r.get(), gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_ranges_get_sync(gpu.cuda, ranges, 0, NULL, gpu.stream), MPT_E_ARG);
    mpt_cuda_ranges_destroy(ranges);
    mpt_cuda_ranges_destroy(NULL);
    mpt_cuda_list_destroy(list);
}

// many ranks --------------------------------------------------------------------------------------
/* One of many ranks, run one by one: with a gradient of its own, or a part of one from `first` on. */
struct Rank {
    Numbers         grad;
    double          sums[4];
    mpt_tensor      host, device;
    mpt_scaler      scaler;
    mpt_step        step;
    mpt_cuda_list  *list = nullptr;
    mpt_cuda_state *state = nullptr;

    Rank(size_t n, bool bad, size_t first = 0, size_t whole = 0)
        : grad(MPT_F16, n, 0), sums(), host(mpt_tensor_grad_f32("t", NULL, n)), scaler(), step()
    {
        const uint16_t inf = 0x7c00u;
        for (size_t i = 0; i < n; i++) grad.host[2 * i + 1] &= 0xbb;        /* finite */
        if (bad) memcpy(&grad.host[2 * (n / 2)], &inf, 2);
        CU(cudaMemcpy(grad.memory, grad.host.data(), 2 * n, cudaMemcpyHostToDevice));
        host.grad_format = MPT_F16;
        host.first = first;
        host.whole = whole;
        device = host;
        host.sums = whole ? sums : nullptr;
        host.grad = grad.host.data();
        device.grad = grad.memory;
        CHECK_EQ_I(mpt_scaler_init(&scaler, NULL), MPT_OK);
        STATUS(mpt_cuda_list_create(gpu.cuda, &list, &device, 1), MPT_OK);
        STATUS(mpt_cuda_state_create(gpu.cuda, &state, &scaler, 0.1f), MPT_OK);
        (void)mpt_scaler_scale(&scaler, 1.0f);
        CHECK_EQ_I(mpt_check(&scaler, &step, &host, 1, NULL), MPT_OK);
        STATUS(mpt_cuda_scaler_scale_n(gpu.cuda, state, MPT_F32, NULL, 0, gpu.stream), MPT_OK);
        STATUS(mpt_cuda_check(gpu.cuda, list, state, gpu.stream), MPT_OK);
    }
    ~Rank()
    {
        mpt_cuda_list_destroy(list);
        mpt_cuda_state_destroy(state);
    }
    Rank(const Rank &) = delete;
    Rank &operator=(const Rank &) = delete;

    void compare()
    {
        mpt_cuda_state got;
        CU(cudaMemcpy((void *)&got, state, sizeof got, cudaMemcpyDeviceToHost));
        CHECK(!memcmp(&got.step, &step, sizeof step));
        CHECK(!memcmp(&got.scaler, &scaler, sizeof scaler));
        CHECK_EQ_U(got.misuse, 0u);
    }
};

/* A reduction over one rank: the sum is its own values. */
static int alone(void *, double *, size_t) { return 0; }
static int alone_on_device(void *, double *, size_t n, mpt_stream) { return n != 6; }
#ifdef MPT_CUDA_EMU
static int by_nccl(void *, double *values, size_t n, mpt_stream stream)
{
    static mpt_emu::World world = {1, {}};
    static ncclComm       comm = {&world};
    return mpt_cuda_nccl_reduce(&comm, values, n, stream);
}
#else
#define by_nccl alone_on_device
#endif
static int broken(void *, double *, size_t, mpt_stream) { return 1; }

TEST(combine_one_rank)
{
    for (int bad = 0; bad < 2; bad++) {
        Rank r(3000, bad != 0);
        CHECK_EQ_I(mpt_step_combine(&r.scaler, &r.step, &r.host, 1, alone, NULL), MPT_OK);
        STATUS(mpt_cuda_combine(gpu.cuda, r.list, r.state, bad ? by_nccl : alone_on_device, NULL, gpu.stream),
               MPT_OK);
        CHECK_EQ_U(r.step.found_inf, bad);
        r.compare();
    }
}

static int sees_refusal(void *user, double *values, size_t, mpt_stream stream)
{
    CU(cudaStreamSynchronize(stream));
    CU(cudaMemcpy(user, values + 4, sizeof *values, cudaMemcpyDeviceToHost));
    return 0;
}

TEST(combine_refusals)
{
    Rank far(100, false, (size_t)280 * 16384, (size_t)300 * 16384);  /* beyond the 256 slots */
    const auto alone = [](void *, double *, size_t) { return 0; };
    const auto alone_there = [](void *, double *, size_t, mpt_stream) { return 0; };
    CHECK_EQ_I(mpt_step_combine(&far.scaler, &far.step, &far.host, 1, alone, NULL), MPT_OK);
    STATUS(mpt_cuda_combine(gpu.cuda, far.list, far.state, alone_there, NULL, gpu.stream), MPT_OK);
    far.compare();
    Rank           r(100, false);
    mpt_cuda_state got;
    STATUS(mpt_cuda_combine(gpu.cuda, NULL, r.state, alone_on_device, NULL, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_combine(gpu.cuda, r.list, NULL, alone_on_device, NULL, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_combine(gpu.cuda, r.list, r.state, NULL, NULL, gpu.stream), MPT_E_ARG);
    STATUS(mpt_cuda_combine(gpu.cuda, r.list, r.state, broken, NULL, gpu.stream), MPT_E_DATA);
    STATUS(mpt_cuda_combine(gpu.cuda, r.list, r.state, mpt_cuda_nccl_reduce, NULL, gpu.stream), MPT_E_DATA);
    double told = 0.0;
    STATUS(mpt_cuda_scaler_update(gpu.cuda, r.state, gpu.stream), MPT_OK);
    STATUS(mpt_cuda_combine(gpu.cuda, r.list, r.state, sees_refusal, &told, gpu.stream), MPT_OK);
    CHECK(told == 1.0);                 /* the other ranks hear of it */
    CU(cudaStreamSynchronize(gpu.stream));
    CU(cudaMemcpy((void *)&got, r.state, sizeof got, cudaMemcpyDeviceToHost));
    CHECK_EQ_U(got.misuse, 1u);         /* after the update: too late */
    CHECK_EQ_U(got.scaler.found_inf, 0u);
}

static int refused_elsewhere(void *, double *values, size_t, mpt_stream stream)
{
    const double one = 1.0;
    CU(cudaStreamSynchronize(stream));
    CU(cudaMemcpy(values + 4, &one, sizeof one, cudaMemcpyHostToDevice));
    return 0;
}

/* A rank may not step or clip its parts alone, nor after another rank's check was refused. */
TEST(parts_wait_for_the_other_ranks)
{
    Rank           r(16384, false, 0, 40000), late(16384, false, 0, 40000);
    mpt_tensor     t[2] = {r.device, r.device};
    mpt_cuda_list *mixed = NULL;
    mpt_cuda_state got;
    CHECK_EQ_U(r.step.stage, MPT_STAGE_CHECKED | MPT_STAGE_PART);
    r.compare();
    STATUS(mpt_cuda_clip(gpu.cuda, r.state, 1.0f, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CU(cudaMemcpy((void *)&got, r.state, sizeof got, cudaMemcpyDeviceToHost));
    CHECK_EQ_U(got.misuse, 1u);
    STATUS(mpt_cuda_combine(gpu.cuda, late.list, late.state, refused_elsewhere, NULL, gpu.stream), MPT_OK);
    STATUS(mpt_cuda_scaler_update(gpu.cuda, late.state, gpu.stream), MPT_OK);
    CU(cudaStreamSynchronize(gpu.stream));
    CU(cudaMemcpy((void *)&got, late.state, sizeof got, cudaMemcpyDeviceToHost));
    CHECK(got.misuse == 2u && got.step.found_inf && got.scaler.updates == late.scaler.updates + 1u);
    t[1].whole = t[1].first = 0;
    STATUS(mpt_cuda_list_create(gpu.cuda, &mixed, t, 2), MPT_OK);
    STATUS(mpt_cuda_combine(gpu.cuda, mixed, r.state, alone_on_device, NULL, gpu.stream), MPT_E_ARG);
    mpt_cuda_list_destroy(mixed);
}

/* A reduction over ranks run one after the other: one round adds up, the next one (tell) returns the sums. */
struct Sums {
    std::vector<double> sum;
    size_t              at;             /* where the next values of a rank are */
    bool                tell;
};

static int sum_on_host(void *user, double *values, size_t n)
{
    Sums *const s = (Sums *)user;
    if (s->sum.size() < s->at + n) s->sum.resize(s->at + n);
    for (size_t i = 0; i < n; i++)
        if (s->tell)
            values[i] = s->sum[s->at + i];
        else
            s->sum[s->at + i] += values[i];
    s->at += n;
    return 0;
}

static int sum_on_device(void *user, double *values, size_t n, mpt_stream stream)
{
    Sums *const         s = (Sums *)user;
    std::vector<double> here(n);
    CU(cudaStreamSynchronize(stream));
    CU(cudaMemcpy(here.data(), values, n * sizeof *values, cudaMemcpyDeviceToHost));
    s->at = 0;
    (void)sum_on_host(user, here.data(), n);
    CU(cudaMemcpy(values, here.data(), n * sizeof *values, cudaMemcpyHostToDevice));
    return 0;
}

/* Ranks with gradients of their own, or with parts of one: device and host combine them to the same bytes. */
TEST(combine_three_ranks)
{
    for (int bad = -1; bad < 3; bad++)
        for (int parts = 0; parts < 2; parts++) {
            std::vector<std::unique_ptr<Rank>> ranks;
            mpt_cuda_state                     before;
            static const size_t cut[4] = {0, 16384, 49152, 57000};
            Sums         host = {{}, 0, false}, device = host;
            for (int i = 0; i < 3; i++) {
                const size_t n = parts ? cut[i + 1] - cut[i] : (size_t)(1000 * (i + 1));
                ranks.push_back(std::make_unique<Rank>(n, i == bad, parts ? cut[i] : 0, parts ? cut[3] : 0));
            }
            CU(cudaDeviceSynchronize());
            for (int round = 0; round < 2; round++)
                for (size_t i = 0; i < 3; i++) {
                    Rank *const r = ranks[i].get();
                    mpt_scaler  scaler = r->scaler;
                    mpt_step    step = r->step;
                    host.tell = device.tell = round != 0;
                    host.at = 0;
                    CU(cudaMemcpy(&before, r->state, sizeof before, cudaMemcpyDeviceToHost));
                    CHECK_EQ_I(mpt_step_combine(&scaler, &step, &r->host, 1, sum_on_host, &host), MPT_OK);
                    STATUS(mpt_cuda_combine(gpu.cuda, r->list, r->state, sum_on_device, &device, gpu.stream),
                           MPT_OK);
                    CU(cudaStreamSynchronize(gpu.stream));
                    if (!round) {
                        CU(cudaMemcpy(r->state, &before, sizeof before, cudaMemcpyHostToDevice));
                        continue;
                    }
                    r->scaler = scaler;
                    r->step = step;
                    CHECK_EQ_U(step.found_inf, bad >= 0);
                    r->compare();
                }
        }
}

static void run_all(void)
{
    RUN(every_format);
    RUN(every_source);
    RUN(sampling);
    RUN(few_blocks);
    RUN(arrays);
    RUN(bad_arguments);
    RUN(combine_one_rank);
    RUN(combine_refusals);
    RUN(parts_wait_for_the_other_ranks);
    RUN(combine_three_ranks);
}

int main(int argc, char **argv) { return cuda_main(argc, argv, run_all); }
