/* SPDX-License-Identifier: Apache-2.0 */
/* Fat binaries and machine code: which text of them a card runs, and what is said of those that have none. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "../check.h"
#include "fat.h"
#include "random.h"
#include "image/image.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A fat binary by hand: machine code, PTX for sm_50 and sm_75, and compressed PTX for sm_80. */
#define PTX_OF(target) ".version 7.0\n.target sm_" target "\n.visible .entry only" target "() { ret; }\n"

static const char packed_text[] = PTX_OF("80") ".global .b8 many[64] = {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};\n"
				  "// all of this is literals\n";

/* One LZ4 block: matches of whole runs "7, ", all else as it is. */
static size_t pack(unsigned char *to, size_t *expanded)
{
	const char *run = strstr(packed_text, "7, 7");
	size_t before = (size_t)(run - packed_text) + 3;
	size_t repeats = 10 * 3;
	const char *rest = run + 3 + repeats;
	size_t after = strlen(rest);
	unsigned char *at = to;

	*at++ = 0xff; /* long literals, long match */
	CHECK(before >= 15 && before - 15 < 255 && repeats >= 19 && after >= 15 && after - 15 < 255);
	*at++ = (unsigned char)(before - 15);
	memcpy(at, packed_text, before);
	at += before;
	*at++ = 3; /* back by so much */
	*at++ = 0;
	*at++ = (unsigned char)(repeats - 19);
	*at++ = 0xf0;
	*at++ = (unsigned char)(after - 15);
	memcpy(at, rest, after);
	*expanded = strlen(packed_text);
	return (size_t)(at + after - to);
}

static size_t add_part(unsigned char *fat, size_t at, const struct part *part, const void *bytes)
{
	memcpy(fat + at, part, sizeof(*part));
	memcpy(fat + at + sizeof(*part), bytes, part->compressed ? part->compressed : part->bytes);
	return at + sizeof(*part) + part->bytes;
}

static size_t make_fat(unsigned char *fat)
{
	static const char *const plain[] = { PTX_OF("50"), PTX_OF("75") };
	static const uint32_t architectures[] = { 50, 75 };
	unsigned char packed[512];
	size_t expanded = 0;
	size_t size = pack(packed, &expanded);
	size_t at = FAT_HEADER;
	struct part part = { .kind = 2, .version = 0x101, .headerbytes = sizeof(part), .bytes = 16, .architecture = 80 };

	at = add_part(fat, at, &part, "\177ELF machine   ");
	for (size_t i = 0; i < COUNT(plain); i++) {
		char padded[256] = { 0 };

		strcpy(padded, plain[i]);
		part.kind = 1;
		part.bytes = (strlen(plain[i]) + 8) / 8 * 8;
		part.architecture = architectures[i];
		at = add_part(fat, at, &part, padded);
	}
	part.flags = 0x2000;
	part.architecture = 80;
	part.bytes = (size + 7) / 8 * 8;
	part.compressed = (uint32_t)size;
	part.expanded = expanded;
	at = add_part(fat, at, &part, packed);
	fat_head(fat, at);
	return at;
}

static size_t last_part(const unsigned char *fat, size_t size)
{
	size_t at = FAT_HEADER;

	for (size_t next = at; next < size;) {
		struct part part;

		at = next;
		memcpy(&part, fat + at, sizeof(part));
		next += sizeof(part) + part.bytes;
	}
	return at;
}

/* What is no image, for a card of sm_90: the log says so from its beginning. */
static void refused(const void *data, size_t size, const char *says)
{
	struct sd_image image;
	struct ptx_log log;

	CHECK(sd_image_read(data, size, 82, 90, &image, &log) == -EINVAL);
	if (strncmp(log.text, says, strlen(says)) != 0)
		fprintf(stderr, "the log says '%s', not '%s'\n", log.text, says);
	CHECK(strncmp(log.text, says, strlen(says)) == 0);
}

/* A header whose field at a byte has another value. */
static void refused_with(unsigned char *fat, size_t size, size_t at, uint64_t value, const char *says)
{
	uint64_t kept;

	memcpy(&kept, fat + at, sizeof(kept));
	memcpy(fat + at, &value, sizeof(value));
	refused(fat, size, says);
	memcpy(fat + at, &kept, sizeof(kept));
}

static void broken(unsigned char *fat, size_t size)
{
	const size_t last = last_part(fat, size);
	const struct {
		uint32_t magic, version;
		const void *data, *more;
	} wrapper = { .magic = 0x466243b1 };
	struct part part;
	char says[256];

	memcpy(&part, fat + last, sizeof(part));
	snprintf(says, sizeof(says), "this fat binary is cut: it has %zu of its %zu bytes", size - 1, size);
	refused(fat, size - 1, says);
	refused(fat, 15, "this fat binary is cut: it has 15 of its 16 bytes");
	refused_with(fat, size, 8, 1ull << 40, "this fat binary is broken: its header says that it has 16 bytes itself "
		     "and 1099511627776 behind it");
	snprintf(says, sizeof(says), "this fat binary is broken: its part at byte %zu says that it has a header of 64 "
		 "bytes and 99999 behind it, where there are %zu", last, size - last);
	refused_with(fat, size, last + offsetof(struct part, bytes), 99999, says);
	refused_with(fat, size, last + offsetof(struct part, headerbytes), 8,
		     "this fat binary is broken: its part at byte ");
	snprintf(says, sizeof(says), "this fat binary is broken: its PTX for sm_80 says that %u of %llu bytes expand "
		 "to 0, where at most 536870912 do", part.compressed, (unsigned long long)part.bytes);
	refused_with(fat, size, last + offsetof(struct part, expanded), 0, says);
	refused_with(fat, size, last + offsetof(struct part, compressed), part.bytes + 1,
		     "this fat binary is broken: its PTX for sm_80 says that ");
	snprintf(says, sizeof(says), "the PTX for sm_80 of this fat binary is damaged: by LZ4 it does not expand to "
		 "its %llu bytes", (unsigned long long)part.expanded + 1);
	refused_with(fat, size, last + offsetof(struct part, expanded), part.expanded + 1, says);
	refused(&wrapper, 0, "the wrapper of a fat binary points to nothing");
	refused(&wrapper, 16, "the wrapper of a fat binary is cut: it has 16 of its 24 bytes");
	refused("\1\2\3\4", 4, "this image is neither PTX, an ELF file nor a fat binary: it begins with 0x04030201");
	refused("", 0, "this image is empty: ");
	refused("\177EL", 3, "this image is empty: ");
}

/* Machine code: the log says for which cards, in either layout of the flags, and that of no card. */
static void elf(void)
{
	static const struct {
		uint16_t machine;
		unsigned char abi;
		uint32_t flags;
		const char *says;
	} rows[] = {
		{ EM_CUDA, 7, 0x00500550, "machine code for sm_80 cannot be run on a simulated card; it needs PTX" },
		{ EM_CUDA, 7, 0x005a0d5a, "machine code for sm_90 cannot " },
		{ EM_CUDA, 8, 0x06005a04, "machine code for sm_90 cannot " },
		{ EM_CUDA, 8, 0x06007802, "machine code for sm_120 cannot " },
		{ EM_CUDA, 255, UINT32_MAX, "machine code for sm_255 cannot " },
		{ EM_CUDA, 8, 0x06000002, "machine code cannot be run on a simulated card; it needs PTX" },
		{ EM_X86_64, 0, 0x00500550, "machine code cannot " },
	};
	Elf64_Ehdr header = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64 }, .e_shoff = sizeof(header) };
	struct sd_image image;
	struct ptx_log log;

	for (size_t i = 0; i < COUNT(rows); i++) {
		header.e_machine = rows[i].machine;
		header.e_ident[EI_ABIVERSION] = rows[i].abi;
		header.e_flags = rows[i].flags;
		for (int lazy = 0; lazy < 2; lazy++) {
			const struct sd_reading reading = { 82, 80, lazy ? SD_LOAD_LAZY : SD_LOAD_EAGER, false };

			CHECK(sd_image_begin(&header, sizeof(header), &reading, &image, &log) == -ENOEXEC);
			CHECK(strncmp(log.text, rows[i].says, strlen(rows[i].says)) == 0);
		}
	}
	refused(&header, 63, "this ELF file is cut: it has 63 of the 64 bytes of its header");
	header.e_shoff++;
	refused(&header, 64, "this ELF file is cut: it has 64 of its 65 bytes");
	header.e_shoff = UINT64_MAX;
	refused(&header, 0, "this ELF file is broken: by its header its tables end at no byte from 64 to 1073741824");
	header.e_ident[EI_CLASS] = ELFCLASS32;
	refused(&header, 0, "this ELF file is not for 64 bits, ");
}

/* The last part anew, with Zstandard as the system's library makes it; what is damaged is no image. */
static void zstandard(unsigned char *fat, size_t size, size_t flags)
{
	static const char text[] = PTX_OF("80");
	size_t at = last_part(fat, size) + sizeof(struct part);
	void *library = dlopen("libzstd.so.1", RTLD_NOW);
	size_t (*compress)(void *, size_t, const void *, size_t, int);
	struct part part;
	struct sd_image image;
	struct ptx_log log;
	uint64_t way = 0x8000;

	memcpy(fat + flags, &way, sizeof(way));
	CHECK(sd_image_read(fat, size, 82, 90, &image, &log) == (library ? -EINVAL : -ENOEXEC)); /* it is LZ4 */
	if (!library) {
		CHECK(strstr(log.text, "libzstd.so.1") && strstr(log.text, "--no-compress"));
		return;
	}
	compress = (size_t (*)(void *, size_t, const void *, size_t, int))dlsym(library, "ZSTD_compress");
	memcpy(&part, fat + at - sizeof(part), sizeof(part));
	part.compressed = (uint32_t)compress(fat + at, part.bytes, text, sizeof(text), 19);
	CHECK(part.compressed <= part.bytes);
	part.expanded = sizeof(text);
	memcpy(fat + at - sizeof(part), &part, sizeof(part));
	CHECK(sd_image_read(fat, size, 82, 90, &image, &log) == 0);
	CHECK(sd_image_entry(&image, "only80"));
	sd_image_free(&image);
	for (size_t i = 0; i < part.compressed; i++) {
		fat[at + i] ^= 0xff;
		if (sd_image_read(fat, size, 82, 90, &image, &log) == 0)
			sd_image_free(&image);
		fat[at + i] ^= 0xff;
	}
	for (uint64_t wrong = sizeof(text) - 1; wrong <= sizeof(text) + 1; wrong += 2) {
		part.expanded = wrong;
		memcpy(fat + at - sizeof(part), &part, sizeof(part));
		refused(fat, size, "the PTX for sm_80 of this fat binary is damaged: by Zstandard it does not expand ");
	}
	dlclose(library);
}

static void parts(void)
{
	static unsigned char bytes[4096];
	const struct {
		uint32_t magic, version;
		const void *data, *more;
	} wrapper = { 0x466243b1, 1, bytes, NULL };
	size_t size = make_fat(bytes);
	struct sd_image image;
	struct ptx_log log;

	/* the newest that the card can run; the compressed one has its bytes back */
	CHECK(sd_image_read(bytes, size, 82, 90, &image, &log) == 0);
	CHECK(image.size == size && sd_image_entry(&image, "only80"));
	CHECK(image.module->variablecount == 1 && image.module->variables[0]->initial[11] == 7);
	sd_image_free(&image);
	CHECK(sd_image_read(&wrapper, 0, 82, 75, &image, &log) == 0);
	CHECK(image.size == size && sd_image_entry(&image, "only75"));
	sd_image_free(&image);
	CHECK(sd_image_read(bytes, 0, 82, 61, &image, &log) == 0 && sd_image_entry(&image, "only50"));
	sd_image_free(&image);
	CHECK(sd_image_read(bytes, size, 82, 35, &image, &log) == -ENOEXEC && strstr(log.text, "sm_80"));
	broken(bytes, size);
	/* compressed in other ways: the log says how, and what helps */
	static const struct {
		uint64_t flags;
		const char *says;
	} others[] = { { 0x1000, "in an unknown way" }, { 0xa000, "in an unknown way" } };
	const size_t flags = last_part(bytes, size) + offsetof(struct part, flags);

	for (size_t i = 0; i < COUNT(others); i++) {
		memcpy(bytes + flags, &others[i].flags, sizeof(others[i].flags));
		CHECK(sd_image_read(bytes, size, 82, 90, &image, &log) == -ENOEXEC);
		CHECK(strstr(log.text, others[i].says) && strstr(log.text, "--no-compress"));
	}
	zstandard(bytes, size, flags);
	/* machine code alone */
	uint64_t only = 80;

	memcpy(bytes + 8, &only, sizeof(only));
	CHECK(sd_image_read(bytes, 0, 82, 80, &image, &log) == -ENOEXEC && strstr(log.text, "no PTX"));
	CHECK(strstr(log.text, "machine code for sm_80 "));
}

/* PTX that says it is for other cards is not chosen, whatever its part says; and the driver's version. */
static void chosen(void)
{
	static const char *const texts[] = {
		".version 7.8\n.target sm_86\n.visible .entry only86() { ret; }\n",
		"// a comment\n.version 7.8\n.target sm_90a\n.visible .entry only90a() { ret; }\n",
		".version 7.8\n.target sm_100f\n.visible .entry only100f() { ret; }\n",
		".version 7.8\n.target sm_120\n.visible .entry only120() { ret; }\n",
	};
	static const uint32_t architectures[] = { 86, 90, 100, 120 };
	static const struct {
		unsigned int capability;
		const char *kernel; /* NULL: none that it can run */
	} rows[] = {
		{ 61, NULL }, { 80, NULL }, { 86, "only86" }, { 89, "only86" }, { 90, "only90a" }, { 100, "only100f" },
		{ 103, "only100f" }, { 110, "only86" }, { 120, "only120" }, { 121, "only120" },
	};
	static const struct {
		int generation;
		unsigned int version;
	} versions[] = {
		{ 11040, 74 }, { 11080, 78 }, { 12000, 80 }, { 12020, 82 }, { 12050, 85 }, { 12060, 85 }, { 12070, 86 },
		{ 12080, 87 }, { 12090, 88 }, { 13000, 90 }, { 13010, 91 },
	};
	static unsigned char fat[4096];
	struct part part = { .kind = 1, .version = 0x101, .headerbytes = sizeof(part) };
	size_t at = FAT_HEADER;

	for (size_t i = 0; i < COUNT(texts); i++) {
		char padded[256] = { 0 };

		strcpy(padded, texts[i]);
		part.bytes = (strlen(texts[i]) + 8) / 8 * 8;
		part.architecture = architectures[i];
		at = add_part(fat, at, &part, padded);
	}
	fat_head(fat, at);
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct sd_image image;
		struct ptx_log log;
		int result = sd_image_read(fat, at, 90, rows[i].capability, &image, &log);

		CHECK(result == (rows[i].kernel ? 0 : -ENOEXEC));
		CHECK(rows[i].kernel ? sd_image_entry(&image, rows[i].kernel) != NULL : strstr(log.text, "sm_120") != NULL);
		if (result == 0)
			sd_image_free(&image);
	}
	for (size_t i = 0; i < COUNT(versions); i++)
		CHECK(sd_ptx_read_by(versions[i].generation) == versions[i].version);
}

/* The beginning of what is compressed is that of what it was, and never more than there is room for. */
static void beginnings(void)
{
	unsigned char packed[512];
	size_t expanded = 0;
	size_t size = pack(packed, &expanded);

	for (size_t room = 0; room <= expanded + 2; room++) {
		unsigned char *begin = malloc(room + 1);
		size_t made = 0;

		CHECK(begin);
		begin[room] = 0x5a;
		CHECK(sd_lz4_begin(packed, size, begin, room, &made) == 0);
		CHECK(made == (room < expanded ? room : expanded) && begin[room] == 0x5a);
		CHECK(memcmp(begin, packed_text, made) == 0);
		CHECK(room < expanded || sd_lz4_expand(packed, size, begin, room) == (room == expanded ? 0 : -EBADMSG));
		free(begin);
	}
}

/* 20,000 images: fat binaries and headers of machine code. In memory of exactly its size, so that a
 * sanitizer sees a read past it. */
static void mutated(void)
{
	const Elf64_Ehdr header = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, [EI_ABIVERSION] = 8 },
				    .e_shoff = sizeof(header), .e_machine = EM_CUDA, .e_flags = 0x06005a04 };
	static unsigned char whole[4096];

	while (one_more(20000)) {
		bool machine = random64() % 8 == 0;
		size_t size = machine ? sizeof(header) : make_fat(whole);
		size_t cut = size - (random64() % 4 ? 0 : random64() % size);
		unsigned char *copy = malloc(cut);
		struct sd_image image;
		struct ptx_log log;

		CHECK(copy);
		memcpy(copy, machine ? (const void *)&header : whole, cut);
		for (uint64_t i = random64() % 6; i > 0; i--)
			copy[random64() % cut] = (unsigned char)(random64() % 4 ? random64() % 16 : 0xff);
		if (sd_image_read(copy, cut, 82, 80, &image, &log) == 0) {
			CHECK(image.size <= cut);
			sd_image_free(&image);
		} else {
			CHECK(log.text[0]);
		}
		free(copy);
	}
}

static const struct scenario scenarios[] = {
	{ "parts", parts },	      { "elf", elf }, { "chosen", chosen },
	{ "beginnings", beginnings }, { "mutated", mutated },
};

RUN_SCENARIOS(scenarios)
