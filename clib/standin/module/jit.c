/* SPDX-License-Identifier: Apache-2.0 */
#include "jit.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct sd_jit sd_jit_read(unsigned int count, CUjit_option *options, void **values)
{
	struct sd_jit jit = { 0 };

	if (!options || !values)
		return jit;
	for (unsigned int i = 0; i < count; i++) {
		switch (options[i]) {
		case CU_JIT_MAX_REGISTERS:
			jit.wish.most = (uint32_t)(uintptr_t)values[i];
			break;
		case CU_JIT_THREADS_PER_BLOCK:
			jit.wish.threads = (uint32_t)(uintptr_t)values[i];
			jit.threads = &values[i];
			break;
		case CU_JIT_INFO_LOG_BUFFER:
			jit.info.text = values[i];
			break;
		case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
			jit.info.room = (uint32_t)(uintptr_t)values[i];
			jit.info.slot = &values[i];
			break;
		case CU_JIT_ERROR_LOG_BUFFER:
			jit.error.text = values[i];
			break;
		case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
			jit.error.room = (uint32_t)(uintptr_t)values[i];
			jit.error.slot = &values[i];
			break;
		case CU_JIT_WALL_TIME:
			jit.walltime = &values[i];
			break;
		default:
			break;
		}
	}
	return jit;
}

/* As with snprintf, the size tells what was written, without the NUL. */
static void write_log(const struct sd_jit_log *log, const char *text)
{
	size_t length = 0;

	if (log->text && log->room) {
		length = strnlen(text, log->room - 1);
		snprintf(log->text, log->room, "%s", text);
	}
	if (log->slot)
		*log->slot = (void *)(uintptr_t)length;
}

void sd_jit_tell(const struct sd_jit *jit, const char *error)
{
	write_log(&jit->info, "");
	write_log(&jit->error, error);
	if (jit->walltime)
		*jit->walltime = NULL; /* 0.0f */
}

void sd_jit_tell_threads(const struct sd_jit *jit, const struct sd_image *image)
{
	uint32_t threads = jit->wish.threads;

	for (size_t i = 0; i < image->entrycount; i++) {
		uint32_t most = sd_registers_threads(image->entries[i].registers);

		threads = most < threads ? most : threads;
	}
	if (jit->threads)
		*jit->threads = (void *)(uintptr_t)threads;
}
