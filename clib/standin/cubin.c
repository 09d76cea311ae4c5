/* SPDX-License-Identifier: Apache-2.0 */
/* cubin.c: the symbols of an ELF image: functions and variables with their sizes. */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

static const void *part(const struct sd_image *image, uint64_t offset, uint64_t bytes)
{
	return offset <= image->size && bytes <= image->size - offset ? image->bytes + offset : NULL;
}

/* a string of a string section, or NULL */
static const char *string(const struct sd_image *image, const Elf64_Shdr *section, uint64_t offset)
{
	const char *all = part(image, section->sh_offset, section->sh_size);

	if (!all || offset >= section->sh_size || !memchr(all + offset, '\0', section->sh_size - offset))
		return NULL;
	return all + offset;
}

static int add_function(struct sd_image *image, const char *name)
{
	struct sd_entrypoint *more = realloc(image->entries, (image->entrycount + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	image->entries = more;
	more[image->entrycount] = (struct sd_entrypoint){ .name = strdup(name) };
	if (!more[image->entrycount].name)
		return -ENOMEM;
	image->entrycount++;
	return 0;
}

static int add_variable(struct sd_image *image, const char *name, const Elf64_Sym *symbol, const Elf64_Shdr *section,
			const char *sectionname)
{
	struct sd_variable made = {
		.bytes = symbol->st_size,
		.align = 8,
		.constant = strncmp(sectionname, ".nv.constant", 12) == 0,
	};
	struct sd_variable *more = realloc(image->variables, (image->variablecount + 1) * sizeof(*more));
	const void *initial = NULL;

	if (!more)
		return -ENOMEM;
	image->variables = more;
	if (section->sh_type == SHT_PROGBITS && symbol->st_value <= section->sh_size &&
	    symbol->st_size <= section->sh_size - symbol->st_value)
		initial = part(image, section->sh_offset + symbol->st_value, symbol->st_size);
	made.name = strdup(name);
	if (!made.name)
		return -ENOMEM;
	if (initial) {
		made.initial = malloc(symbol->st_size);
		if (!made.initial) {
			free(made.name);
			return -ENOMEM;
		}
		memcpy(made.initial, initial, symbol->st_size);
	}
	more[image->variablecount++] = made;
	return 0;
}

static int add_symbol(struct sd_image *image, const Elf64_Shdr *sections, size_t count, const Elf64_Shdr *names,
		      const char *name, const Elf64_Sym *symbol)
{
	unsigned int type = ELF64_ST_TYPE(symbol->st_info);

	if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= count || !name || !*name)
		return 0;
	const Elf64_Shdr *section = &sections[symbol->st_shndx];
	const char *sectionname = string(image, names, section->sh_name);

	if (!sectionname || image->entrycount >= SD_IMAGE_NAMES || image->variablecount >= SD_IMAGE_NAMES)
		return 0;
	/* a kernel has a section of code of its own */
	if (type == STT_FUNC && strncmp(sectionname, ".text.", 6) == 0 && strcmp(sectionname + 6, name) == 0)
		return add_function(image, name);
	if (type == STT_OBJECT && symbol->st_size && symbol->st_size <= SD_IMAGE_VARIABLE &&
	    (strncmp(sectionname, ".nv.global", 10) == 0 || strncmp(sectionname, ".nv.constant3", 13) == 0))
		return add_variable(image, name, symbol, section, sectionname);
	return 0;
}

int sd_cubin_scan(struct sd_image *image)
{
	Elf64_Ehdr header;
	int result = 0;

	memcpy(&header, image->bytes, sizeof(header));
	if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff % 8)
		return 0; /* no sections to read: names are looked for by their bytes */
	const Elf64_Shdr *sections = part(image, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr));

	if (!sections || header.e_shstrndx >= header.e_shnum)
		return 0;
	for (size_t i = 0; i < header.e_shnum; i++) {
		if (sections[i].sh_type != SHT_SYMTAB || sections[i].sh_link >= header.e_shnum || sections[i].sh_offset % 8)
			continue;
		const Elf64_Sym *symbols = part(image, sections[i].sh_offset, sections[i].sh_size);

		for (size_t j = 0; symbols && result == 0 && j < sections[i].sh_size / sizeof(*symbols); j++)
			result = add_symbol(image, sections, header.e_shnum, &sections[header.e_shstrndx],
					    string(image, &sections[sections[i].sh_link], symbols[j].st_name),
					    &symbols[j]);
	}
	return result;
}
