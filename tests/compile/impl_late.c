/* The implementation asked for after the headers were included already, and then once more: it is
 * emitted, and only once. First the half alone, as a file might that grew over time. */
#include "mpt.h"
#define MPT_HALF_IMPLEMENTATION
#include "mpt_half.h"
#include "mpt.h"
#define MPT_IMPLEMENTATION
#include "mpt_half.h"
#include "mpt.h"
#include "mpt.h"
#include "mpt_half.h"
