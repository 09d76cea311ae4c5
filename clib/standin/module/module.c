/* SPDX-License-Identifier: Apache-2.0 */
#include "module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/capture.h"
#include "cuda/enter.h"
#include "cuda/queue.h"
#include "jit.h"

CUresult sd_image_error(int error)
{
	switch (error) {
	case -EBADMSG:
		return CUDA_ERROR_INVALID_PTX;
	case -ENOTSUP:
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	case -EINVAL:
		return CUDA_ERROR_INVALID_IMAGE;
	case -ENOEXEC:
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	default:
		return sd_error(error);
	}
}

unsigned int sd_ptx_version(void)
{
	return sd_ptx_read_by(sd_device_generation());
}

unsigned int sd_capability(const struct sd_card *card)
{
	return card->facts->major * 10 + card->facts->minorcc;
}

static bool eager(void)
{
	const char *wish = getenv("CUDA_MODULE_LOADING");

	return wish && (strcmp(wish, "EAGER") == 0 || strcmp(wish, "LAZY") == 0) ? *wish == 'E' : sd_device_generation() < 12020;
}

struct sd_reading sd_reading_for(const struct sd_card *card, const struct sd_register_wish *wish)
{
	struct sd_reading reading = { .maxversion = sd_ptx_version(), .capability = sd_capability(card) };
	const char *asked = getenv("CUDA_MODULE_LOADING");

	for (int i = 0; sd_card(i); i++)
		reading.mixed = reading.mixed || sd_capability(sd_card(i)) != reading.capability;
	if (eager())
		reading.loading = SD_LOAD_EAGER;
	else if (wish && wish->threads) /* who asks how many threads fit is to be told */
		reading.loading = SD_LOAD_WHOLE;
	else if (asked && strcmp(asked, "LAZY") == 0)
		reading.loading = SD_LOAD_LAZY;
	return reading;
}

CUresult sd_module_read(const void *data, size_t size, const struct sd_card *card, const struct sd_register_wish *wish,
			struct sd_image *image, struct ptx_log *log)
{
	const struct sd_reading reading = sd_reading_for(card, wish);
	int result = sd_image_begin(data, size, &reading, image, log);

	if (result == 0 && wish && !image->wish.most && !image->wish.threads)
		image->wish = *wish;
	return sd_image_error(result);
}

static void end_module(void *object)
{
	struct sd_module *module = object;

	if (module->library)
		sd_library_forget(module->library, module);
	while (module->object.first)
		sd_function_end((struct sd_function *)module->object.first);
	sd_globals_end(module);
	if (module->charged)
		sd_release(module->context->card, DIVVY_SIM_KIND_MODULE, module->charged);
	sd_image_free(&module->image);
	sd_object_free(module);
}

/* The variables, and with them the kernels unless those are read one at a time. */
static CUresult make_ready(struct sd_module *module, struct ptx_log *log)
{
	CUresult result = sd_image_error(sd_image_open(&module->image, log));

	if (result == CUDA_SUCCESS)
		result = sd_globals_place(module, module->image.module);
	if (result == CUDA_SUCCESS && !module->image.lazy)
		result = sd_image_error(sd_image_compile(&module->image, log));
	return result == CUDA_SUCCESS ? sd_globals_fill(module->image.module) : result;
}

CUresult sd_module_new(struct sd_context *context, struct sd_image *image, struct ptx_log *log,
		       struct sd_module **out)
{
	uint64_t bytes = 0;
	struct sd_module *module = sd_object_new(SD_MODULE, sizeof(*module), &context->object);

	if (!module) {
		sd_image_free(image);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	module->object.end = end_module;
	module->context = context;
	module->image = *image;
	*image = (struct sd_image){ 0 };
	(void)sd_round(module->image.size, SD_UNIT, &bytes);
	CUresult result = sd_charge(context->card, DIVVY_SIM_KIND_MODULE, bytes);

	if (result == CUDA_SUCCESS) {
		module->charged = bytes;
		result = make_ready(module, log);
		sd_image_settle(&module->image);
	}
	if (result != CUDA_SUCCESS) {
		sd_object_end(module);
		return result;
	}
	*out = module;
	return CUDA_SUCCESS;
}

CUresult sd_file_read(const char *path, unsigned char **bytes, size_t *size)
{
	FILE *file = path ? fopen(path, "rbe") : NULL;
	unsigned char *data = NULL;
	size_t room = 0;
	size_t count = 0;

	if (!file)
		return path ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
	for (;;) {
		if (count + 1 >= room) {
			room = room ? room * 2 : 1 << 16;
			unsigned char *more = room <= SD_IMAGE_MOST ? realloc(data, room) : NULL;

			if (!more) {
				free(data);
				fclose(file);
				return CUDA_ERROR_OUT_OF_MEMORY;
			}
			data = more;
		}
		size_t got = fread(data + count, 1, room - count - 1, file);

		if (!got)
			break;
		count += got;
	}
	fclose(file);
	data[count] = '\0';
	*bytes = data;
	*size = count;
	return CUDA_SUCCESS;
}

static CUresult load(CUmodule *out, const void *data, size_t size, struct sd_jit *jit)
{
	struct sd_context *context = NULL;
	struct sd_image image;
	struct sd_module *module = NULL;
	struct ptx_log log = { 0 };
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	if (!out || !data)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_capture_forbids();
	if (result == CUDA_SUCCESS)
		result = sd_module_read(data, size, context->card, &jit->wish, &image, &log);
	if (result == CUDA_SUCCESS)
		result = sd_module_new(context, &image, &log, &module);
	if (result == CUDA_SUCCESS) {
		*out = (CUmodule)module;
		sd_jit_tell_threads(jit, &module->image);
	}
	sd_jit_tell(jit, log.text);
	return sd_leave(result);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
			    void **optionValues)
{
	struct sd_jit jit = sd_jit_read(numOptions, options, optionValues);

	return load(module, image, 0, &jit);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	struct sd_jit jit = { 0 };

	return load(module, image, 0, &jit);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	return cuModuleLoadData(module, fatCubin);
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
	unsigned char *bytes = NULL;
	size_t size = 0;
	struct sd_jit jit = { 0 };
	CUresult result = sd_file_read(fname, &bytes, &size);

	if (result != CUDA_SUCCESS)
		return result;
	result = size ? load(module, bytes, size, &jit) : CUDA_ERROR_INVALID_IMAGE;
	free(bytes);
	return result;
}

void sd_module_idle(struct sd_module *module)
{
	uint64_t id = module->object.id;

	while (sd_object_get(module, SD_MODULE) == module && module->object.id == id && module->steps)
		sd_queue_wait();
}

CUresult cuModuleUnload(CUmodule hmod)
{
	CUresult result = sd_enter_idle();

	if (result != CUDA_SUCCESS)
		return result;
	sd_stream_drain_all();
	struct sd_module *module = sd_object_get(hmod, SD_MODULE);

	if (module)
		sd_module_idle(module);
	module = sd_object_get(hmod, SD_MODULE);
	if (!module || module->library) /* a library's module goes with the library */
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	sd_object_end(module);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!mode)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*mode = eager() ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return sd_leave(CUDA_SUCCESS);
}

CUresult sd_module_function(struct sd_module *module, const char *name, struct sd_function **out)
{
	for (struct sd_object *object = module->object.first; object; object = object->next) {
		struct sd_function *function = (struct sd_function *)object;

		if (strcmp(function->name, name) == 0) {
			*out = function;
			return CUDA_SUCCESS;
		}
	}
	CUresult result = sd_function_new(&module->image, name, &module->object, out);
	if (result == CUDA_SUCCESS) {
		(*out)->module = module;
		(*out)->library = module->library;
	}
	return result;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	struct sd_function *function = NULL;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_module *module = sd_object_get(hmod, SD_MODULE);

	if (!module)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!hfunc || !name)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	result = sd_module_function(module, name, &function);
	if (result == CUDA_SUCCESS)
		result = sd_function_ready(function);
	if (result == CUDA_SUCCESS)
		*hfunc = (CUfunction)function;
	return sd_leave(result);
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_module *module = sd_object_get(mod, SD_MODULE);

	if (!module)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!count)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*count = (unsigned int)module->image.entrycount;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_module *module = sd_object_get(mod, SD_MODULE);

	if (!module)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!functions || !numFunctions)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	for (unsigned int i = 0; result == CUDA_SUCCESS && i < numFunctions && i < module->image.entrycount; i++) {
		struct sd_function *function = NULL;

		result = sd_module_function(module, module->image.entries[i].name, &function);
		functions[i] = (CUfunction)function;
	}
	return sd_leave(result);
}
