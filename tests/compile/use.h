/* The parts of the test program that several files define. C linkage, so that C and C++ objects mix. */
#ifndef USE_H
#define USE_H
#ifdef __cplusplus
extern "C" {
#endif
int use_half(void);
int use_mpt(void);
int use_cuda(void);
int use_emulated(void);
int use_static(void);
#ifdef __cplusplus
}
#endif
#endif
