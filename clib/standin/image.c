/* SPDX-License-Identifier: Apache-2.0 */
#include "image.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FAT_MAGIC 0xba55ed50u     /* of the container */
#define WRAPPER_MAGIC 0x466243b1u /* of the struct that points to one */

struct fat_header {
	uint32_t magic;
	uint16_t version;
	uint16_t headerbytes;
	uint64_t bytes; /* after the header */
};

struct fat_wrapper {
	uint32_t magic;
	uint32_t version;
	const void *data;
	const void *more;
};

/* the size an ELF file's header implies */
static size_t elf_size(const unsigned char *data)
{
	Elf64_Ehdr header;
	uint64_t sections;
	uint64_t segments;

	memcpy(&header, data, sizeof(header));
	if (header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    __builtin_add_overflow(header.e_shoff, (uint64_t)header.e_shentsize * header.e_shnum, &sections) ||
	    __builtin_add_overflow(header.e_phoff, (uint64_t)header.e_phentsize * header.e_phnum, &segments))
		return 0;
	uint64_t size = sections > segments ? sections : segments;

	return size >= sizeof(header) && size <= SD_IMAGE_MOST ? size : 0;
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
	return true; /* white space: the scan will tell */
}

int sd_image_read(const void *data, size_t size, unsigned int maxversion, struct sd_image *image)
{
	uint32_t magic;

	*image = (struct sd_image){ 0 };
	if (!data || !*(const unsigned char *)data || (size && size < sizeof(magic)))
		return -EINVAL; /* every image's first byte is something */
	if (is_text(data, size)) {
		image->kind = SD_IMAGE_PTX;
		size = text_size(data, size);
	} else {
		memcpy(&magic, data, sizeof(magic));
		if (magic == WRAPPER_MAGIC) {
			struct fat_wrapper wrapper;

			memcpy(&wrapper, data, sizeof(wrapper));
			data = wrapper.data;
			size = 0;
			if (!data)
				return -EINVAL;
			memcpy(&magic, data, sizeof(magic));
		}
		if (magic == FAT_MAGIC) {
			struct fat_header header;

			if (size && size < sizeof(header))
				return -EINVAL;
			memcpy(&header, data, sizeof(header));
			if (header.bytes > SD_IMAGE_MOST || header.headerbytes < sizeof(header))
				return -EINVAL;
			size_t whole = header.headerbytes + header.bytes;

			if (size && size < whole)
				return -EINVAL;
			size = whole;
			image->kind = SD_IMAGE_FAT;
		} else if (memcmp(&magic, ELFMAG, SELFMAG) == 0) {
			size_t whole = size && size < sizeof(Elf64_Ehdr) ? 0 : elf_size(data);

			if (!whole || (size && size < whole))
				return -EINVAL;
			size = whole;
			image->kind = SD_IMAGE_CUBIN;
		} else {
			return -EINVAL;
		}
	}
	if (!size || size > SD_IMAGE_MOST)
		return -EINVAL;
	image->bytes = malloc(size + 1);
	if (!image->bytes)
		return -ENOMEM;
	memcpy(image->bytes, data, size);
	image->bytes[size] = '\0';
	image->size = size;
	int result = image->kind == SD_IMAGE_PTX     ? sd_ptx_scan(image, maxversion)
		     : image->kind == SD_IMAGE_CUBIN ? sd_cubin_scan(image)
						     : 0;

	if (result < 0)
		sd_image_free(image);
	return result;
}

void sd_image_free(struct sd_image *image)
{
	for (size_t i = 0; i < image->entrycount; i++) {
		free(image->entries[i].name);
		free(image->entries[i].parameters);
	}
	for (size_t i = 0; i < image->variablecount; i++) {
		free(image->variables[i].name);
		free(image->variables[i].initial);
	}
	free(image->entries);
	free(image->variables);
	free(image->bytes);
	*image = (struct sd_image){ 0 };
}

bool sd_image_mentions(const struct sd_image *image, const char *name)
{
	size_t length = strlen(name);
	const unsigned char *at = image->bytes;
	const unsigned char *end = image->bytes + image->size;

	if (!length)
		return false;
	while ((at = memmem(at, (size_t)(end - at), name, length))) {
		unsigned char before = at > image->bytes ? at[-1] : 0;
		unsigned char after = at + length < end ? at[length] : 0;

		/* a whole name: a string of its own, or after the dot of a section's name */
		if (!isalnum(after) && after != '_' && after != '$' && !isalnum(before) && before != '_' && before != '$')
			return true;
		at++;
	}
	return false;
}
