/* The implementation is requested after the headers were already included, first of mpt_half.h alone, then of
 * all: it must be emitted, and only once. */
#include "mpt.h"
#define MPT_HALF_IMPLEMENTATION
#include "mpt_half.h"
#include "mpt.h"
#define MPT_IMPLEMENTATION
#include "mpt_half.h"
#include "mpt.h"
#include "mpt.h"
#include "mpt_half.h"
