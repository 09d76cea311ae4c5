/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstandard.c: Zstandard by the system's library, which is opened when it is needed:
 * few programs ever need it, and the driver has no other dependency. Its functions
 * are those of the stable part of zstd.h (since 1.3).
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>

#include "image.h"

/* zstd.h's ZSTD_inBuffer and ZSTD_outBuffer */
struct piece {
	const void *from;
	size_t size;
	size_t at;
};

struct space {
	void *to;
	size_t size;
	size_t at;
};

/* All of a frame that fits into room. */
static int decode(const unsigned char *from, size_t size, unsigned char *to, size_t room, bool *ended, size_t *made)
{
	void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
	struct piece in = { from, size, 0 };
	struct space out = { to, room, 0 };
	size_t left = 1;

	*made = 0;
	if (!library)
		return -ENOSYS;
	void *(*create)(void) = (void *(*)(void))dlsym(library, "ZSTD_createDStream");
	size_t (*go_on)(void *, struct space *, struct piece *) =
		(size_t (*)(void *, struct space *, struct piece *))dlsym(library, "ZSTD_decompressStream");
	size_t (*finish)(void *) = (size_t (*)(void *))dlsym(library, "ZSTD_freeDStream");
	unsigned (*is_error)(size_t) = (unsigned (*)(size_t))dlsym(library, "ZSTD_isError");
	void *stream = create && go_on && finish && is_error ? create() : NULL;

	while (stream && left) {
		size_t before = in.at + out.at;

		left = go_on(stream, &out, &in);
		if (is_error(left) || in.at + out.at == before)
			break; /* damaged, or nothing is left to read or to write to */
	}
	int result = !create || !go_on || !finish || !is_error ? -ENOSYS : !stream ? -ENOMEM : is_error(left) ? -EBADMSG : 0;

	if (stream)
		finish(stream);
	dlclose(library);
	*ended = left == 0;
	*made = out.at;
	return result;
}

int sd_zstandard_expand(const unsigned char *from, size_t size, unsigned char *to, size_t room)
{
	bool ended = false;
	size_t made = 0;
	int result = decode(from, size, to, room, &ended, &made);

	return result == 0 && (!ended || made != room) ? -EBADMSG : result;
}

int sd_zstandard_begin(const unsigned char *from, size_t size, unsigned char *to, size_t room, size_t *made)
{
	bool ended = false;

	return decode(from, size, to, room, &ended, made);
}
