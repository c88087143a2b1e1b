/* impl.h -- settings and internal functions of the implementation in impl.c, for the tests and benchmarks
 * that link to it. A test that needs other internal functions compiles the headers itself, with MPT_STATIC,
 * and says so. */
#ifndef IMPL_H
#define IMPL_H

#include <stddef.h>
#include <stdint.h>

enum { PATHS = 5 };                 /* paths (instruction sets) 0 to 4, numbered as in MPT_SIMD */
extern int    last_path;            /* the highest path that the headers may use; at first 4 */
extern size_t around_bytes;         /* larger arrays use non-temporal stores; at first 2^25 */

/* A loop over the paths that this processor has, each once. After it the caller sets last_path again. */
#define ON_EACH_PATH for (last_path = PATHS - 1; last_path >= 0; last_path = path_taken() - 1)

/* The path that array functions take on this processor with this last_path. */
int path_taken(void);

/* The sum of the squares of x[0] to x[n - 1], where x repeats after `period` elements, in the order (a tree
 * of pairs) in which optimizers sum norms. `period` and n are multiples of 256. */
double sum_of_squares_on_the_tree(const float *x, size_t period, size_t n);

/* Store the right checksum in a checkpoint that a test has changed. */
void checkpoint_sum_again(unsigned char *checkpoint, size_t bytes);

#endif
