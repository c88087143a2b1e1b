/* impl.c -- the implementation of mpt.h and mpt_half.h that tests and benchmarks link to, so that it is
 * compiled once for all of them. Valid C99 and C++17. */
#include "impl.h"

/* On Windows the header chooses the last path: gcc must stay below AVX2 there. */
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
    static double   lane[2][MPTI_LANES];
    mpt_tensor      t = mpt_tensor_grad_f32("x", NULL, n);
    mpti_along_turn turn;
    mpti_norms      norms;
    mpti_piece      piece;
    size_t          i;
    memset(&turn, 0, sizeof turn);
    memset(&norms, 0, sizeof norms);
    turn.t = &t, turn.norms = &norms, turn.lane = lane;
    for (i = 0; i < n; i += MPTI_TILE) {
        mpti_norms_add(&turn, x + i % period, x + i % period);
        piece.chunk = i / MPTI_CHUNK, piece.first = piece.chunk * MPTI_CHUNK, piece.end = turn.first;
        if (piece.end % MPTI_CHUNK == 0 || piece.end >= n)
            mpti_norms_then(&turn, &piece);
    }
    return mpti_pair_sum(norms.slot[0], MPTI_SLOTS);
}

void checkpoint_sum_again(unsigned char *checkpoint, size_t bytes)
{
    const uint64_t sum = mpti_state_checksum(checkpoint, bytes - 8u, checkpoint[8]);
    mpti_copy_words(checkpoint + bytes - 8u, &sum, 1, 8u);
}
