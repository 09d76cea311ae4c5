/* SPDX-License-Identifier: Apache-2.0 */
/*
 * module.c: modules, libraries and links. An image goes over as it is; how long it is,
 * its own head says. Names of files are of this machine: they are read here.
 */
#include "remote.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "payload.h"

#define FAT_MAGIC 0xba55ed50u     /* of a fat binary: u32 magic, u16 version, u16 head, u64 bytes behind the head */
#define WRAPPER_MAGIC 0x466243b1u /* of what nvcc's programs have: u32 magic, u32 version, pointer to a fat binary */

struct image {
	const void *at;
	size_t bytes;
	void *own; /* what to free afterwards */
};

/* Bytes of an ELF image: to the end of what lies last in it. */
static size_t elf_bytes(const Elf64_Ehdr *elf)
{
	uint64_t end = elf->e_ehsize;
	const uint8_t *base = (const uint8_t *)elf;
	uint64_t tables[2][2] = { { elf->e_shoff, (uint64_t)elf->e_shnum * elf->e_shentsize },
				  { elf->e_phoff, (uint64_t)elf->e_phnum * elf->e_phentsize } };

	for (int i = 0; i < 2; i++) {
		if (tables[i][0] > IMAGE_BYTES)
			return 0;
		if (tables[i][0] + tables[i][1] > end)
			end = tables[i][0] + tables[i][1];
	}
	for (uint32_t i = 0; i < elf->e_shnum && elf->e_shoff && elf->e_shentsize >= sizeof(Elf64_Shdr); i++) {
		const Elf64_Shdr *section = (const void *)(base + elf->e_shoff + (uint64_t)i * elf->e_shentsize);

		if (section->sh_type == SHT_NOBITS || section->sh_offset > IMAGE_BYTES || section->sh_size > IMAGE_BYTES)
			continue;
		if (section->sh_offset + section->sh_size > end)
			end = section->sh_offset + section->sh_size;
	}
	return end;
}

/* Where an image ends is known by what it is. */
static CUresult measure(const void *image, struct image *out)
{
	uint32_t magic;

	if (!image)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&magic, image, 1); /* of a text of one byte no more may be read */
	if (*(const char *)image != '\0')
		magic = 0;
	const unsigned char *bytes = image;

	if (bytes[0] == 0xb1 || bytes[0] == 0x50 || bytes[0] == 0x7f)
		memcpy(&magic, image, sizeof(magic));
	if (magic == WRAPPER_MAGIC) {
		memcpy(&image, bytes + 8, sizeof(image));
		if (!image)
			return CUDA_ERROR_INVALID_IMAGE;
		bytes = image;
		memcpy(&magic, image, sizeof(magic));
	}
	out->at = image;
	if (magic == FAT_MAGIC) {
		uint16_t head;
		uint64_t rest;

		memcpy(&head, bytes + 6, sizeof(head));
		memcpy(&rest, bytes + 8, sizeof(rest));
		out->bytes = rest > IMAGE_BYTES ? 0 : head + rest;
	} else if (memcmp(bytes, ELFMAG, 1) == 0 && memcmp(bytes, ELFMAG, SELFMAG) == 0) {
		out->bytes = elf_bytes(image);
	} else {
		out->bytes = strlen(image) + 1;
	}
	return out->bytes && out->bytes <= IMAGE_BYTES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

/* A file of this machine, with a zero behind it. */
static CUresult read_file(const char *name, struct image *out)
{
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	if (fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	off_t end = lseek(fd, 0, SEEK_END);

	if (end < 1 || (uint64_t)end > IMAGE_BYTES || lseek(fd, 0, SEEK_SET) != 0) {
		close(fd);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	size_t bytes = (size_t)end, have = 0;
	uint8_t *own = malloc(bytes + 1);

	while (own && have < bytes) {
		ssize_t n = read(fd, own + have, bytes - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		have += (size_t)n;
	}
	close(fd);
	if (!own)
		return CUDA_ERROR_OUT_OF_MEMORY;
	own[have] = 0;
	*out = (struct image){ .at = own, .bytes = have + 1, .own = own };
	return CUDA_SUCCESS;
}

/* Options of the JIT. Those whose value is a buffer get it filled from the reply. */
/* How large the buffer of an option is, by the option after whose name it is. */
static uint64_t buffer_bytes(unsigned int buffer, unsigned int count, const CUjit_option *options, void **values)
{
	unsigned int size = buffer == CU_JIT_INFO_LOG_BUFFER ? CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES : CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;

	for (unsigned int i = 0; i < count; i++) {
		if ((unsigned int)options[i] == size)
			return (uint32_t)WORD(values[i]);
	}
	return 0;
}

static bool put_options(struct remote_lane *lane, unsigned int count, const CUjit_option *options, void **values)
{
	for (unsigned int i = 0; i < count; i++) {
		unsigned int option = (unsigned int)options[i];
		struct call_option one = {
			.option = option,
			.value = call_is_buffer(option) ? (values[i] ? buffer_bytes(option, count, options, values) : 0) : WORD(values[i]),
		};

		if (!remote_put(&lane->out, &one, sizeof(one)))
			return false;
	}
	return true;
}

/* The reply's values of options: of buffers their text. */
static void take_options(struct remote_lane *lane, size_t *at, unsigned int count, const CUjit_option *options, void **values)
{
	for (unsigned int i = 0; i < count; i++) {
		size_t length = 0;
		const void *bytes = remote_next(lane, at, &length);
		unsigned int option = (unsigned int)options[i];

		if (!bytes)
			return;
		if (call_is_buffer(option)) {
			size_t room = values[i] ? buffer_bytes(option, count, options, values) : 0;

			if (length > room)
				length = room;
			if (length)
				memcpy(values[i], bytes, length);
		}
	}
	for (unsigned int i = 0; i < count; i++) { /* sizes after the buffers that they are of */
		size_t length = 0;
		const void *bytes = remote_next(lane, at, &length);
		unsigned int option = (unsigned int)options[i];
		uint64_t word = 0;

		if (!bytes || length != sizeof(word))
			return;
		memcpy(&word, bytes, sizeof(word));
		if (option == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || option == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES || option == CU_JIT_WALL_TIME ||
		    option == CU_JIT_THREADS_PER_BLOCK)
			values[i] = (void *)(uintptr_t)word;
	}
}

struct load {
	unsigned int number;
	struct call_load want;
	const char *name;
	const CUjit_option *options;
	void **values;
	const CUlibraryOption *libraryoptions;
	void **libraryvalues;
};

static CUresult load(const struct load *load, const struct image *image, uint64_t *made)
{
	struct remote_lane *lane = remote_lane();
	size_t at = sizeof(uint64_t), length = 0;

	if (!lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (load->want.options > JIT_OPTIONS || load->want.library > JIT_OPTIONS || (load->want.options && (!load->options || !load->values)) ||
	    (load->want.library && !load->libraryoptions) || load->want.name > NAME_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	if (image && !remote_send_data(lane, image->at, image->bytes))
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	bool put = remote_begin(lane) && remote_put(&lane->out, &load->want, sizeof(load->want)) &&
		   put_options(lane, load->want.options, load->options, load->values);

	for (unsigned int i = 0; put && i < load->want.library; i++) {
		struct call_option one = {
			.option = (uint32_t)load->libraryoptions[i],
			.value = load->libraryvalues ? WORD(load->libraryvalues[i]) : 0,
		};

		put = remote_put(&lane->out, &one, sizeof(one));
	}
	if (!put || !remote_put(&lane->out, load->name, load->want.name))
		return CUDA_ERROR_OUT_OF_MEMORY;
	lane->in.length = 0;
	CUresult result = (CUresult)remote_finish(lane, load->number);

	if (lane->in.length > sizeof(uint64_t)) {
		const void *handle = remote_next(lane, &at, &length);

		if (handle && length == sizeof(*made) && result == CUDA_SUCCESS && made)
			memcpy(made, handle, sizeof(*made));
		take_options(lane, &at, load->want.options, load->options, load->values);
	}
	return result;
}

static CUresult load_module(CUmodule *module, const struct image *image, unsigned int count, CUjit_option *options, void **values)
{
	const struct load one = {
		.number = CALL_cuModuleLoadDataEx,
		.want = { .options = count },
		.options = options,
		.values = values,
	};

	return load(&one, image, (uint64_t *)(void *)module);
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
				   void **optionValues)
{
	struct image measured = { 0 };

	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = measure(image, &measured);

	return result ? result : load_module(module, &measured, numOptions, options, optionValues);
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	return cuModuleLoadDataEx(module, fatCubin, 0, NULL, NULL);
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
	struct image image = { 0 };

	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = read_file(fname, &image);

	if (result == CUDA_SUCCESS)
		result = load_module(module, &image, 0, NULL, NULL);
	free(image.own);
	return result;
}

static CUresult load_library(CUlibrary *library, const struct image *image, CUjit_option *jitOptions, void **jitOptionsValues,
			     unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
			     unsigned int numLibraryOptions)
{
	const struct load one = {
		.number = CALL_cuLibraryLoadData,
		.want = { .options = numJitOptions, .library = numLibraryOptions },
		.options = jitOptions,
		.values = jitOptionsValues,
		.libraryoptions = libraryOptions,
		.libraryvalues = libraryOptionValues,
	};

	/* a table of functions of the host is a pointer */
	for (unsigned int i = 0; i < numLibraryOptions && libraryOptions; i++) {
		if (libraryOptions[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return load(&one, image, (uint64_t *)(void *)library);
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
				  unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
				  unsigned int numLibraryOptions)
{
	struct image image = { 0 };

	if (!library)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = measure(code, &image);

	return result ? result
		      : load_library(library, &image, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
				     numLibraryOptions);
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions, void **jitOptionsValues,
				      unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
				      unsigned int numLibraryOptions)
{
	struct image image = { 0 };

	if (!library)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = read_file(fileName, &image);

	if (result == CUDA_SUCCESS)
		result = load_library(library, &image, jitOptions, jitOptionsValues, numJitOptions, libraryOptions, libraryOptionValues,
				      numLibraryOptions);
	free(image.own);
	return result;
}

/* Links. What the options of cuLinkCreate point to is written until the link is
 * destroyed; what cuLinkComplete gives out stays as long. */

struct link {
	uint64_t handle;
	unsigned int count;
	CUjit_option options[JIT_OPTIONS];
	void *values[JIT_OPTIONS];
	void **theirs;
	void *image;
	struct link *next;
};

static struct {
	pthread_mutex_t lock;
	struct link *first;
} links = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct link *link_of(uint64_t handle)
{
	struct link *link;

	pthread_mutex_lock(&links.lock);
	for (link = links.first; link && link->handle != handle; link = link->next)
		;
	pthread_mutex_unlock(&links.lock);
	return link;
}

EXPORT CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
	if (!stateOut || numOptions > JIT_OPTIONS || (numOptions && (!options || !optionValues)))
		return CUDA_ERROR_INVALID_VALUE;
	struct link *link = calloc(1, sizeof(*link));
	const struct load one = { .number = CALL_cuLinkCreate_v2, .want = { .options = numOptions }, .options = options, .values = optionValues };

	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = load(&one, NULL, &link->handle);

	if (result != CUDA_SUCCESS) {
		free(link);
		return result;
	}
	link->count = numOptions;
	link->theirs = optionValues;
	if (numOptions) {
		memcpy(link->options, options, numOptions * sizeof(*options));
		memcpy(link->values, optionValues, numOptions * sizeof(*optionValues));
	}
	pthread_mutex_lock(&links.lock);
	link->next = links.first;
	links.first = link;
	pthread_mutex_unlock(&links.lock);
	*stateOut = (CUlinkState)(uintptr_t)link->handle;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkCreate(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
	return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}

/* The link's logs come with each answer about it. */
static void take_logs(struct remote_lane *lane, size_t *at, struct link *link)
{
	if (!link)
		return;
	take_options(lane, at, link->count, link->options, link->values);
	for (unsigned int i = 0; i < link->count; i++) {
		if (!call_is_buffer((unsigned int)link->options[i]))
			link->theirs[i] = link->values[i];
	}
}

static CUresult add(CUlinkState state, CUjitInputType type, const struct image *image, const char *name, unsigned int count,
		    CUjit_option *options, void **values)
{
	const struct load one = {
		.number = CALL_cuLinkAddData_v2,
		.want = { .link = WORD(state), .type = (uint32_t)type, .options = count, .name = name ? (uint32_t)strlen(name) + 1 : 0 },
		.name = name,
		.options = options,
		.values = values,
	};
	struct remote_lane *lane = remote_lane();
	CUresult result = load(&one, image, NULL);
	size_t at = sizeof(uint64_t), length = 0;

	if (lane && lane->in.length > at) {
		for (unsigned int i = 0; i < 1 + 2 * count; i++)
			(void)remote_next(lane, &at, &length);
		take_logs(lane, &at, link_of(WORD(state)));
	}
	return result;
}

EXPORT CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
				 unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	const struct image image = { .at = data, .bytes = size };

	if (!data || !size || size > IMAGE_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	return add(state, type, &image, name, numOptions, options, optionValues);
}

EXPORT CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
			      unsigned int numOptions, CUjit_option *options, void **optionValues)
{
	return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}

EXPORT CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
				 CUjit_option *options, void **optionValues)
{
	struct image image = { 0 };
	CUresult result = read_file(path, &image);

	if (result == CUDA_SUCCESS) {
		image.bytes -= type != CU_JIT_INPUT_PTX; /* the zero at its end is a text's */
		result = add(state, type, &image, path, numOptions, options, optionValues);
	}
	free(image.own);
	return result;
}

EXPORT CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
			      CUjit_option *options, void **optionValues)
{
	return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}

EXPORT CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
	struct remote_lane *lane = remote_lane();
	struct link *link = link_of(WORD(state));
	size_t at = sizeof(uint64_t), length = 0;

	if (!lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!remote_begin(lane) || !remote_put_word(&lane->out, WORD(state)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	lane->in.length = 0;
	CUresult result = (CUresult)remote_finish(lane, CALL_cuLinkComplete);
	const void *image = lane->in.length > at ? remote_next(lane, &at, &length) : NULL;

	if (result == CUDA_SUCCESS && link && image) {
		free(link->image);
		link->image = malloc(length ? length : 1);
		if (link->image) {
			memcpy(link->image, image, length);
			if (cubinOut)
				*cubinOut = link->image;
			if (sizeOut)
				*sizeOut = length;
		} else {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	take_logs(lane, &at, link);
	return result;
}

EXPORT CUresult cuLinkDestroy(CUlinkState state)
{
	const uint64_t values[] = { WORD(state) };
	CUresult result = (CUresult)remote_call(CALL_cuLinkDestroy, 0, values);

	pthread_mutex_lock(&links.lock);
	for (struct link **at = &links.first; *at; at = &(*at)->next) {
		struct link *link = *at;

		if (link->handle == values[0]) {
			*at = link->next;
			free(link->image);
			free(link);
			break;
		}
	}
	pthread_mutex_unlock(&links.lock);
	return result;
}
