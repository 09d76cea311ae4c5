/* SPDX-License-Identifier: Apache-2.0 */
#include "image.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WRAPPER_MAGIC 0x466243b1u /* of the struct that points to a fat binary */

struct fat_wrapper {
	uint32_t magic;
	uint32_t version;
	const void *data;
	const void *more;
};

/* the size an ELF file's header implies */
static size_t elf_size(const unsigned char *data, size_t size)
{
	Elf64_Ehdr header;
	uint64_t sections;
	uint64_t segments;

	if (size && size < sizeof(header))
		return 0;
	memcpy(&header, data, sizeof(header));
	if (header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    __builtin_add_overflow(header.e_shoff, (uint64_t)header.e_shentsize * header.e_shnum, &sections) ||
	    __builtin_add_overflow(header.e_phoff, (uint64_t)header.e_phentsize * header.e_phnum, &segments))
		return 0;
	uint64_t whole = sections > segments ? sections : segments;

	return whole >= sizeof(header) && whole <= SD_IMAGE_MOST && (!size || whole <= size) ? whole : 0;
}

/* up to the NUL, or to the size given; without either it is no text */
static size_t text_size(const char *text, size_t size)
{
	const char *end = memchr(text, '\0', size ? size : SD_IMAGE_MOST);

	return end ? (size_t)(end - text) : size;
}

static bool is_text(const char *text, size_t size)
{
	for (size_t i = 0; size ? i < size && i < 16 : i < 16; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '\0')
			return i > 0;
		if (c < 32 && !isspace(c))
			return false;
		if (c == '.' || c == '/')
			return true; /* a directive or a comment */
		if (!isspace(c))
			return false;
	}
	return true; /* white space: the parser will tell */
}

static uint32_t magic_of(const void *data)
{
	uint32_t magic;

	memcpy(&magic, data, sizeof(magic));
	return magic;
}

/* A wrapper stands for what it points to. */
static const void *unwrapped(const void *data, size_t *size)
{
	struct fat_wrapper wrapper;

	if (!data || !*(const unsigned char *)data || (*size && *size < sizeof(uint32_t)))
		return NULL; /* every image's first byte is something */
	if (is_text(data, *size) || magic_of(data) != WRAPPER_MAGIC)
		return data;
	if (*size && *size < sizeof(wrapper))
		return NULL;
	memcpy(&wrapper, data, sizeof(wrapper));
	*size = 0;
	return wrapper.data;
}

size_t sd_image_size(const void *data, size_t size)
{
	size_t whole = is_text(data, size)				? text_size(data, size)
		       : memcmp(data, ELFMAG, SELFMAG) == 0		? elf_size(data, size)
									: sd_fat_size(data, size);

	return whole <= SD_IMAGE_MOST ? whole : 0;
}

int sd_image_text(const void *data, size_t size, unsigned int capability, const char **text, size_t *length,
		  unsigned char **made, struct ptx_log *log)
{
	*made = NULL;
	if (is_text(data, size)) {
		*text = data;
		*length = size;
		return 0;
	}
	if (memcmp(data, ELFMAG, SELFMAG) == 0) {
		ptx_fail(log, 0, "machine code cannot be run on a simulated card; it needs PTX");
		return -ENOEXEC;
	}
	return sd_fat_text(data, size, capability, text, length, made, log);
}

static int parse(struct sd_image *image, const char *text, size_t length, unsigned int maxversion,
		 unsigned int capability, struct ptx_log *log)
{
	image->module = ptx_module_new();
	if (!image->module)
		return -ENOMEM;
	int result = ptx_parse(image->module, text, length, maxversion, log);

	if (result < 0)
		return log->version ? -ENOTSUP : result;
	const struct ptx_module *module = image->module;

	image->version = module->version;
	image->target = module->target;
	image->wish = (struct sd_register_wish){ module->wishedregisters, module->wishedthreads };
	if (!sd_ptx_fits(module->target, module->only, capability))
		return ptx_fail(log, 0, "PTX for sm_%u%.1s cannot be run by this card, which is sm_%u", module->target,
				&module->only, capability);
	return ptx_link(image->module, log);
}

static int enter(struct sd_entrypoint *entry, const struct ptx_function *function, uint32_t constant)
{
	uint32_t count = 0;

	for (const struct ptx_variable *one = function->parameters; one; one = one->next)
		count++;
	*entry = (struct sd_entrypoint){
		.name = function->name,
		.function = function,
		.parameters = calloc(count ? count : 1, sizeof(struct sd_parameter)),
		.count = count,
		.bytes = function->parameterbytes,
		.shared = function->sharedbytes,
		.constant = constant,
	};
	if (!entry->parameters)
		return -ENOMEM;
	count = 0;
	for (const struct ptx_variable *one = function->parameters; one; one = one->next)
		entry->parameters[count++] = (struct sd_parameter){ (uint32_t)one->offset, (uint32_t)one->bytes };
	return 0;
}

static int list_entries(struct sd_image *image)
{
	const struct ptx_module *module = image->module;
	uint64_t constant = 0;
	size_t count = 0;
	int result = 0;

	for (uint32_t i = 0; i < module->functioncount; i++)
		count += module->functions[i]->entry;
	for (uint32_t i = 0; i < module->variablecount; i++)
		constant += module->variables[i]->space == PTX_SPACE_CONST ? module->variables[i]->bytes : 0;
	image->entries = calloc(count ? count : 1, sizeof(*image->entries));
	if (!image->entries)
		return -ENOMEM;
	for (uint32_t i = 0; result == 0 && i < module->functioncount; i++) {
		if (module->functions[i]->entry)
			result = enter(&image->entries[image->entrycount++], module->functions[i], (uint32_t)constant);
	}
	return result;
}

int sd_image_read(const void *data, size_t size, unsigned int maxversion, unsigned int capability,
		  struct sd_image *image, struct ptx_log *log)
{
	const char *text = NULL;
	unsigned char *made = NULL;
	size_t length = 0;

	*image = (struct sd_image){ 0 };
	*log = (struct ptx_log){ 0 };
	data = unwrapped(data, &size);
	if (!data)
		return -EINVAL;
	size = sd_image_size(data, size);
	if (!size)
		return -EINVAL;
	image->bytes = malloc(size + 1);
	if (!image->bytes)
		return -ENOMEM;
	memcpy(image->bytes, data, size);
	image->bytes[size] = '\0';
	image->size = size;
	int result = sd_image_text(image->bytes, size, capability, &text, &length, &made, log);

	if (result == 0)
		result = parse(image, text, length, maxversion, capability, log);
	free(made); /* the tree keeps nothing of it */
	if (result == 0)
		result = list_entries(image);
	if (result < 0)
		sd_image_free(image);
	return result;
}

static uint32_t most_threads(const struct sd_entrypoint *entry)
{
	const struct ptx_function *kernel = entry->function;
	const uint32_t *block = kernel->reqntid[0] ? kernel->reqntid : kernel->maxntid;
	uint64_t promised = (uint64_t)block[0] * block[1] * block[2];
	uint32_t most = sd_registers_threads(entry->registers);

	return promised && promised < most ? (uint32_t)promised : most;
}

int sd_image_compile(struct sd_image *image, struct ptx_log *log)
{
	int result = ptx_compile(image->module, log, &image->code);

	for (size_t i = 0; result == 0 && i < image->entrycount; i++) {
		struct sd_entrypoint *entry = &image->entries[i];

		uint32_t needed = ptx_code_registers(image->code, entry->function);

		entry->registers = sd_registers_given(entry->function, needed, &image->wish);
		entry->local = ptx_code_local(image->code, entry->function) + (needed - entry->registers) * sizeof(uint32_t);
		entry->maxthreads = most_threads(entry);
	}
	return result;
}

void sd_image_free(struct sd_image *image)
{
	for (size_t i = 0; i < image->entrycount; i++)
		free(image->entries[i].parameters);
	free(image->entries);
	ptx_code_free(image->code);
	ptx_module_free(image->module);
	free(image->bytes);
	*image = (struct sd_image){ 0 };
}

const struct sd_entrypoint *sd_image_entry(const struct sd_image *image, const char *name)
{
	for (size_t i = 0; i < image->entrycount; i++) {
		if (strcmp(image->entries[i].name, name) == 0)
			return &image->entries[i];
	}
	return NULL;
}
