/* SPDX-License-Identifier: Apache-2.0 */
/* builtin.c: functions that exist without PTX: vprintf and __assertfail. */
#include <stdio.h>
#include <string.h>

#include "machine.h"

enum { TEXT = 8192, SPECIFICATION = 64, STRING = 1024 };

/* Argument i of a lane, of so many bytes at most 8. */
static uint64_t argument(struct ptx_warp *warp, const struct ptx_op *op, uint32_t i, uint32_t lane)
{
	const struct ptx_move *move = &op->site->in.list[i];
	uint64_t value = 0;

	if (i >= op->site->in.count)
		return 0;
	if (move->fromcolumn)
		return ptx_get(ptx_column(warp->frame, move->from), move->width, lane);
	memcpy(&value, warp->local + lane * warp->localstride + warp->frame->local + move->from,
	       move->bytes < 8 ? move->bytes : 8);
	return value;
}

static void answer(struct ptx_warp *warp, const struct ptx_op *op, uint32_t lane, uint64_t value)
{
	if (!op->site->out.count)
		return;
	const struct ptx_move *move = &op->site->out.list[0];

	if (move->tocolumn)
		ptx_put(warp->frame->columns + move->to, move->width, lane, value);
	else
		memcpy(warp->local + lane * warp->localstride + warp->frame->local + move->to, &value,
		       move->bytes < 8 ? move->bytes : 8);
}

/* A string of the kernel's, cut to fit; false after a fault. */
static bool string_at(struct ptx_warp *warp, uint32_t lane, uint64_t address, char *text, size_t room)
{
	size_t i = 0;

	for (; i + 1 < room; i++) {
		const unsigned char *byte = ptx_reach(warp, lane, address + i, 1, false);

		if (!byte)
			return false;
		if (!*byte)
			break;
		text[i] = (char)*byte;
	}
	text[i] = '\0';
	return true;
}

struct out {
	char text[TEXT];
	size_t used;
};

static void append(struct out *out, const char *text, size_t size)
{
	if (size > sizeof(out->text) - out->used)
		size = sizeof(out->text) - out->used;
	memcpy(out->text + out->used, text, size);
	out->used += size;
}

/* The next argument from the list, which aligns each to its size. */
static bool next(struct ptx_warp *warp, uint32_t lane, uint64_t list, uint64_t *offset, uint32_t bytes, uint64_t *value)
{
	uint64_t at = (*offset + bytes - 1) / bytes * bytes;
	const unsigned char *from = ptx_reach(warp, lane, list + at, bytes, false);

	if (!from)
		return false;
	*value = 0;
	memcpy(value, from, bytes);
	*offset = at + bytes;
	return true;
}

/* One %: flags, width, precision, size, conversion. Nothing of it goes to the
 * host's printf unchecked: it is built anew from what is allowed. */
static bool specification(struct ptx_warp *warp, uint32_t lane, const char **format, uint64_t list, uint64_t *offset,
			  struct out *out)
{
	char built[SPECIFICATION] = "%";
	char text[STRING + 512];
	size_t length = 1;
	const char *at = *format;
	int longs = 0;
	uint64_t value = 0;
	int written = 0;
	unsigned int numbers = 0;

	while (*at && strchr("-+ #0", *at) && length < 8)
		built[length++] = *at++;
	for (int part = 0; part < 2; part++) {
		if (part && *at == '.')
			built[length++] = *at++;
		else if (part)
			break;
		if (*at == '*') {
			if (!next(warp, lane, list, offset, 4, &value))
				return false;
			int number = (int)(int32_t)value;

			number = number > 400 ? 400 : number < -400 ? -400 : number;
			length += (size_t)snprintf(built + length, 8, "%d", number);
			at++;
			continue;
		}
		for (numbers = 0; *at >= '0' && *at <= '9'; at++) {
			if (numbers++ < 3 && length < 24)
				built[length++] = *at;
		}
	}
	for (; *at == 'l' || *at == 'h' || *at == 'z' || *at == 'j' || *at == 't'; at++)
		longs += *at == 'h' ? 0 : *at == 'l' ? 1 : 2;
	char conversion = *at;

	*format = conversion ? at + 1 : at;
	switch (conversion) {
	case 'd': case 'i': case 'u': case 'x': case 'X': case 'o':
		if (!next(warp, lane, list, offset, longs ? 8 : 4, &value))
			return false;
		memcpy(built + length, "ll", 2);
		built[length + 2] = conversion;
		built[length + 3] = '\0';
		if (!longs && (conversion == 'd' || conversion == 'i'))
			value = (uint64_t)(int64_t)(int32_t)value;
		written = snprintf(text, sizeof(text), built, (long long)value);
		break;
	case 'c':
		if (!next(warp, lane, list, offset, 4, &value))
			return false;
		text[0] = (char)value;
		written = 1;
		break;
	case 'f': case 'F': case 'e': case 'E': case 'g': case 'G': case 'a': case 'A': {
		double number;

		if (!next(warp, lane, list, offset, 8, &value))
			return false;
		memcpy(&number, &value, sizeof(number));
		built[length] = conversion;
		built[length + 1] = '\0';
		written = snprintf(text, sizeof(text), built, number);
		break;
	}
	case 'p':
		if (!next(warp, lane, list, offset, 8, &value))
			return false;
		written = snprintf(text, sizeof(text), "0x%llx", (unsigned long long)value);
		break;
	case 's': {
		char string[STRING];

		if (!next(warp, lane, list, offset, 8, &value) || !string_at(warp, lane, value, string, sizeof(string)))
			return false;
		built[length] = 's';
		built[length + 1] = '\0';
		written = snprintf(text, sizeof(text), built, string);
		break;
	}
	case '%':
		text[0] = '%';
		written = 1;
		break;
	default: /* shown as it is */
		append(out, "%", 1);
		return true;
	}
	if (written > 0)
		append(out, text, (size_t)written < sizeof(text) ? (size_t)written : sizeof(text) - 1);
	return true;
}

static bool print(struct ptx_warp *warp, const struct ptx_op *op, uint32_t lane, struct out *out)
{
	char format[STRING * 2];
	const char *at = format;
	uint64_t list = argument(warp, op, 1, lane);
	uint64_t offset = 0;

	out->used = 0;
	if (!string_at(warp, lane, argument(warp, op, 0, lane), format, sizeof(format)))
		return false;
	while (*at) {
		size_t plain = strcspn(at, "%");

		append(out, at, plain);
		at += plain;
		if (*at != '%')
			break;
		at++;
		if (!specification(warp, lane, &at, list, &offset, out))
			return false;
	}
	return true;
}

static void emit_text(struct ptx_warp *warp, const char *text, size_t size)
{
	struct ptx_grid *grid = warp->block->grid;

	pthread_mutex_lock(&grid->lock);
	if (grid->launch->print && size)
		grid->launch->print(grid->launch->who, text, size);
	pthread_mutex_unlock(&grid->lock);
}

/* __assertfail(message, file, line, function, size of a character) */
static bool assertion(struct ptx_warp *warp, const struct ptx_op *op, uint32_t lane)
{
	const struct ptx_block *block = warp->block;
	char text[3][STRING / 2];
	char line[TEXT];
	static const uint32_t order[3] = { 1, 3, 0 };

	for (int i = 0; i < 3; i++) {
		if (!string_at(warp, lane, argument(warp, op, order[i], lane), text[i], sizeof(text[i])))
			return false;
	}
	int size = snprintf(line, sizeof(line), "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
			    text[0], (unsigned int)argument(warp, op, 2, lane), text[1], block->ctaid[0], block->ctaid[1],
			    block->ctaid[2], warp->tid[0][lane], warp->tid[1][lane], warp->tid[2][lane], text[2]);

	emit_text(warp, line, size > 0 && (size_t)size < sizeof(line) ? (size_t)size : 0);
	return true;
}

bool ptx_builtin(struct ptx_warp *warp, const struct ptx_op *op)
{
	bool fails = op->site->builtin->builtin == PTX_BUILTIN_ASSERTFAIL;
	struct out out;

	for (uint32_t rest = warp->mask; rest; rest &= rest - 1) {
		uint32_t lane = (uint32_t)__builtin_ctz(rest);

		if (fails) {
			if (!assertion(warp, op, lane))
				return false;
			continue;
		}
		if (!print(warp, op, lane, &out))
			return false;
		emit_text(warp, out.text, out.used);
		answer(warp, op, lane, op->site->in.count);
	}
	if (fails)
		ptx_fault(warp, PTX_FAULT_ASSERT, 0);
	return !fails;
}
