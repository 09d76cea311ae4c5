/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define LINE_BYTES 512
#define PREFIX "divvy: "

void front_log(const char *format, ...)
{
	char line[LINE_BYTES] = PREFIX;
	size_t start = sizeof(PREFIX) - 1;
	size_t length;
	va_list arguments;
	int written;

	va_start(arguments, format);
	written = vsnprintf(line + start, sizeof(line) - start - 1, format, arguments);
	va_end(arguments);
	if (written < 0)
		return;
	length = start + (size_t)written;
	if (length > sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	/* one write, so that lines of several processes do not mix; nobody to tell if it fails */
	if (write(STDERR_FILENO, line, length) < 0)
		return;
}

void front_log_detached(const char *path, int rc, const struct divvy_message *answer)
{
	if (rc == -ECONNREFUSED && answer->type == DIVVY_REFUSED && answer->status == DIVVY_STATUS_VERSION)
		front_log("library and agent speak different versions (library %u, agent %u): restart what is older", DIVVY_WIRE_VERSION,
			  answer->version);
	else if (rc == -ECONNREFUSED && answer->type == DIVVY_REFUSED)
		front_log("the agent refused this process: %s", answer->text);
	else if (rc == -ENOENT || rc == -ECONNREFUSED)
		front_log("no agent at %s: CUDA is not available", path);
	else if (rc == -ETIMEDOUT || rc == -EPIPE)
		front_log("the agent at %s does not answer: CUDA is not available", path);
	else if (rc == -EMFILE || rc == -ENFILE)
		front_log("attach to %s: too many open files: CUDA is not available", path);
	else if (rc == -EPROTO)
		front_log("the agent at %s speaks another version than this library (%u): CUDA is not available", path,
			  DIVVY_WIRE_VERSION);
	else
		front_log("attach to %s: error %d: CUDA is not available", path, -rc);
}
