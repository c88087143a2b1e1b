/* The one file that holds everything. */
#define MPT_IMPLEMENTATION
#include "mpt.h"
