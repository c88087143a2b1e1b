/* convert.h -- the functions of convert.c that the fuzz target tests/fuzz/fuzz_inspect.c calls. */
#ifndef INSPECT_CONVERT_H
#define INSPECT_CONVERT_H

#include "inspect.h"

/* How one tensor is converted, and, once it is written, what was lost. */
typedef struct step {
    const tensor *t;
    mpt_format    to;               /* equal to the tensor's own format: it is copied */
    int           unfit;            /* the tensor does not fit, or only with a scale that was not asked for */
    int           failed;           /* errno of the first write that failed */
    int           log2_scale;
    int           earlier;          /* log2 of the scale of an earlier conversion */
    uint64_t      flushed, rounded, saturated;
    double        signal, noise;    /* sums of squares */
} step;

/* Returns one step for each tensor, which the caller frees; NULL with an error text if one is impossible. */
step *convert_plan(model *m, const options *o, char *error);
int   convert_write(FILE *out, model *m, step *steps, const options *o, char *error);

#endif /* INSPECT_CONVERT_H */
