/* impl.c -- the implementation that tests and benchmarks link to: compiled once per compiler and flags, not
 * once per test. Valid C99 and C++17. */
#include "impl.h"

/* gcc for Windows must stay below AVX2, which the header sees to. */
#ifndef _WIN32
#define MPTI_LAST_PATH last_path
#endif
#define MPTI_AROUND_BYTES around_bytes
#define MPT_IMPLEMENTATION
#include "mpt.h"

int    last_path = PATHS - 1;
size_t around_bytes = (size_t)32 << 20;

int path_taken(void) { return mpti_path(); }

double sum_of_squares_on_the_tree(const float *x, size_t period, size_t n)
{
    mpti_norms norms;
    size_t     i;
    mpti_norms_open(&norms, n);
    for (i = 0; i < n; i += 256)
        mpti_norms_add(&norms, x + i % period, x + i % period, i, n);
    return mpti_pair_sum(norms.of[0].slot, MPTI_SLOTS);
}

void checkpoint_sum_again(unsigned char *checkpoint, size_t bytes)
{
    const uint64_t sum = mpti_state_checksum(checkpoint, bytes - 8u, checkpoint[8]);
    mpti_copy_words(checkpoint + bytes - 8u, &sum, 1, 8u);
}
