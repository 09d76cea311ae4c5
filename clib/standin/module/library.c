/* SPDX-License-Identifier: Apache-2.0 */
/* library.c: libraries and kernels: code that belongs to no context. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/enter.h"
#include "jit.h"
#include "memory/memory.h"
#include "module.h"

/* The card that a library is read for until a context uses it: the current one,
 * else the first. */
static const struct sd_card *card_here(void)
{
	struct sd_context *context = NULL;

	return sd_context_current(&context) == CUDA_SUCCESS ? context->card : sd_card(0);
}

static CUresult load(CUlibrary *out, const void *data, size_t size, struct sd_jit *jit)
{
	struct sd_image image;
	struct ptx_log log = { 0 };
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!out || !data)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_module_read(data, size, card_here(), &jit->wish, &image, &log);
	/* what cannot be run is to fail here; its variables have no places yet, so
	 * each context compiles it for itself */
	if (result == CUDA_SUCCESS && !image.lazy) {
		result = sd_image_error(sd_image_compile(&image, &log));
		if (result != CUDA_SUCCESS)
			sd_image_free(&image);
	}
	sd_jit_tell(jit, log.text);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	sd_jit_tell_threads(jit, &image);
	struct sd_library *library = sd_object_new(SD_LIBRARY, sizeof(*library), NULL);

	if (!library) {
		sd_image_free(&image);
		return sd_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	library->image = image;
	*out = (CUlibrary)library;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
			   unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
			   unsigned int numLibraryOptions)
{
	struct sd_jit jit = sd_jit_read(numJitOptions, jitOptions, jitOptionsValues);

	(void)libraryOptions;
	(void)libraryOptionValues;
	(void)numLibraryOptions;
	return load(library, code, 0, &jit);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
			       void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
			       void **libraryOptionValues, unsigned int numLibraryOptions)
{
	struct sd_jit jit = sd_jit_read(numJitOptions, jitOptions, jitOptionsValues);
	unsigned char *bytes = NULL;
	size_t size = 0;

	(void)libraryOptions;
	(void)libraryOptionValues;
	(void)numLibraryOptions;
	CUresult result = sd_file_read(fileName, &bytes, &size);

	if (result != CUDA_SUCCESS)
		return result;
	result = size ? load(library, bytes, size, &jit) : CUDA_ERROR_INVALID_IMAGE;
	free(bytes);
	return result;
}

void sd_library_forget(struct sd_library *library, const struct sd_module *module)
{
	for (size_t i = 0; i < library->modulecount; i++) {
		if (library->modules[i] == module)
			library->modules[i--] = library->modules[--library->modulecount];
	}
}

CUresult cuLibraryUnload(CUlibrary library)
{
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_library *found = sd_object_get(library, SD_LIBRARY);

	for (size_t i = 0; found && i < found->modulecount; i++) {
		sd_module_idle(found->modules[i]);
		found = sd_object_get(library, SD_LIBRARY);
	}
	if (!found)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	while (found->modulecount)
		sd_object_end(found->modules[found->modulecount - 1]);
	while (found->object.first)
		sd_function_end((struct sd_function *)found->object.first);
	free(found->modules);
	sd_image_free(&found->image);
	sd_object_free(found);
	return sd_leave(CUDA_SUCCESS);
}

/* The library's module in the calling thread's context, made at first use. */
static CUresult module_here(struct sd_library *library, struct sd_module **out)
{
	struct sd_context *context = NULL;
	struct sd_image image;
	struct ptx_log log = { 0 };
	CUresult result = sd_context_current(&context);

	if (result != CUDA_SUCCESS)
		return result;
	for (size_t i = 0; i < library->modulecount; i++) {
		if (library->modules[i]->context == context) {
			*out = library->modules[i];
			return CUDA_SUCCESS;
		}
	}
	struct sd_module **modules = realloc(library->modules, (library->modulecount + 1) * sizeof(struct sd_module *));

	if (!modules)
		return CUDA_ERROR_OUT_OF_MEMORY;
	library->modules = modules;
	const struct sd_reading reading = sd_reading_for(context->card, &library->image.wish);

	result = sd_image_error(sd_image_again(&library->image, &reading, &image, &log));
	if (result == CUDA_SUCCESS && !image.wish.most && !image.wish.threads)
		image.wish = library->image.wish;
	if (result == CUDA_SUCCESS)
		result = sd_module_new(context, &image, &log, out);
	if (result != CUDA_SUCCESS)
		return result;
	(*out)->library = library;
	library->modules[library->modulecount++] = *out;
	return CUDA_SUCCESS;
}

CUresult sd_library_open(struct sd_library *library)
{
	struct ptx_log log = { 0 };

	if (library->opened)
		return CUDA_SUCCESS;
	int result = library->image.lazy ? sd_image_open(&library->image, &log) : 0;

	if (result == 0 && library->image.lazy == false && !library->image.code)
		result = sd_image_compile(&library->image, &log);
	library->opened = result == 0;
	if (result < 0 && log.text[0] && !library->told) {
		library->told = true;
		dprintf(STDERR_FILENO, "divvy: simulated GPU: a library of %zu bytes cannot be read: %s\n",
			library->image.size, log.text);
	}
	return sd_image_error(result);
}

CUresult sd_kernel_function(const struct sd_function *kernel, struct sd_function **out)
{
	struct sd_module *module = NULL;
	CUresult result = module_here(kernel->library, &module);

	if (result == CUDA_SUCCESS)
		result = sd_module_function(module, kernel->name, out);
	return result == CUDA_SUCCESS ? sd_function_ready(*out) : result;
}

/* The library behind a handle, with the lock taken; unlocked unless it is found. */
static CUresult enter(CUlibrary handle, struct sd_library **library)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*library = sd_object_get(handle, SD_LIBRARY);
	return *library ? CUDA_SUCCESS : sd_leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult kernel_of(struct sd_library *library, const char *name, struct sd_function **out)
{
	for (struct sd_object *object = library->object.first; object; object = object->next) {
		if (strcmp(((struct sd_function *)object)->name, name) == 0) {
			*out = (struct sd_function *)object;
			return CUDA_SUCCESS;
		}
	}
	CUresult result = sd_library_open(library);

	if (result == CUDA_SUCCESS)
		result = sd_function_new(&library->image, name, &library->object, out);
	if (result == CUDA_SUCCESS)
		(*out)->library = library;
	return result;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	struct sd_library *found = NULL;
	struct sd_function *kernel = NULL;
	CUresult result = enter(library, &found);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pKernel || !name)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = kernel_of(found, name, &kernel);
	if (result == CUDA_SUCCESS)
		*pKernel = (CUkernel)kernel;
	return sd_leave(result);
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	struct sd_library *found = NULL;
	struct sd_module *module = NULL;
	CUresult result = enter(library, &found);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pMod)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = module_here(found, &module);
	if (result == CUDA_SUCCESS)
		*pMod = (CUmodule)module;
	return sd_leave(result);
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	struct sd_function *function = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_function *found = sd_object_get(kernel, SD_FUNCTION);

	if (!found || !found->library)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!pFunc)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_kernel_function(found, &function);
	if (result == CUDA_SUCCESS)
		*pFunc = (CUfunction)function;
	return sd_leave(result);
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_function *found = sd_object_get(kernel, SD_FUNCTION);

	if (!found || !found->library)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!pLib)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pLib = (CUlibrary)found->library;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	struct sd_library *found = NULL;
	struct sd_module *module = NULL;
	CUresult result = enter(library, &found);

	if (result != CUDA_SUCCESS)
		return result;
	if (!name || (!dptr && !bytes))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = module_here(found, &module);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	const struct sd_global *global = sd_module_global(module, name);

	if (!global)
		return sd_leave(CUDA_ERROR_NOT_FOUND);
	if (dptr)
		*dptr = global->address;
	if (bytes)
		*bytes = global->bytes;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	struct sd_library *found = NULL;
	struct sd_module *module = NULL;
	CUresult result = enter(library, &found);

	if (result != CUDA_SUCCESS)
		return result;
	if (!name || (!dptr && !bytes))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = module_here(found, &module);
	if (result != CUDA_SUCCESS)
		return sd_leave(result);
	const struct sd_global *global = sd_module_global(module, name);

	if (!global || global->memory->kind != SD_MANAGED)
		return sd_leave(CUDA_ERROR_NOT_FOUND);
	if (dptr)
		*dptr = global->address;
	if (bytes)
		*bytes = global->bytes;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
	struct sd_library *found = NULL;
	CUresult result = enter(lib, &found);

	if (result != CUDA_SUCCESS)
		return result;
	if (!count)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_library_open(found);
	if (result == CUDA_SUCCESS)
		*count = (unsigned int)found->image.entrycount;
	return sd_leave(result);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	struct sd_library *found = NULL;
	CUresult result = enter(lib, &found);

	if (result != CUDA_SUCCESS)
		return result;
	if (!kernels || !numKernels)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_library_open(found);
	for (unsigned int i = 0; result == CUDA_SUCCESS && i < numKernels && i < found->image.entrycount; i++) {
		struct sd_function *kernel = NULL;

		result = kernel_of(found, found->image.entries[i].name, &kernel);
		kernels[i] = (CUkernel)kernel;
	}
	return sd_leave(result);
}
