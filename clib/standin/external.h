/* SPDX-License-Identifier: Apache-2.0 */
/* external.h: memory imported by descriptor (cuImportExternalMemory). */
#ifndef DIVVY_STANDIN_EXTERNAL_H
#define DIVVY_STANDIN_EXTERNAL_H

#include "context.h"

struct sd_memory;

void sd_external_close(struct sd_memory *memory);

#endif
