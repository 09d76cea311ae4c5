/* SPDX-License-Identifier: Apache-2.0 */
#include "image.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WRAPPER_MAGIC 0x466243b1u /* of the struct that points to a fat binary */
#define CUDA_ABI_V2 8             /* LLVM's ELFABIVERSION_CUDA_V2 */

struct fat_wrapper {
	uint32_t magic;
	uint32_t version;
	const void *data;
	const void *more;
};

/* the size an ELF file's header implies; 0 if that is wrong, and the log says how */
static size_t elf_size(const unsigned char *data, size_t size, struct ptx_log *log)
{
	Elf64_Ehdr header;
	uint64_t sections = 0;
	uint64_t segments = 0;

	if (size && size < sizeof(header)) {
		ptx_fail(log, 0, "this ELF file is cut: it has %zu of the %zu bytes of its header", size,
			 sizeof(header));
		return 0;
	}
	memcpy(&header, data, sizeof(header));
	if (header.e_ident[EI_CLASS] != ELFCLASS64) {
		ptx_fail(log, 0, "this ELF file is not for 64 bits, as machine code for GPUs is");
		return 0;
	}
	bool past = __builtin_add_overflow(header.e_shoff, (uint64_t)header.e_shentsize * header.e_shnum, &sections) ||
		    __builtin_add_overflow(header.e_phoff, (uint64_t)header.e_phentsize * header.e_phnum, &segments);
	uint64_t whole = sections > segments ? sections : segments;

	if (past || whole < sizeof(header) || whole > SD_IMAGE_MOST) {
		ptx_fail(log, 0, "this ELF file is broken: by its header its tables end at no byte from %zu to %llu",
			 sizeof(header), SD_IMAGE_MOST);
		return 0;
	}
	if (size && size < whole) {
		ptx_fail(log, 0, "this ELF file is cut: it has %zu of its %zu bytes", size, (size_t)whole);
		return 0;
	}
	return whole;
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

/* A wrapper stands for what it points to. NULL: the log says what is wrong. */
static const void *unwrapped(const void *data, size_t *size, struct ptx_log *log)
{
	struct fat_wrapper wrapper;

	if (!data || !*(const unsigned char *)data || (*size && *size < sizeof(uint32_t))) {
		ptx_fail(log, 0, "this image is empty: it has fewer than 4 bytes, or the first is zero");
		return NULL;
	}
	if (is_text(data, *size) || magic_of(data) != WRAPPER_MAGIC)
		return data;
	if (*size && *size < sizeof(wrapper)) {
		ptx_fail(log, 0, "the wrapper of a fat binary is cut: it has %zu of its %zu bytes", *size,
			 sizeof(wrapper));
		return NULL;
	}
	memcpy(&wrapper, data, sizeof(wrapper));
	*size = 0;
	if (!wrapper.data)
		ptx_fail(log, 0, "the wrapper of a fat binary points to nothing");
	return wrapper.data;
}

size_t sd_image_size(const void *data, size_t size, struct ptx_log *log)
{
	size_t whole = is_text(data, size)				? text_size(data, size)
		       : memcmp(data, ELFMAG, SELFMAG) == 0		? elf_size(data, size, log)
									: sd_fat_size(data, size, log);

	if (whole && whole <= SD_IMAGE_MOST)
		return whole;
	ptx_fail(log, 0, "this image is larger than %llu bytes", SD_IMAGE_MOST); /* unless more is said already */
	return 0;
}

/*
 * Which cards a cubin is for: 90 for sm_90; 0: its header does not say. LLVM's BinaryFormat/ELF.h
 * has where: EF_CUDA_SM, and EF_CUDA_SM_MASK from the second ABI on, which is used of older cards,
 * too (0x06005a04: sm_90).
 */
static unsigned int machine_of(const void *data)
{
	Elf64_Ehdr header;

	memcpy(&header, data, sizeof(header));
	if (header.e_machine != EM_CUDA)
		return 0;
	return (header.e_ident[EI_ABIVERSION] >= CUDA_ABI_V2 ? header.e_flags >> 8 : header.e_flags) & 0xff;
}

/* data has a whole header: sd_image_size */
static int machine_code(const void *data, struct ptx_log *log)
{
	unsigned int machine = machine_of(data);

	if (machine)
		ptx_fail(log, 0, "machine code for sm_%u cannot be run on a simulated card; it needs PTX", machine);
	else
		ptx_fail(log, 0, "machine code cannot be run on a simulated card; it needs PTX");
	return -ENOEXEC;
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
	if (memcmp(data, ELFMAG, SELFMAG) == 0)
		return machine_code(data, log);
	return sd_fat_text(data, size, capability, text, length, made, log);
}

int sd_image_look(const void *data, size_t size, unsigned int capability, struct sd_text *text, struct ptx_log *log)
{
	*text = (struct sd_text){ .length = size };
	if (is_text(data, size)) {
		(void)ptx_head_read(data, size, &text->head);
		return 0;
	}
	if (memcmp(data, ELFMAG, SELFMAG) == 0)
		return machine_code(data, log);
	return sd_fat_look(data, size, capability, text, log);
}

static int cannot(unsigned int target, char only, unsigned int capability, struct ptx_log *log)
{
	return ptx_fail(log, 0, "PTX for sm_%u%.1s cannot be run by this card, which is sm_%u", target, &only, capability);
}

int sd_entrypoint_enter(struct sd_entrypoint *entry, const struct ptx_function *function, uint32_t constant)
{
	uint32_t count = 0;

	for (const struct ptx_variable *one = function->parameters; one; one = one->next)
		count++;
	if (!entry->name)
		entry->name = function->name;
	entry->function = function;
	free(entry->parameters);
	entry->parameters = calloc(count ? count : 1, sizeof(struct sd_parameter));
	entry->count = count;
	entry->bytes = function->parameterbytes;
	entry->shared = function->sharedbytes;
	entry->constant = constant;
	if (!entry->parameters)
		return -ENOMEM;
	count = 0;
	for (const struct ptx_variable *one = function->parameters; one; one = one->next)
		entry->parameters[count++] = (struct sd_parameter){ (uint32_t)one->offset, (uint32_t)one->bytes };
	return 0;
}

uint32_t sd_constant_bytes(const struct ptx_module *module)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < module->variablecount; i++)
		bytes += module->variables[i]->space == PTX_SPACE_CONST ? module->variables[i]->bytes : 0;
	return (uint32_t)bytes;
}

static int list_entries(struct sd_image *image)
{
	const struct ptx_module *module = image->module;
	uint32_t constant = sd_constant_bytes(module);
	size_t count = 0;
	int result = 0;

	for (uint32_t i = 0; i < module->functioncount; i++)
		count += module->functions[i]->entry;
	image->entries = calloc(count ? count : 1, sizeof(*image->entries));
	if (!image->entries)
		return -ENOMEM;
	for (uint32_t i = 0; result == 0 && i < module->functioncount; i++) {
		if (module->functions[i]->entry)
			result = sd_entrypoint_enter(&image->entries[image->entrycount++], module->functions[i], constant);
	}
	return result;
}

int sd_image_parse(struct sd_image *image, const char *text, size_t length, struct ptx_log *log)
{
	image->module = ptx_module_new();
	if (!image->module)
		return -ENOMEM;
	int result = ptx_parse(image->module, text, length, image->reading.maxversion, log);

	if (result < 0)
		return log->version ? -ENOTSUP : result;
	const struct ptx_module *module = image->module;

	image->version = module->version;
	image->target = module->target;
	image->wish = (struct sd_register_wish){ module->wishedregisters, module->wishedthreads };
	if (!sd_ptx_fits(module->target, module->only, image->reading.capability))
		return cannot(module->target, module->only, image->reading.capability, log);
	result = ptx_link(image->module, log);
	return result < 0 ? result : list_entries(image);
}

/* What can be said without reading on. */
static int put_off(struct sd_image *image, const struct ptx_head *head, struct ptx_log *log)
{
	const struct sd_reading *reading = &image->reading;

	image->lazy = true;
	image->version = head->version;
	image->target = head->target;
	if (head->version > reading->maxversion) {
		log->version = true;
		ptx_fail(log, 0, "PTX version %u.%u is newer than %u.%u, the newest that this driver reads", head->version / 10,
			 head->version % 10, reading->maxversion / 10, reading->maxversion % 10);
		return -ENOTSUP;
	}
	return sd_ptx_fits(head->target, head->only, reading->capability)
		       ? 0
		       : cannot(head->target, head->only, reading->capability, log);
}

int sd_image_begin(const void *data, size_t size, const struct sd_reading *reading, struct sd_image *image,
		   struct ptx_log *log)
{
	struct sd_text text;

	*image = (struct sd_image){ .reading = *reading };
	*log = (struct ptx_log){ 0 };
	data = unwrapped(data, &size, log);
	if (!data)
		return -EINVAL;
	size = sd_image_size(data, size, log);
	if (!size)
		return -EINVAL;
	image->source = sd_source_new(data, size);
	if (!image->source)
		return -ENOMEM;
	image->size = size;
	int result = sd_image_look(image->source->bytes, size, reading->capability, &text, log);

	if (result == 0 && text.head.version && (reading->loading == SD_LOAD_LAZY || (reading->loading == SD_LOAD_USUAL && text.length > SD_WHOLE_MOST))) {
		result = put_off(image, &text.head, log);
	} else if (result == 0) {
		result = sd_source_expand(image->source, reading->capability, true, log);
		if (result == 0)
			result = sd_image_parse(image, image->source->text, image->source->length, log);
		free(image->source->made); /* the tree keeps nothing of it */
		image->source->made = NULL;
		image->source->text = NULL;
	}
	if (result < 0)
		sd_image_free(image);
	return result;
}

int sd_image_again(const struct sd_image *image, const struct sd_reading *reading, struct sd_image *out,
		   struct ptx_log *log)
{
	const struct sd_source *source = image->source;

	if (!image->lazy || image->reading.capability != reading->capability)
		return source->bytes ? sd_image_begin(source->bytes, source->size, reading, out, log)
				     : sd_image_begin(source->text, source->length, reading, out, log);
	*log = (struct ptx_log){ 0 };
	*out = (struct sd_image){
		.source = sd_source_share(image->source),
		.size = image->size,
		.reading = *reading,
		.lazy = true,
		.version = image->version,
		.target = image->target,
	};
	return 0;
}

int sd_image_read(const void *data, size_t size, unsigned int maxversion, unsigned int capability,
		  struct sd_image *image, struct ptx_log *log)
{
	const struct sd_reading reading = { maxversion, capability, SD_LOAD_EAGER, false };

	return sd_image_begin(data, size, &reading, image, log);
}

void sd_image_settle(struct sd_image *image)
{
	if (image->lazy)
		return;
	sd_source_drop(image->source);
	image->source = NULL;
}

static uint32_t most_threads(const struct sd_entrypoint *entry)
{
	const struct ptx_function *kernel = entry->function;
	const uint32_t *block = kernel->reqntid[0] ? kernel->reqntid : kernel->maxntid;
	uint64_t promised = (uint64_t)block[0] * block[1] * block[2];
	uint32_t most = sd_registers_threads(entry->registers);

	return promised && promised < most ? (uint32_t)promised : most;
}

void sd_entrypoint_compiled(struct sd_entrypoint *entry, const struct ptx_code *code, const struct sd_register_wish *wish)
{
	uint32_t needed = ptx_code_registers(code, entry->function);

	entry->ready = true;
	entry->code = code;
	entry->registers = sd_registers_given(entry->function, needed, wish);
	entry->local = ptx_code_local(code, entry->function) + (needed - entry->registers) * (uint32_t)sizeof(uint32_t);
	entry->maxthreads = most_threads(entry);
}

int sd_image_compile(struct sd_image *image, struct ptx_log *log)
{
	int result = ptx_compile(image->module, image->reading.loading == SD_LOAD_EAGER, log, &image->code);
	const struct sd_entrypoint *first = NULL;
	size_t refused = 0;

	for (size_t i = 0; result == 0 && i < image->entrycount; i++) {
		struct sd_entrypoint *entry = &image->entries[i];

		sd_entrypoint_compiled(entry, image->code, &image->wish);
		entry->refused = ptx_code_refused(image->code, entry->function);
		first = !first && entry->refused ? entry : first;
		refused += entry->refused != NULL;
	}
	if (!refused)
		return result;
	if (refused == image->entrycount)
		return ptx_fail(log, 0, "%s", first->refused);
	ptx_fail(log, 0, "kernel '%.100s' cannot be run here: %s", first->name, first->refused);
	return 0;
}

void sd_image_free(struct sd_image *image)
{
	for (size_t i = 0; i < image->entrycount; i++) {
		struct sd_entrypoint *entry = &image->entries[i];

		free(entry->parameters);
		ptx_code_free(entry->made);
		ptx_module_free(entry->tree);
		free(entry->text);
		free(entry->reason);
	}
	free(image->entries);
	ptx_code_free(image->code);
	ptx_module_free(image->module);
	sd_source_drop(image->source);
	*image = (struct sd_image){ 0 };
}

struct sd_entrypoint *sd_image_entry(const struct sd_image *image, const char *name)
{
	for (size_t i = 0; i < image->entrycount; i++) {
		if (strcmp(image->entries[i].name, name) == 0)
			return &image->entries[i];
	}
	return NULL;
}
