/* The implementation of mpt_half.h alone. Including mpt.h too must not add functions. */
#define MPT_HALF_IMPLEMENTATION
#include "mpt_half.h"
#include "mpt.h"
