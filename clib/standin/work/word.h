/* SPDX-License-Identifier: Apache-2.0 */
/* word.h: words of device memory, written and waited for. */
#ifndef DIVVY_STANDIN_WORD_H
#define DIVVY_STANDIN_WORD_H

#include "cuda/driver.h"

CUresult sd_words_run(const CUstreamBatchMemOpParams *list, unsigned int count, const struct sd_card *card);

#endif
