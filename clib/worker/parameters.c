/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parameters.c: what the PTX of an image says of its kernels' parameters, for drivers that
 * do not say it (before CUDA 12.4). Layout by the PTX ISA, "Kernel Function Parameter
 * Attributes": each at a multiple of its alignment, in order.
 */
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>

#include "image/image.h"
#include "worker.h"

struct text {
	uint64_t module;
	char *ptx;
	size_t length;
	struct text *next;
};

struct kernel {
	uint64_t handle, library;
	char *name;
	struct kernel *next;
};

static struct {
	pthread_mutex_t lock;
	struct text *texts;
	struct kernel *kernels;
} images = { .lock = PTHREAD_MUTEX_INITIALIZER };

void worker_image_loaded(uint64_t module, const uint8_t *image, size_t length)
{
	const char *ptx = NULL;
	size_t bytes = 0;
	unsigned char *made = NULL;
	int major = 0, minor = 0;
	struct ptx_log log = { 0 };

	if (DRIVER(cuFuncGetParamInfo))
		return;
	DRIVER(cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
	DRIVER(cuDeviceGetAttribute)(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
	if (sd_fat_size(image, length, &log)) {
		if (sd_fat_text(image, length, (unsigned int)(10 * major + minor), &ptx, &bytes, &made, &log) != 0)
			return;
	} else {
		ptx = (const char *)image;
		bytes = strnlen(ptx, length);
	}
	struct text *text = calloc(1, sizeof(*text));

	if (text)
		text->ptx = malloc(bytes + 1);
	if (text && text->ptx) {
		memcpy(text->ptx, ptx, bytes);
		text->ptx[bytes] = '\0';
		text->module = module;
		text->length = bytes;
		pthread_mutex_lock(&images.lock);
		text->next = images.texts;
		images.texts = text;
		pthread_mutex_unlock(&images.lock);
	} else {
		free(text);
	}
	free(made);
}

void worker_image_gone(uint64_t module)
{
	pthread_mutex_lock(&images.lock);
	for (struct text **at = &images.texts; *at; at = &(*at)->next) {
		struct text *text = *at;

		if (text->module == module) {
			*at = text->next;
			free(text->ptx);
			free(text);
			break;
		}
	}
	pthread_mutex_unlock(&images.lock);
}

/* Reading PTX, as far as the heads of kernels. */

struct cursor {
	const char *at, *end;
};

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

/* The next word or sign; comments and strings are passed over. Length 0 at the end. */
static size_t token(struct cursor *cursor, const char **start)
{
	const char *at = cursor->at, *end = cursor->end;

	while (at < end) {
		if (isspace((unsigned char)*at)) {
			at++;
		} else if (end - at > 1 && at[0] == '/' && at[1] == '/') {
			while (at < end && *at != '\n')
				at++;
		} else if (end - at > 1 && at[0] == '/' && at[1] == '*') {
			at += 2;
			while (end - at > 1 && !(at[0] == '*' && at[1] == '/'))
				at++;
			at = end - at > 1 ? at + 2 : end;
		} else if (*at == '"') {
			at++;
			while (at < end && *at != '"')
				at++;
			at += at < end;
		} else {
			break;
		}
	}
	*start = at;
	if (at == end) {
		cursor->at = at;
		return 0;
	}
	const char *last = at + 1;

	if (is_word(*at)) {
		while (last < end && is_word(*last) && !(*last == '.' && *at != '.'))
			last++;
		/* ".param.u64" is two words */
		for (const char *dot = at + 1; dot < last; dot++) {
			if (*dot == '.') {
				last = dot;
				break;
			}
		}
	}
	cursor->at = last;
	return (size_t)(last - at);
}

static bool is(const char *start, size_t length, const char *text)
{
	return strlen(text) == length && memcmp(start, text, length) == 0;
}

/* Bytes of a type, or 0: none. */
static uint32_t type_bytes(const char *start, size_t length)
{
	char digits[4] = "";

	if (length < 3 || start[0] != '.' || !strchr("busf", start[1]))
		return is(start, length, ".texref") || is(start, length, ".surfref") || is(start, length, ".samplerref") ? 8 : 0;
	size_t i = 2;

	while (i < length && isdigit((unsigned char)start[i]) && i - 2 < sizeof(digits) - 1) {
		digits[i - 2] = start[i];
		i++;
	}
	uint32_t bits = (uint32_t)atoi(digits);

	if (i + 2 == length && start[i] == 'x' && start[i + 1] == '2')
		bits *= 2;
	else if (i != length)
		return 0;
	return bits / 8;
}

static uint32_t number(const char *start, size_t length)
{
	char text[16] = "";

	memcpy(text, start, length < sizeof(text) - 1 ? length : sizeof(text) - 1);
	return (uint32_t)strtoul(text, NULL, 0);
}

/* One parameter, up to the comma or the parenthesis behind it. */
static bool parameter(struct cursor *cursor, uint32_t *end, struct call_parameter *out, bool *last)
{
	uint32_t bytes = 0, align = 0, count = 1;
	bool pointer = false;
	const char *start;
	size_t length;

	while ((length = token(cursor, &start)) != 0) {
		if (is(start, length, ",") || is(start, length, ")")) {
			*last = *start == ')';
			break;
		}
		if (is(start, length, ".ptr")) {
			pointer = true;
		} else if (is(start, length, ".align")) {
			length = token(cursor, &start);
			if (!pointer)
				align = number(start, length);
		} else if (is(start, length, "[")) {
			length = token(cursor, &start);
			count = number(start, length);
		} else if (!bytes && type_bytes(start, length)) {
			bytes = type_bytes(start, length);
		}
	}
	if (!length || !bytes || count > PARAMETER_BYTES)
		return false;
	align = align ? align : bytes;
	if (align & (align - 1) || align > PARAMETER_BYTES)
		return false;
	out->offset = (*end + align - 1) & ~(align - 1);
	out->size = bytes * count;
	*end = out->offset + out->size;
	return *end <= PARAMETER_BYTES;
}

/* False: there is no such kernel, or it is not understood. */
static bool read_head(const char *ptx, size_t length, const char *name, struct call_parameter *parameters, uint32_t *count)
{
	struct cursor cursor = { ptx, ptx + length };
	size_t bytes;
	const char *start;

	*count = 0;
	while ((bytes = token(&cursor, &start)) != 0) {
		if (!is(start, bytes, ".entry"))
			continue;
		bytes = token(&cursor, &start);
		if (!is(start, bytes, name))
			continue;
		bytes = token(&cursor, &start);
		if (!is(start, bytes, "("))
			return true; /* it has none */
		struct cursor empty = cursor;
		uint32_t end = 0;
		bool last = false;

		if (token(&empty, &start) && *start == ')')
			return true;
		while (!last) {
			if (*count == PARAMETERS || !parameter(&cursor, &end, &parameters[*count], &last))
				return false;
			++*count;
		}
		return true;
	}
	return false;
}

bool worker_image_parameters(uint64_t module, const char *name, struct call_parameter *parameters, uint32_t *count)
{
	bool found = false;

	pthread_mutex_lock(&images.lock);
	for (const struct text *text = images.texts; text && !found; text = text->next) {
		if (text->module == module)
			found = read_head(text->ptx, text->length, name, parameters, count);
	}
	pthread_mutex_unlock(&images.lock);
	return found;
}

void worker_kernel_found(uint64_t handle, uint64_t library, const char *name)
{
	uint64_t known = 0;

	if (worker_kernel_name(handle, &known)) /* it has been found before */
		return;
	struct kernel *kernel = calloc(1, sizeof(*kernel));

	if (kernel)
		kernel->name = strdup(name);
	if (!kernel || !kernel->name) {
		free(kernel);
		return;
	}
	kernel->handle = handle;
	kernel->library = library;
	pthread_mutex_lock(&images.lock);
	kernel->next = images.kernels;
	images.kernels = kernel;
	pthread_mutex_unlock(&images.lock);
}

const char *worker_kernel_name(uint64_t handle, uint64_t *library)
{
	const char *name = NULL;

	pthread_mutex_lock(&images.lock);
	for (const struct kernel *kernel = images.kernels; kernel && !name; kernel = kernel->next) {
		if (kernel->handle == handle) {
			name = kernel->name;
			*library = kernel->library;
		}
	}
	pthread_mutex_unlock(&images.lock);
	return name;
}
