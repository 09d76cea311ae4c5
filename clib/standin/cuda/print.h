/* SPDX-License-Identifier: Apache-2.0 */
/* print.h: what kernels print comes out when the program waits for them. */
#ifndef DIVVY_STANDIN_PRINT_H
#define DIVVY_STANDIN_PRINT_H

#include <stddef.h>

void sd_print_add(const char *text, size_t size);
void sd_print_flush(void);

#endif
