/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel waits for a word that the host writes after the launch or, with an argument, that
 * the next kernel writes, in another stream: both launches are of one thread. With two arguments
 * the second launch comes when the first one's lease has ended.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
#define F(n) ((int (*)())dlsym(l, #n))
static const char P[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
".visible .entry w(.param .u64 a) { .reg .u64 %a; .reg .u32 %v; .reg .pred %p; ld.param.u64 %a,[a];\nL: ld.volatile.u32 %v,[%a]; setp.eq.u32 %p,%v,0; @%p bra L; ret; }\n"
".visible .entry s(.param .u64 a) { .reg .u64 %a; ld.param.u64 %a,[a]; st.volatile.u32 [%a],1; ret; }\n";
int main(int n, char **v) {
  void *l = dlopen("libcuda.so.1", RTLD_NOW), *c, *m, *w, *s, *s1, *s2; int d; volatile unsigned *h;
  alarm(10); F(cuInit)(0); F(cuDeviceGet)(&d, 0); F(cuDevicePrimaryCtxRetain)(&c, d); F(cuCtxSetCurrent)(c);
  F(cuModuleLoadData)(&m, P); F(cuModuleGetFunction)(&w, m, "w"); F(cuModuleGetFunction)(&s, m, "s");
  F(cuStreamCreate)(&s1, 1); F(cuStreamCreate)(&s2, 1); F(cuMemHostAlloc)(&h, (size_t)4096, 2u); *h = 0;
  void *a[] = {&h};
  puts("launch"); fflush(stdout);
  F(cuLaunchKernel)(w, 1, 1, 1, 1, 1, 1, 0, s1, a, (void **)0);
  if (n > 2) usleep(100000);
  if (n > 1) F(cuLaunchKernel)(s, 1, 1, 1, 1, 1, 1, 0, s2, a, (void **)0); else *h = 1;
  printf("done: %d\n", F(cuCtxSynchronize)());
}
