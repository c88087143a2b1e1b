/* Headers included before ours may define short macros: <windows.h>, <complex.h>, careless programs. Also
 * compiled after a macro for every word in capitals that our headers use: CONST is one of windows.h's. */
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define I  (0 + 1)
#define E  2.718
#define near
#define far
#define small char
#define hyper long long
#define TRUE 1
#define BLOCK 7
#define SIMD 9
#define STATIC static
#define IMPLEMENTATION
#define ARRAY(x) x
#define CHECK(x) x
#define MPT_IMPLEMENTATION
#include "mpt.h"
