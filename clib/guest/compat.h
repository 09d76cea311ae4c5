/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compat.h: a library of ours is mounted into users' images and must load with
 * glibc 2.17. Functions that newer libraries moved into libc.so.6 under a new
 * version are asked for under their first one. Not in FRONT_PLAIN builds (the
 * test programs), where the sanitisers want to see the calls.
 */
#ifndef GUEST_COMPAT_H
#define GUEST_COMPAT_H

#ifndef FRONT_PLAIN
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dlerror, dlerror@GLIBC_2.2.5");
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_detach, pthread_detach@GLIBC_2.2.5");
__asm__(".symver pthread_attr_setstacksize, pthread_attr_setstacksize@GLIBC_2.2.5");
__asm__(".symver pthread_sigmask, pthread_sigmask@GLIBC_2.2.5");
__asm__(".symver pthread_condattr_setclock, pthread_condattr_setclock@GLIBC_2.3.3");
__asm__(".symver pthread_key_create, pthread_key_create@GLIBC_2.2.5");
__asm__(".symver pthread_setspecific, pthread_setspecific@GLIBC_2.2.5");
#endif

#endif
