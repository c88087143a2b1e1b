/* A private copy that is not used, and without GPU functions, as this is C: there must be no warning. */
#define MPT_STATIC
#include "mpt_cuda.h"
typedef int static_unused_is_not_empty;
