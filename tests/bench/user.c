/* user.c -- the loops of a training program before it uses mpt, in FP32, compiled with the flags that such
 * programs use: -O3 -march=native -ffast-math. bench_rows.c compares them with ours, compiled at -O2. */
#include "user.h"

float user_dot(const float *a, const float *x, size_t n)
{
    float  sum = 0.0f;
    size_t i;
    for (i = 0; i < n; i++) sum += a[i] * x[i];
    return sum;
}

void user_axpy(float *y, float a, const float *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) y[i] += a * x[i];
}

void user_axpy_f64(double *y, double a, const double *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) y[i] += a * x[i];
}

void user_momentum(float *w, float *m, float momentum, float factor, float a, const float *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        m[i] = momentum * m[i] + factor * x[i];
        w[i] += a * m[i];
    }
}

/* W is rows x cols; x and y hold `batch` vectors one after another. */
void user_forward(float *y, const float *w, const float *x, size_t batch, size_t rows, size_t cols)
{
    size_t b, r, c;
    for (b = 0; b < batch; b++)
        for (r = 0; r < rows; r++) {
            float sum = 0.0f;
            for (c = 0; c < cols; c++) sum += w[r * cols + c] * x[b * cols + c];
            y[b * rows + r] = sum;
        }
}

void user_backward(float *dx, const float *w, const float *dy, size_t batch, size_t rows, size_t cols)
{
    size_t b, r, c;
    for (b = 0; b < batch; b++)
        for (r = 0; r < rows; r++)
            for (c = 0; c < cols; c++) dx[b * cols + c] += dy[b * rows + r] * w[r * cols + c];
}

void user_gradient(float *dw, const float *dy, const float *x, size_t batch, size_t rows, size_t cols)
{
    size_t b, r, c;
    for (b = 0; b < batch; b++)
        for (r = 0; r < rows; r++)
            for (c = 0; c < cols; c++) dw[r * cols + c] += dy[b * rows + r] * x[b * cols + c];
}
