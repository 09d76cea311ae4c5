/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zstandard.c: Zstandard by the system's library, which is opened when it is needed:
 * few programs ever need it, and the driver has no other dependency. Its two
 * functions are those of the stable part of zstd.h (since 1.3).
 */
#include <dlfcn.h>
#include <errno.h>

#include "image.h"

int sd_zstandard_expand(const unsigned char *from, size_t size, unsigned char *to, size_t room)
{
	void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
	size_t (*decompress)(void *, size_t, const void *, size_t);
	unsigned (*is_error)(size_t);
	int rc = -ENOSYS;

	if (!library)
		return rc;
	decompress = (size_t (*)(void *, size_t, const void *, size_t))dlsym(library, "ZSTD_decompress");
	is_error = (unsigned (*)(size_t))dlsym(library, "ZSTD_isError");
	if (decompress && is_error) {
		size_t made = decompress(to, room, from, size);

		rc = is_error(made) || made != room ? -EBADMSG : 0;
	}
	dlclose(library);
	return rc;
}
