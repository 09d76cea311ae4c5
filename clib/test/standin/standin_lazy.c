/* SPDX-License-Identifier: Apache-2.0 */
/* Images whose kernels are read one at a time are those that are read as a whole. */
#include <errno.h>
#include <glob.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>

#include "../check.h"
#include "fat.h"
#include "random.h"
#include "image/image.h"
#include "ptx/index.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define HEADER ".version 8.0\n.target sm_80\n.address_size 64\n"

static const struct sd_reading lazily = { .maxversion = 91, .capability = 90, .loading = SD_LOAD_LAZY };

static void open_lazily(const char *text, struct sd_image *image)
{
	struct ptx_log log;

	CHECK(sd_image_begin(text, 0, &lazily, image, &log) == 0 && image->lazy && !image->module);
	int result = sd_image_open(image, &log);

	if (result < 0)
		fprintf(stderr, "%s\n", log.text);
	CHECK(result == 0);
}

static int load(struct sd_image *image, const char *name, struct ptx_log *log)
{
	struct sd_entrypoint *entry = sd_image_entry(image, name);

	CHECK(entry);
	*log = (struct ptx_log){ 0 };
	return sd_image_load(image, entry, NULL, NULL, log);
}

static void same_entry(const struct sd_entrypoint *a, const struct sd_entrypoint *b)
{
	CHECK(strcmp(a->name, b->name) == 0);
	CHECK(a->count == b->count && a->bytes == b->bytes && a->shared == b->shared && a->local == b->local);
	CHECK(a->constant == b->constant && a->registers == b->registers && a->maxthreads == b->maxthreads);
	for (uint32_t i = 0; i < a->count; i++)
		CHECK(memcmp(&a->parameters[i], &b->parameters[i], sizeof(a->parameters[i])) == 0);
}

/* false: the text alone is no module */
static bool compare(const char *text)
{
	struct sd_image whole;
	struct sd_image image;
	struct ptx_log log;

	int result = sd_image_read(text, 0, 91, 90, &whole, &log);

	if (result < 0)
		return false;
	CHECK(sd_image_compile(&whole, &log) == 0);
	open_lazily(text, &image);
	CHECK(image.lazy && image.entrycount == whole.entrycount && image.version == whole.version);
	CHECK(image.module->variablecount == whole.module->variablecount);
	for (size_t i = whole.entrycount; i-- > 0;) {
		CHECK(load(&image, whole.entries[i].name, &log) == 0);
		same_entry(&whole.entries[i], &image.entries[i]);
	}
	sd_image_free(&image);
	sd_image_free(&whole);
	return true;
}

static char *contents(const char *path)
{
	static const char head[] = ".version 8.0\n.target sm_90\n";
	FILE *file = fopen(path, "rb");
	char *text = calloc(1, 4 << 20);

	/* most of them leave it to whoever reads them which card they are for */
	CHECK(file && text && fread(text + sizeof(head) - 1, 1, (4 << 20) - sizeof(head), file) > 0);
	fclose(file);
	if (strstr(text + sizeof(head) - 1, ".version"))
		memset(text, ' ', sizeof(head) - 1);
	else
		memcpy(text, head, sizeof(head) - 1);
	return text;
}

static void corpus(void)
{
	glob_t found;
	unsigned int compared = 0;

	CHECK(glob("test/corpus/*.ptx", 0, NULL, &found) == 0);
	for (size_t i = 0; i < found.gl_pathc; i++) {
		char *text = contents(found.gl_pathv[i]);

		compared += compare(text);
		free(text);
	}
	globfree(&found);
	CHECK(compared > 20);
}

/* What may confuse whoever counts braces; functions that know others in every way; a second input. */
static const char winding[] =
	HEADER
	".file 1 \"a } file.cu\"\n"
	".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
	".func (.param .b32 r) leaf(.param .b32 a);\n.func (.param .b32 r) twig(.param .b32 a);\n"
	".visible .global .align 8 .u64 table[2] = {leaf, twig};\n"
	".global .u32 first = 1, second[2] = {2, 3}, third;\n"
	".visible .const .align 4 .f32 half = 0f3F000000;\n"
	".shared .align 4 .b8 tile[256];\n"
	".extern .shared .align 16 .b8 dynamic[];\n"
	".func (.param .b32 r) leaf(.param .b32 a) { .reg .b32 %r<2>; // a } here\n"
	" ld.param.u32 %r1, [a]; /* and { there\n\n */ st.param.u32 [r], %r1; ret; }\n"
	".func (.param .b32 r) twig(.param .b32 a) { .reg .b32 %r<2>; .pragma \"nounroll }\"; .pragma \"a\\\"}\";\n"
	" { .reg .b32 %r2; { ld.param.u32 %r1, [a]; } st.param.u32 [r], %r1; } ret; }\n"
	".visible .entry plain(.param .u64 p) { .reg .b64 %a; .reg .b32 %r; ld.param.u64 %a, [p];\n"
	" ld.shared.u32 %r, [tile]; st.global.u32 [%a], %r; ret; }\n"
	".visible .entry indirect(.param .u64 p) .pragma \"x\"; .maxntid 128, 1, 1 {\n"
	" .reg .b64 %a; .reg .b32 %r; .param .b32 x; .param .b32 y;\n"
	" ld.global.u64 %a, [table+8]; st.param.b32 [x], %r;\n"
	" shape: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
	" call (y), %a, (x), shape; ret; }\n"
	".visible .entry tensor() { .reg .f32 %f<4>; .reg .b32 %r<6>;\n"
	" mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r2,%r3}, {%f0,%f1,%f2,%f3}, %r4, 0;\n"
	" ret; }\n"
	".visible .entry wrong() { no such thing; ret; }\n"
	".visible .entry nobody() { .param .b32 x; call (x), elsewhere, (x); ret; }\n"
	".entry own() .maxnreg 32 { .reg .b64 %a; .global .u32 mine = 7; mov.u64 %a, mine; ret; }\n"
	".visible .entry again(.param .u32 x);\n"
	HEADER
	".extern .global .align 8 .u64 table[2];\n"
	".visible .entry second_input() { .reg .b64 %a; ld.global.u64 %a, [table]; ret; }\n"
	".section .debug_str { info: .b8 1, 2 }\n";

static const struct ptx_function *function(const struct ptx_module *tree, const char *name)
{
	for (uint32_t i = 0; i < tree->functioncount; i++) {
		if (strcmp(tree->functions[i]->name, name) == 0)
			return tree->functions[i];
	}
	return NULL;
}

static void one_at_a_time(void)
{
	struct sd_image image;
	struct ptx_log log;

	open_lazily(winding, &image);
	CHECK(image.lazy && image.entrycount == 7 && !sd_image_entry(&image, "again"));
	CHECK(image.module->variablecount == 5);
	CHECK(!sd_image_entry(&image, "plain")->ready);
	/* nothing but what it names */
	CHECK(load(&image, "plain", &log) == 0);
	const struct sd_entrypoint *plain = sd_image_entry(&image, "plain");

	CHECK(plain->tree->functioncount == 1 && plain->tree->variablecount == 0 && plain->shared == 256);
	CHECK(plain->count == 1 && plain->bytes == 8 && plain->constant == 4);
	/* every function, for it may call any; their addresses are the same for all */
	CHECK(load(&image, "indirect", &log) == 0);
	const struct sd_entrypoint *indirect = sd_image_entry(&image, "indirect");

	CHECK(indirect->maxthreads == 128 && indirect->tree->functioncount == 3 && indirect->tree->variablecount == 1);
	CHECK(load(&image, "second_input", &log) == 0);
	const struct ptx_variable *table = image.module->variables[0];

	CHECK(strcmp(table->name, "table") == 0 && table->relocationcount == 2);
	CHECK(ptx_function_address(table->relocations[1].function) ==
	      ptx_function_address(function(indirect->tree, "twig")));
	CHECK(ptx_function_address(function(indirect->tree, "twig")) !=
	      ptx_function_address(function(indirect->tree, "leaf")));
	CHECK(table->place == indirect->tree->variables[0]->place);
	CHECK(table->place == sd_image_entry(&image, "second_input")->tree->variables[0]->place);
	/* a variable that only its function knows */
	CHECK(load(&image, "own", &log) == 0);
	CHECK(sd_image_entry(&image, "own")->tree->variables[0]->inbody);
	/* refused by themselves, again and again, with the instruction and its line */
	for (int i = 0; i < 2; i++) {
		CHECK(load(&image, "tensor", &log) == -EBADMSG);
		CHECK(strstr(log.text, "mma.sp.sync.aligned.m16n8k16") && strstr(log.text, "line 27:"));
		CHECK(load(&image, "wrong", &log) == -EBADMSG && strstr(log.text, "line 29:"));
		CHECK(load(&image, "nobody", &log) == -EBADMSG && strstr(log.text, "elsewhere"));
	}
	sd_image_free(&image);
}

/* Read as a whole, what is good PTX refuses its own kernels only, and all of them together. */
static void refused_alone(void)
{
	static const char some[] = HEADER ".func deep() { membar.proxy.alias; ret; }\n"
				   ".entry good() { ret; }\n.entry bad() { call deep, (); ret; }\n"
				   ".entry worse() { mbarrier.init.shared.b64 [0], 1; ret; }\n";
	static const char all[] = HEADER ".entry bad() { mbarrier.init.shared.b64 [0], 1; ret; }\n";
	const struct sd_reading whole = { .maxversion = 82, .capability = 80, .loading = SD_LOAD_WHOLE };
	struct sd_image image;
	struct ptx_log log;

	CHECK(sd_image_begin(some, 0, &whole, &image, &log) == 0 && !image.lazy);
	CHECK(sd_image_compile(&image, &log) == 0);
	CHECK(strstr(log.text, "kernel 'worse' cannot be run here: ") || strstr(log.text, "kernel 'bad' cannot be run here: "));
	CHECK(load(&image, "good", &log) == 0 && load(&image, "worse", &log) == -EBADMSG && strstr(log.text, "mbarrier"));
	sd_image_free(&image);
	CHECK(sd_image_begin(all, 0, &whole, &image, &log) == 0);
	CHECK(sd_image_compile(&image, &log) == -EBADMSG && strstr(log.text, "mbarrier"));
	sd_image_free(&image);
	CHECK(sd_image_read(some, 0, 82, 80, &image, &log) == 0 && sd_image_compile(&image, &log) == -EBADMSG);
	sd_image_free(&image);
}

/* What is told at once, what later, and what must be read as a whole. */
static void begun(void)
{
	const struct sd_reading old = { .maxversion = 78, .capability = 90, .loading = SD_LOAD_LAZY };
	const struct sd_reading small = { .maxversion = 90, .capability = 70, .loading = SD_LOAD_LAZY };
	const struct sd_reading usual = { .maxversion = 90, .capability = 90 };
	static const char open_name[] = HEADER ".global .u32 many<2>;\n.entry k() { ret; }\n";
	static const char unclosed[] = HEADER ".entry k() { ret;\n";
	struct sd_image image;
	struct sd_image other;
	struct ptx_log log;

	CHECK(sd_image_begin(winding, 0, &old, &image, &log) == -ENOTSUP && strstr(log.text, "8.0"));
	CHECK(sd_image_begin(winding, 0, &small, &image, &log) == -EBADMSG && strstr(log.text, "sm_80"));
	CHECK(sd_image_begin(open_name, 0, &usual, &image, &log) == -EBADMSG || !image.lazy);
	CHECK(sd_image_begin(unclosed, 0, &lazily, &image, &log) == 0);
	CHECK(sd_image_open(&image, &log) == -EBADMSG && log.text[0]);
	log.text[0] = '\0';
	CHECK(sd_image_open(&image, &log) == -EBADMSG && log.text[0]);
	sd_image_free(&image);
	/* once more for another context: of the same text */
	open_lazily(winding, &image);
	CHECK(sd_image_again(&image, &lazily, &other, &log) == 0 && other.source == image.source);
	CHECK(sd_image_open(&other, &log) == 0 && load(&other, "plain", &log) == 0);
	CHECK(!sd_image_entry(&image, "plain")->ready);
	sd_image_free(&image);
	CHECK(load(&other, "indirect", &log) == 0);
	sd_image_free(&other);
}

/* LZ4 of nothing but literals. */
static size_t stored(const char *text, size_t size, unsigned char *to)
{
	unsigned char *at = to;

	*at++ = 0xf0;
	for (size_t left = size - 15;; left -= 255) {
		*at++ = (unsigned char)(left < 255 ? left : 255);
		if (left < 255)
			break;
	}
	memcpy(at, text, size);
	return (size_t)(at - to) + size;
}

/* A fat binary of one packed text: broken ones are no images, at once or when they are opened. */
static void packed(void)
{
	static unsigned char fat[sizeof(winding) + 1024];
	size_t size = stored(winding, sizeof(winding), fat + FAT_HEADER + sizeof(struct part));
	struct part part = { .kind = 1, .version = 0x101, .headerbytes = sizeof(part), .bytes = (size + 7) / 8 * 8,
			     .compressed = (uint32_t)size, .architecture = 80, .flags = 0x2000, .expanded = sizeof(winding) };
	size_t whole = FAT_HEADER + sizeof(part) + part.bytes;
	char says[sizeof(((struct ptx_log *)NULL)->text)];
	struct sd_image image;
	struct ptx_log log;

	fat_head(fat, whole);
	memcpy(fat + FAT_HEADER, &part, sizeof(part));
	CHECK(sd_image_begin(fat, whole, &lazily, &image, &log) == 0 && image.lazy && image.version == 80);
	CHECK(sd_image_open(&image, &log) == 0 && !image.source->bytes && load(&image, "plain", &log) == 0);
	sd_image_free(&image);
	for (size_t cut = 1; cut < whole; cut += 97) {
		CHECK(sd_image_begin(fat, whole - cut, &lazily, &image, &log) == -EINVAL);
		CHECK(log.text[0]);
	}
	CHECK(sd_image_begin(fat, whole - 1, &lazily, &image, &log) == -EINVAL);
	snprintf(says, sizeof(says), "this fat binary is cut: it has %zu of its %zu bytes", whole - 1, whole);
	CHECK(strcmp(log.text, says) == 0);
	/* damaged behind its beginning: found when it is expanded, and every time again */
	part.expanded += 1;
	memcpy(fat + FAT_HEADER, &part, sizeof(part));
	CHECK(sd_image_begin(fat, whole, &lazily, &image, &log) == 0);
	CHECK(sd_image_open(&image, &log) == -EINVAL);
	snprintf(says, sizeof(says), "the PTX for sm_80 of this fat binary is damaged: by LZ4 it does not expand to "
		 "its %zu bytes", sizeof(winding) + 1);
	CHECK(strcmp(log.text, says) == 0 && sd_image_open(&image, &log) == -EINVAL);
	sd_image_free(&image);
	/* says that it is larger than any text may be */
	part.expanded = 1ull << 40;
	memcpy(fat + FAT_HEADER, &part, sizeof(part));
	CHECK(sd_image_begin(fat, whole, &lazily, &image, &log) == 0);
	CHECK(sd_image_open(&image, &log) == -EINVAL);
	CHECK(strstr(log.text, "bytes expand to 1099511627776, where at most 536870912 do"));
	sd_image_free(&image);
}

static size_t used(void)
{
	struct mallinfo2 all = mallinfo2();

	return all.uordblks + all.hblkhd;
}

/* Many kernels in one text. */
static char *many(size_t *size)
{
	enum { KERNELS = 300, INSTRUCTIONS = 100 };
	char *text = malloc(KERNELS * (INSTRUCTIONS * 40 + 200));
	size_t at = 0;

	CHECK(text);
	at += (size_t)sprintf(text, HEADER);
	for (int i = 0; i < KERNELS; i++) {
		at += (size_t)sprintf(text + at, ".visible .entry kernel%d() {\n\t.reg .f32 %%f<4>;\n", i);
		for (int j = 0; j < INSTRUCTIONS; j++)
			at += (size_t)sprintf(text + at, "\tfma.rn.f32 %%f1, %%f1, %%f2, %%f3;\n");
		at += (size_t)sprintf(text + at, "\tret;\n}\n");
	}
	*size = at;
	return text;
}

/* What one kernel of many takes beside the text: little of the text, and of what all of them take. */
static void takes_little(void)
{
	const struct sd_reading wholly = { .maxversion = 91, .capability = 90, .loading = SD_LOAD_WHOLE };
	size_t size = 0;
	char *text = many(&size);
	size_t before = used();
	struct sd_image image;
	struct ptx_log log;

	if (!before) {
		free(text); /* a sanitizer's malloc does not count */
		return;
	}
	CHECK(sd_image_begin(text, size, &lazily, &image, &log) == 0 && sd_image_open(&image, &log) == 0);
	size_t opened = used() - before - size;

	CHECK(load(&image, "kernel150", &log) == 0);
	size_t one = used() - before - size;

	sd_image_free(&image);
	CHECK(sd_image_begin(text, size, &wholly, &image, &log) == 0 && sd_image_compile(&image, &log) == 0);
	size_t all = used() - before - size;

	sd_image_free(&image);
	free(text);
	CHECK(opened < size / 4 && one < size / 2 && one < all / 20); /* half of that was measured */
}

/* In memory of exactly its size, so that a sanitizer sees a step past it. */
static void read_mutated(void)
{
	static const char marks[] = "{}()[]<>;,.=\"/* 9\n\t-%@!_|+#\\";
	size_t size = sizeof(winding) - 1;
	char *copy = malloc(size);
	struct ptx_index *index = NULL;

	CHECK(copy);
	memcpy(copy, winding, size);
	for (uint64_t i = random64() % 6; i > 0; i--)
		copy[random64() % size] = marks[random64() % (sizeof(marks) - 1)];
	if (random64() % 4 == 0) {
		size = 1 + random64() % size;
		char *cut = realloc(copy, size);

		CHECK(cut);
		copy = cut;
	}
	int result = ptx_index_make(copy, size, &index);

	CHECK(result == 0 || result == -ENOSYS);
	for (uint32_t i = 0; result == 0 && i <= ptx_index_kernels(index); i++) {
		struct ptx_module *tree = ptx_module_new();
		struct ptx_code *code = NULL;
		struct ptx_log log = { 0 };

		CHECK(tree);
		int read = ptx_index_parse(index, tree, i == ptx_index_kernels(index) ? PTX_NONE : i, 82, &log);

		if (read == 0)
			read = ptx_link(tree, &log);
		if (read == 0)
			read = ptx_compile(tree, i % 2, &log, &code);
		CHECK(read == 0 || log.text[0]);
		ptx_code_free(code);
		ptx_module_free(tree);
	}
	if (result == 0)
		ptx_index_free(index);
	free(copy);
}

/* 3,000 texts, or for DIVVY_FUZZ_SECONDS with another seed */
static void mutated(void)
{
	while (one_more(3000))
		read_mutated();
}

static const struct scenario scenarios[] = {
	{ "corpus", corpus }, { "one_at_a_time", one_at_a_time }, { "refused_alone", refused_alone }, { "begun", begun },
	{ "packed", packed }, { "takes_little", takes_little }, { "mutated", mutated },
};

RUN_SCENARIOS(scenarios)
