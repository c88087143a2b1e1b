/* pool.h -- a pool of threads for tests, through MPT_PARALLEL_FOR: as many as POOL_THREADS in the environment
 * says (1), in the order that POOL_ORDER says: "forward", "reverse", "shuffled", or "static", where each
 * thread has a run of neighbours. Included before the headers: -include tests/pool.h. */
#ifndef POOL_H
#define POOL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
void   pool_for(size_t count, void (*body)(void *, size_t), void *context);
size_t pool_calls(void);            /* of pool_for, so far */
extern size_t fast_part;            /* what the headers cut passes into at least: at first 16384 elements */
#ifdef __cplusplus
}
#endif
#define MPTI_FAST_PART fast_part
#ifndef MPT_USE_OPENMP
#define MPT_PARALLEL_FOR(count, body, context) pool_for(count, body, context)
#endif

#endif
