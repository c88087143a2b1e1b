/* user.h -- see user.c. */
#ifndef MPT_BENCH_USER_H
#define MPT_BENCH_USER_H
#include <stddef.h>
float user_dot(const float *a, const float *x, size_t n);
void  user_axpy(float *y, float a, const float *x, size_t n);
void  user_axpy_f64(double *y, double a, const double *x, size_t n);
void  user_momentum(float *w, float *m, float momentum, float factor, float a, const float *x, size_t n);
void  user_forward(float *y, const float *w, const float *x, size_t batch, size_t rows, size_t cols);
void  user_backward(float *dx, const float *w, const float *dy, size_t batch, size_t rows, size_t cols);
void  user_gradient(float *dw, const float *dy, const float *x, size_t batch, size_t rows, size_t cols);
#endif /* MPT_BENCH_USER_H */
