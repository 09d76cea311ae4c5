/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

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
