/* A private copy of which nothing is used: no warning about that. */
#define MPT_STATIC
#include "mpt.h"
typedef int static_unused_is_not_empty;
