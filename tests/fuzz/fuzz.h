/* fuzz.h -- shared by the fuzz targets, which link to tests/impl.c. */
#include "mpt.h"
#include <stdio.h>
#include <stdlib.h>

/* A fuzzer reports abort() as a crash; the printed line tells its readers why. */
#define must(claim) \
    ((claim) ? (void)0 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim), abort()))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
