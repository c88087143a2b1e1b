/* A private copy of which nothing is used, and in C nothing of the GPU is there: no warning about that. */
#define MPT_STATIC
#include "mpt_cuda.h"
typedef int static_unused_is_not_empty;
