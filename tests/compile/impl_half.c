/* mpt_half.h alone, for those who use nothing else. Including mpt.h too must not emit more. */
#define MPT_HALF_IMPLEMENTATION
#include "mpt_half.h"
#include "mpt.h"
