/* The one file of a program that has the implementation. */
#define MPT_IMPLEMENTATION
#include "mpt.h"
