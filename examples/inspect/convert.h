/* convert.h -- the parts of convert.c that the fuzz target calls one by one. */
#ifndef INSPECT_CONVERT_H
#define INSPECT_CONVERT_H

#include "inspect.h"

/* What happens to one tensor, and, when it is written, what was lost. */
typedef struct step {
    const tensor *t;
    mpt_format    to;               /* the tensor's own format: copied */
    int           unfit;            /* more than the tolerated share is lost */
    int           failed;           /* errno of the first write that failed */
    int           log2_scale;
    int           earlier;          /* log2 of the scale that the values already wear */
    uint64_t      flushed, rounded, saturated;
    double        signal, noise;    /* sums of squares */
} step;

/* One step for each tensor, to be freed; NULL with an error. */
step *convert_plan(model *m, const options *o, char *error);
int   convert_write(FILE *out, model *m, step *steps, const options *o, char *error);

#endif /* INSPECT_CONVERT_H */
