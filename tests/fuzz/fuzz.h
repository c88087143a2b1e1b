/* fuzz.h -- what the targets share. They link to tests/impl.c. */
#include "mpt.h"
#include <stdio.h>
#include <stdlib.h>

/* A fuzzer takes abort() for a crash; the line is for who reads about it. */
#define must(claim) \
    ((claim) ? (void)0 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim), abort()))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
