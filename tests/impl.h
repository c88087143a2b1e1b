/* impl.h -- for tests and benchmarks that link to the one implementation (impl.c): what they may turn there,
 * and what they may see of its inside. A test of more than that implements the headers itself, as MPT_STATIC,
 * and says so. */
#ifndef IMPL_H
#define IMPL_H

#include <stddef.h>
#include <stdint.h>

enum { PATHS = 5 };                 /* portable, then as MPT_SIMD numbers them */
extern int    last_path;            /* the headers may use the paths up to this one; at first all */
extern size_t around_bytes;         /* larger arrays are stored around the cache; at first 2^25 */

/* The path that array functions take now. */
int path_taken(void);

/* The sum of the squares of x[0], x[1] ... x[n - 1], where x is repeated with a period, on the tree of the
 * optimizers' norms. Both are multiples of 256. */
double sum_of_squares_on_the_tree(const float *x, size_t period, size_t n);

/* Make the checksum of a checkpoint right again. */
void checkpoint_sum_again(unsigned char *checkpoint, size_t bytes);

#endif
