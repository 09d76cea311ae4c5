/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and libraries: what their code and variables take on the card counts and comes back. */
#define _GNU_SOURCE
#include "snippet.h"

#include <sys/mman.h>
#include <unistd.h>

#define TABLE_BYTES (4 * MIB)

static const char *text(uint64_t bytes)
{
	static char source[512];

	snprintf(source, sizeof source,
		 ".version 6.0\n.target sm_50\n.address_size 64\n"
		 ".visible .global .align 4 .b8 table[%llu];\n"
		 ".visible .entry nothing()\n{\n\tret;\n}\n",
		 (unsigned long long)bytes);
	return source;
}

/* The text as a file that lives as long as its descriptor. */
static const char *file(uint64_t bytes, int *fd)
{
	static char path[64];
	const char *source = text(bytes);

	*fd = memfd_create("module", 0);
	if (*fd < 0 || write(*fd, source, strlen(source)) != (ssize_t)strlen(source))
		return "/nonexistent";
	snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
	return path;
}

typedef int load(CUmodule *module, uint64_t bytes);

static int load_data(CUmodule *module, uint64_t bytes)
{
	return (int)DRIVER(cuModuleLoadData)(module, text(bytes));
}

static int load_data_ex(CUmodule *module, uint64_t bytes)
{
	return (int)DRIVER(cuModuleLoadDataEx)(module, text(bytes), 0, NULL, NULL);
}

static int load_fat(CUmodule *module, uint64_t bytes)
{
	return (int)DRIVER(cuModuleLoadFatBinary)(module, text(bytes));
}

static int load_file(CUmodule *module, uint64_t bytes)
{
	int fd = -1;
	int result = (int)DRIVER(cuModuleLoad)(module, file(bytes, &fd));

	close(fd);
	return result;
}

static void loaded_with(load *call)
{
	CUmodule module = NULL;
	CUdeviceptr address = 0;
	uint64_t before;
	size_t bytes = 0;

	/* The first module may make the driver keep something. */
	OK(call(&module, 4));
	OK(DRIVER(cuModuleUnload)(module));
	before = snippet_room();
	OK(call(&module, TABLE_BYTES));
	CHECK(before - snippet_room() >= TABLE_BYTES);
	OK(DRIVER(cuModuleGetGlobal_v2)(&address, &bytes, module, "table"));
	EQUAL(bytes, TABLE_BYTES);
	OK(snippet_linear_data(address, bytes));
	OK(DRIVER(cuModuleUnload)(module));
	EQUAL(snippet_room(), before);

	module = NULL;
	EQUAL(call(&module, snippet_too_much()), OVER);
	if (snippet_run.control)
		OK(DRIVER(cuModuleUnload)(module));
	else
		CHECK(module == NULL);
	EQUAL(snippet_room(), before);
}

static void data(void)
{
	loaded_with(load_data);
}

static void data_ex(void)
{
	loaded_with(load_data_ex);
}

static void fat(void)
{
	loaded_with(load_fat);
}

static void from_file(void)
{
	loaded_with(load_file);
}

typedef int load_library(CUlibrary *library, uint64_t bytes);

static int library_data(CUlibrary *library, uint64_t bytes)
{
	return (int)DRIVER(cuLibraryLoadData)(library, text(bytes), NULL, NULL, 0, NULL, NULL, 0);
}

static int library_file(CUlibrary *library, uint64_t bytes)
{
	int fd = -1;
	int result = (int)DRIVER(cuLibraryLoadFromFile)(library, file(bytes, &fd), NULL, NULL, 0, NULL, NULL, 0);

	close(fd);
	return result;
}

/* A library may load at once or when its first part is asked for; both count. */
static void library_with(load_library *call)
{
	CUlibrary library = NULL;
	CUmodule module = NULL;
	CUdeviceptr address = 0;
	size_t bytes = 0;
	uint64_t before;
	int result;

	OK(call(&library, 4));
	OK(DRIVER(cuLibraryGetModule)(&module, library));
	OK(DRIVER(cuLibraryUnload)(library));
	before = snippet_room();
	OK(call(&library, TABLE_BYTES));
	OK(DRIVER(cuLibraryGetGlobal)(&address, &bytes, library, "table"));
	EQUAL(bytes, TABLE_BYTES);
	CHECK(before - snippet_room() >= TABLE_BYTES);
	OK(snippet_linear_data(address, bytes));
	OK(DRIVER(cuLibraryUnload)(library));
	EQUAL(snippet_room(), before);

	library = NULL;
	result = call(&library, snippet_too_much());
	if (result == 0)
		result = (int)DRIVER(cuLibraryGetGlobal)(&address, &bytes, library, "table");
	EQUAL(result, OVER);
	if (library)
		OK(DRIVER(cuLibraryUnload)(library));
	EQUAL(snippet_room(), before);
}

static void library(void)
{
	library_with(library_data);
}

static void library_from_file(void)
{
	library_with(library_file);
}

/* A kernel's function makes the driver load its library here, which counts and comes back. */
static void kernel(void)
{
	CUlibrary library = NULL;
	CUkernel found = NULL;
	CUfunction function = NULL;
	uint64_t before;
	int result;

	OK(library_data(&library, 4));
	OK(DRIVER(cuLibraryGetKernel)(&found, library, "nothing"));
	OK(DRIVER(cuKernelGetFunction)(&function, found));
	OK(DRIVER(cuLibraryUnload)(library));
	before = snippet_room();
	OK(library_data(&library, TABLE_BYTES));
	OK(DRIVER(cuLibraryGetKernel)(&found, library, "nothing"));
	OK(DRIVER(cuKernelGetFunction)(&function, found));
	CHECK(before - snippet_room() >= TABLE_BYTES);
	OK(DRIVER(cuKernelGetFunction)(&function, found));
	OK(DRIVER(cuLibraryUnload)(library));
	EQUAL(snippet_room(), before);

	library = NULL;
	result = library_data(&library, snippet_too_much());
	if (result == 0)
		result = (int)DRIVER(cuLibraryGetKernel)(&found, library, "nothing");
	if (result == 0)
		result = (int)DRIVER(cuKernelGetFunction)(&function, found);
	EQUAL(result, OVER);
	if (library)
		OK(DRIVER(cuLibraryUnload)(library));
	EQUAL(snippet_room(), before);
}

/* A managed variable is one of the library's; without one by that name nothing is written. */
static void managed(void)
{
	CUlibrary library = NULL;
	CUdeviceptr address = 0xa5a5;
	size_t bytes = 0xa5a5;
	uint64_t before = snippet_room();

	OK(library_data(&library, TABLE_BYTES));
	EQUAL(DRIVER(cuLibraryGetManaged)(&address, &bytes, library, "missing"), CUDA_ERROR_NOT_FOUND);
	EQUAL(address, 0xa5a5);
	EQUAL(bytes, 0xa5a5);
	OK(DRIVER(cuLibraryUnload)(library));
	EQUAL(snippet_room(), before);
}

static const struct snippet snippets[] = {
	SNIPPET(cuModuleLoadData, data),
	SNIPPET(cuModuleLoadDataEx, data_ex),
	SNIPPET(cuModuleLoadFatBinary, fat),
	SNIPPET(cuModuleLoad, from_file),
	SNIPPET(cuModuleUnload, data),
	SNIPPET(cuLibraryLoadData, library),
	SNIPPET(cuLibraryLoadFromFile, library_from_file),
	SNIPPET(cuLibraryUnload, library),
	SNIPPET(cuLibraryGetModule, library),
	SNIPPET(cuLibraryGetGlobal, library),
	SNIPPET(cuLibraryGetManaged, managed),
	SNIPPET(cuLibraryGetKernel, kernel),
	SNIPPET(cuKernelGetFunction, kernel),
};

const struct area area_module = {
	.name = "module",
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
