/* SPDX-License-Identifier: Apache-2.0 */
/* visible.h: which cards CUDA_VISIBLE_DEVICES leaves, in its order. */
#ifndef DIVVY_STANDIN_VISIBLE_H
#define DIVVY_STANDIN_VISIBLE_H

#include <stdint.h>

unsigned int sd_visible(unsigned int cards, uint32_t *visible, unsigned int room);

#endif
