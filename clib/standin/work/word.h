/* SPDX-License-Identifier: Apache-2.0 */
/* word.h: words of device memory, written and waited for. */
#ifndef DIVVY_STANDIN_WORD_H
#define DIVVY_STANDIN_WORD_H

#include "cuda/driver.h"

/* Whether there are such operations and words. */
CUresult sd_words_check(const CUstreamBatchMemOpParams *list, unsigned int count, const struct sd_card *card);
/* Does those that are not done, as far as words are there: CUDA_ERROR_NOT_READY where one
 * has to be waited for. */
CUresult sd_words_run(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int *done, const struct sd_card *card);

#endif
