/* SPDX-License-Identifier: Apache-2.0 */
/* module.c: images, links, and the kernels that are found in them. */
#include <pthread.h>
#include <stdlib.h>

#include "special.h"

/* Finding kernels. */

/* The parameters of a kernel: the driver says them from CUDA 12.4 on, images always. */
static bool parameters_of(CUfunction function, uint64_t module, const char *name, struct call_parameter *parameters, uint32_t *count)
{
	__typeof__(&cuFuncGetParamInfo) ask = DRIVER(cuFuncGetParamInfo);
	size_t offset, size;

	if (!ask)
		return worker_image_parameters(module, name, parameters, count);
	for (*count = 0; *count < PARAMETERS && ask(function, *count, &offset, &size) == CUDA_SUCCESS; ++*count) {
		parameters[*count].offset = (uint32_t)offset;
		parameters[*count].size = (uint32_t)size;
	}
	return true;
}

static void add_function(struct worker_lane *lane, unsigned int kind, CUfunction function, uint64_t module, const char *name)
{
	static __thread struct call_parameter parameters[PARAMETERS];
	struct call_function told = { .handle = worker_handle(kind, (uint64_t)(uintptr_t)function) };
	const char *own = name ? name : "";

	if (!name && DRIVER(cuFuncGetName) && DRIVER(cuFuncGetName)(&own, function) != CUDA_SUCCESS)
		own = "";
	told.known = parameters_of(function, module, own, parameters, &told.parameters);
	if (!told.known)
		told.parameters = 0;
	for (uint32_t i = 0; i < told.parameters; i++) {
		uint32_t end = parameters[i].offset + parameters[i].size;

		told.bytes = end > told.bytes ? end : told.bytes;
	}
	int threads = 0, shared = 0;

	if (DRIVER(cuFuncGetAttribute)(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function) == CUDA_SUCCESS &&
	    DRIVER(cuFuncGetAttribute)(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function) == CUDA_SUCCESS) {
		told.threads = (uint32_t)threads;
		told.shared = (uint32_t)shared;
	}
	told.name = (uint32_t)strlen(own);
	size_t rows = told.parameters * sizeof(parameters[0]);
	uint8_t *at = worker_add_room(lane, sizeof(told) + rows + told.name);

	if (!at)
		return;
	memcpy(at, &told, sizeof(told));
	memcpy(at + sizeof(told), parameters, rows);
	memcpy(at + sizeof(told) + rows, own, told.name);
}

uint64_t worker_find(struct worker_call *call, struct reader *reader)
{
	const struct call_find *want = worker_next(reader, sizeof(*want));
	unsigned int wrong = 0, kind = KIND_CUfunction;
	const char *name = want && want->bytes && want->bytes <= NAME_BYTES ? worker_next(reader, want->bytes) : NULL;
	CUfunction function = NULL;
	CUresult result;
	uint64_t of, library = want ? want->of : 0;

	if (!want || (name && name[want->bytes - 1]) || (!name && call->number != CALL_cuKernelGetFunction))
		return CUDA_ERROR_INVALID_VALUE;
	switch (call->number) {
	case CALL_cuModuleGetFunction:
		of = worker_real_of(KIND_CUmodule, want->of, &wrong);
		result = wrong ? wrong : DRIVER(cuModuleGetFunction)(&function, (CUmodule)(uintptr_t)of, name);
		break;
	case CALL_cuLibraryGetKernel:
		of = worker_real_of(KIND_CUlibrary, want->of, &wrong);
		kind = KIND_CUkernel;
		result = wrong ? wrong : DRIVER(cuLibraryGetKernel)((CUkernel *)(void *)&function, (CUlibrary)(uintptr_t)of, name);
		break;
	default:
		of = worker_real_of(KIND_CUkernel, want->of, &wrong);
		result = wrong ? wrong : DRIVER(cuKernelGetFunction)(&function, (CUkernel)(uintptr_t)of);
		name = worker_kernel_name(want->of, &library);
		break;
	}
	if (result == CUDA_SUCCESS)
		add_function(call->lane, kind, function, library, name);
	if (result == CUDA_SUCCESS && kind == KIND_CUkernel && name)
		worker_kernel_found(worker_handle(kind, (uint64_t)(uintptr_t)function), library, name);
	return result;
}

uint64_t worker_enumerate(struct worker_call *call, struct reader *reader)
{
	const struct call_enumerate *want = worker_next(reader, sizeof(*want));
	bool library = call->number == CALL_cuLibraryEnumerateKernels;
	unsigned int wrong = 0, count = want ? (unsigned int)want->count : 0;
	uint64_t of = want ? worker_real_of(library ? KIND_CUlibrary : KIND_CUmodule, want->of, &wrong) : 0;

	if (!want || wrong || want->count > PARAMETERS)
		return wrong ? wrong : CUDA_ERROR_INVALID_VALUE;
	CUfunction *functions = calloc(count + 1, sizeof(*functions));

	if (!functions)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = library ? DRIVER(cuLibraryEnumerateKernels)((CUkernel *)(void *)functions, count, (CUlibrary)(uintptr_t)of)
				  : DRIVER(cuModuleEnumerateFunctions)(functions, count, (CUmodule)(uintptr_t)of);

	for (unsigned int i = 0; result == CUDA_SUCCESS && i < count && functions[i]; i++)
		add_function(call->lane, library ? KIND_CUkernel : KIND_CUfunction, functions[i], want->of, NULL);
	free(functions);
	return result;
}

/* Images. */

struct options {
	unsigned int count;
	CUjit_option option[JIT_OPTIONS];
	void *value[JIT_OPTIONS];
	uint8_t *buffer[JIT_OPTIONS];
	uint64_t room[JIT_OPTIONS];
};

enum { LOG_BYTES = 1 << 20 };

/* Options whose value is a pointer that is not a log's. */
static bool is_pointer(unsigned int option)
{
	return option == CU_JIT_GLOBAL_SYMBOL_NAMES || option == CU_JIT_GLOBAL_SYMBOL_ADDRESSES || option == CU_JIT_REFERENCED_KERNEL_NAMES ||
	       option == CU_JIT_REFERENCED_VARIABLE_NAMES;
}

static CUresult take_options(struct reader *reader, unsigned int count, struct options *out)
{
	const struct call_option *given = count <= JIT_OPTIONS ? worker_next(reader, count * sizeof(*given)) : NULL;

	if (!given)
		return CUDA_ERROR_INVALID_VALUE;
	out->count = count;
	for (unsigned int i = 0; i < count; i++) {
		if (is_pointer(given[i].option))
			return CUDA_ERROR_NOT_SUPPORTED;
		out->option[i] = (CUjit_option)given[i].option;
		out->value[i] = (void *)(uintptr_t)given[i].value;
		if (!call_is_buffer(given[i].option))
			continue;
		out->room[i] = given[i].value < LOG_BYTES ? given[i].value : LOG_BYTES;
		out->buffer[i] = calloc(1, out->room[i] + 1);
		out->value[i] = out->buffer[i];
		if (!out->buffer[i])
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	/* a log's size must not be more than the room that there is */
	for (unsigned int i = 0; i < count; i++) {
		if ((out->option[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || out->option[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) &&
		    (uint64_t)(uintptr_t)out->value[i] > LOG_BYTES)
			out->value[i] = (void *)(uintptr_t)LOG_BYTES;
	}
	return CUDA_SUCCESS;
}

/* Logs, then all values; what they point to is not told. */
static void add_options(struct worker_lane *lane, const struct options *options)
{
	for (unsigned int i = 0; i < options->count; i++) {
		size_t length = options->buffer[i] ? strnlen((char *)options->buffer[i], options->room[i]) : 0;

		worker_add(lane, options->buffer[i], length + (length < options->room[i]));
	}
	for (unsigned int i = 0; i < options->count; i++) {
		uint64_t word = options->buffer[i] ? 0 : (uint64_t)(uintptr_t)options->value[i];

		worker_add(lane, &word, sizeof(word));
	}
}

static void free_options(struct options *options)
{
	for (unsigned int i = 0; i < options->count; i++)
		free(options->buffer[i]);
}

/* Logs of a link are written until it is destroyed. */
struct link {
	uint64_t handle;
	struct options options;
	struct link *next;
};

static struct {
	pthread_mutex_t lock;
	struct link *first;
} links = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct link *link_of(uint64_t handle)
{
	pthread_mutex_lock(&links.lock);
	struct link *link = links.first;

	while (link && link->handle != handle)
		link = link->next;
	pthread_mutex_unlock(&links.lock);
	return link;
}

void worker_link_gone(uint64_t handle)
{
	pthread_mutex_lock(&links.lock);
	for (struct link **at = &links.first; *at; at = &(*at)->next) {
		struct link *link = *at;

		if (link->handle == handle) {
			*at = link->next;
			free_options(&link->options);
			free(link);
			break;
		}
	}
	pthread_mutex_unlock(&links.lock);
}

uint64_t worker_load(struct worker_call *call, struct reader *reader)
{
	struct worker_lane *lane = call->lane;
	const struct call_load *want = worker_next(reader, sizeof(*want));
	struct options options = { 0 };
	CUlibraryOption chosen[JIT_OPTIONS];
	void *chosenvalue[JIT_OPTIONS];
	uint64_t made = 0, handle = 0, link = 0;
	unsigned int wrong = 0;

	if (!want || want->library > JIT_OPTIONS)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = take_options(reader, want->options, &options);
	const struct call_option *library = worker_next(reader, want->library * sizeof(*library));
	char *name = want->name && want->name <= NAME_BYTES ? worker_next(reader, want->name) : NULL;

	for (unsigned int i = 0; library && i < want->library; i++) {
		chosen[i] = (CUlibraryOption)library[i].option;
		chosenvalue[i] = (void *)(uintptr_t)library[i].value;
		if (chosen[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE && result == CUDA_SUCCESS)
			result = CUDA_ERROR_NOT_SUPPORTED;
	}
	if (!library || (name && name[want->name - 1]) || !worker_end_data(lane))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		switch (call->number) {
		case CALL_cuModuleLoadDataEx:
			result = lane->datalength ? DRIVER(cuModuleLoadDataEx)((CUmodule *)(void *)&made, lane->data, options.count, options.option, options.value)
						  : CUDA_ERROR_INVALID_IMAGE;
			handle = result == CUDA_SUCCESS ? worker_handle(KIND_CUmodule, made) : 0;
			break;
		case CALL_cuLibraryLoadData:
			result = !DRIVER(cuLibraryLoadData) ? CUDA_ERROR_NOT_SUPPORTED
				 : lane->datalength
					 ? DRIVER(cuLibraryLoadData)((CUlibrary *)(void *)&made, lane->data, options.option, options.value, options.count,
								     chosen, chosenvalue, want->library)
					 : CUDA_ERROR_INVALID_IMAGE;
			handle = result == CUDA_SUCCESS ? worker_handle(KIND_CUlibrary, made) : 0;
			break;
		default:
			link = worker_real_of(KIND_CUlinkState, want->link, &wrong);
			result = wrong ? wrong
				       : DRIVER(cuLinkAddData_v2)((CUlinkState)(uintptr_t)link, (CUjitInputType)want->type, lane->data, lane->datalength,
								  name, options.count, options.option, options.value);
			break;
		}
	}
	if (handle)
		worker_image_loaded(handle, lane->data, lane->datalength);
	worker_add(lane, &handle, sizeof(handle));
	add_options(lane, &options);
	if (call->number == CALL_cuLinkAddData_v2 && link_of(want->link))
		add_options(lane, &link_of(want->link)->options);
	free_options(&options);
	return result;
}

uint64_t worker_create_link(struct worker_call *call, struct reader *reader)
{
	const struct call_load *want = worker_next(reader, sizeof(*want));
	struct link *link = calloc(1, sizeof(*link));
	CUlinkState made = NULL;
	CUresult result = !want || !link ? CUDA_ERROR_INVALID_VALUE : take_options(reader, want->options, &link->options);

	if (result == CUDA_SUCCESS)
		result = DRIVER(cuLinkCreate_v2)(link->options.count, link->options.option, link->options.value, &made);
	if (result != CUDA_SUCCESS) {
		if (link)
			free_options(&link->options);
		free(link);
		return result;
	}
	link->handle = worker_handle(KIND_CUlinkState, (uint64_t)(uintptr_t)made);
	pthread_mutex_lock(&links.lock);
	link->next = links.first;
	links.first = link;
	pthread_mutex_unlock(&links.lock);
	worker_add(call->lane, &link->handle, sizeof(link->handle));
	add_options(call->lane, &link->options);
	return CUDA_SUCCESS;
}

uint64_t worker_complete_link(struct worker_call *call, struct reader *reader)
{
	const uint64_t *handle = worker_next(reader, sizeof(*handle));
	unsigned int wrong = 0;
	void *image = NULL;
	size_t bytes = 0;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t link = worker_real_of(KIND_CUlinkState, *handle, &wrong);
	CUresult result = wrong ? wrong : DRIVER(cuLinkComplete)((CUlinkState)(uintptr_t)link, &image, &bytes);

	worker_add(call->lane, image, result == CUDA_SUCCESS ? bytes : 0);
	if (link_of(*handle))
		add_options(call->lane, &link_of(*handle)->options);
	return result;
}
