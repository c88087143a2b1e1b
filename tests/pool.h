/* pool.h -- a thread pool for tests, through MPT_PARALLEL_FOR. The environment sets the number of threads
 * (POOL_THREADS, default 1) and the order of the bodies (POOL_ORDER): "forward", "reverse", "shuffled", or
 * "static", where each thread runs neighbouring bodies. Compile with -include tests/pool.h. */
#ifndef POOL_H
#define POOL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
void   pool_for(size_t count, void (*body)(void *, size_t), void *context);
size_t pool_calls(void);            /* number of calls of pool_for so far, without nested ones */
extern size_t fast_part;            /* least elements of a part of a fast pass; at first 16384 */
#ifdef __cplusplus
}
#endif
#define MPTI_FAST_PART fast_part
#ifndef MPT_USE_OPENMP
#define MPT_PARALLEL_FOR(count, body, context) pool_for(count, body, context)
#endif

#endif
