/* SPDX-License-Identifier: Apache-2.0 */
#include "image.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOTE_NAME "GNU"

struct search {
	const void *address;
	struct front_image *image;
	bool found;
};

static size_t aligned(size_t bytes)
{
	return (bytes + 3) & ~(size_t)3;
}

static void read_notes(const char *notes, size_t bytes, struct front_image *image)
{
	while (bytes >= sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)notes;
		size_t name = aligned(note->n_namesz);
		size_t body = aligned(note->n_descsz);

		if (name > bytes || body > bytes || sizeof(*note) + name + body > bytes)
			return;
		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == sizeof(NOTE_NAME) &&
		    memcmp(note + 1, NOTE_NAME, sizeof(NOTE_NAME)) == 0) {
			size_t length = note->n_descsz;

			if (length > sizeof(image->buildid))
				length = sizeof(image->buildid);
			memcpy(image->buildid, (const char *)(note + 1) + name, length);
			image->hasbuildid = true;
			return;
		}
		notes += sizeof(*note) + name + body;
		bytes -= sizeof(*note) + name + body;
	}
}

static int look(struct dl_phdr_info *object, size_t size, void *data)
{
	struct search *search = data;
	struct front_image image = {.start = UINTPTR_MAX};

	(void)size;
	for (unsigned i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + header->p_vaddr;

		if (header->p_type != PT_LOAD)
			continue;
		if (start < image.start)
			image.start = start;
		if (start + header->p_memsz > image.end)
			image.end = start + header->p_memsz;
	}
	if (!front_image_holds(&image, search->address))
		return 0;
	for (unsigned i = 0; i < object->dlpi_phnum && !image.hasbuildid; i++) {
		const ElfW(Phdr) *header = &object->dlpi_phdr[i];

		if (header->p_type == PT_NOTE)
			read_notes((const char *)object->dlpi_addr + header->p_vaddr, header->p_memsz, &image);
	}
	if (object->dlpi_name != NULL && object->dlpi_name[0] != 0)
		image.hasfile = front_image_file(object->dlpi_name, &image.device, &image.inode);
	*search->image = image;
	search->found = true;
	return 1;
}

bool front_image_find(const void *address, struct front_image *image)
{
	struct search search = {.address = address, .image = image};

	dl_iterate_phdr(look, &search);
	return search.found;
}

/* stat itself is GLIBC_2.33 in newer libraries */
bool front_image_file(const char *path, dev_t *device, ino_t *inode)
{
	struct stat status;

	if (syscall(SYS_stat, path, &status) < 0)
		return false;
	*device = status.st_dev;
	*inode = status.st_ino;
	return true;
}

bool front_image_same(const struct front_image *one, const struct front_image *other)
{
	if (one->start == other->start)
		return true;
	if (one->hasfile && other->hasfile && one->device == other->device && one->inode == other->inode)
		return true;
	return one->hasbuildid && other->hasbuildid && memcmp(one->buildid, other->buildid, sizeof(one->buildid)) == 0;
}
