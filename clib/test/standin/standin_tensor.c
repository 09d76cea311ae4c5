/* SPDX-License-Identifier: Apache-2.0 */
/* Products of small matrices, and matrices on their way there. Who has which element is written here
 * shape by shape, as the PTX ISA has it ("Matrix Fragments"). */
#include <math.h>

#include "program.h"
#include "random.h"

enum { LANES = 32, REGISTERS = 16, STRIDE = REGISTERS * 8 };

struct place {
	int row, column;
};

/* Element i of lane l in a. */
static struct place of_a(const char *shape, int bits, int l, int i)
{
	const int group = l >> 2, in = l & 3;

	if (strcmp(shape, "m16n8k16") == 0 && bits == 16)
		return (struct place){ i < 2 || (i >= 4 && i < 6) ? group : group + 8, in * 2 + (i & 1) + (i >= 4 ? 8 : 0) };
	if (strcmp(shape, "m16n8k8") == 0 && bits == 16)
		return (struct place){ i < 2 ? group : group + 8, in * 2 + (i & 1) };
	if (strcmp(shape, "m16n8k8") == 0 && bits == 32)
		return (struct place){ i == 0 || i == 2 ? group : group + 8, i < 2 ? in : in + 4 };
	if (strcmp(shape, "m16n8k4") == 0)
		return (struct place){ i == 0 ? group : group + 8, in };
	if (strcmp(shape, "m8n8k4") == 0)
		return (struct place){ group, in };
	if (strcmp(shape, "m8n8k16") == 0)
		return (struct place){ group, in * 4 + i };
	if (strcmp(shape, "m16n8k16") == 0 && bits == 8)
		return (struct place){ i < 4 ? group : group + 8, in * 4 + (i & 3) };
	CHECK(strcmp(shape, "m16n8k32") == 0);
	return (struct place){ i < 4 || (i >= 8 && i < 12) ? group : group + 8, in * 4 + (i & 3) + (i < 8 ? 0 : 16) };
}

/* The same in b. */
static struct place of_b(const char *shape, int bits, int l, int i)
{
	const int group = l >> 2, in = l & 3;

	if (strcmp(shape, "m16n8k16") == 0 && bits == 16)
		return (struct place){ in * 2 + (i & 1) + (i < 2 ? 0 : 8), group };
	if (strcmp(shape, "m16n8k8") == 0 && bits == 16)
		return (struct place){ in * 2 + i, group };
	if (strcmp(shape, "m16n8k8") == 0 && bits == 32)
		return (struct place){ i == 0 ? in : in + 4, group };
	if (strcmp(shape, "m16n8k4") == 0 || strcmp(shape, "m8n8k4") == 0)
		return (struct place){ in, group };
	if (strcmp(shape, "m8n8k16") == 0 || (strcmp(shape, "m16n8k16") == 0 && bits == 8))
		return (struct place){ in * 4 + i, group };
	CHECK(strcmp(shape, "m16n8k32") == 0);
	return (struct place){ in * 4 + (i & 3) + (i < 4 ? 0 : 16), group };
}

/* The same in c and d. */
static struct place of_c(int rows, int l, int i)
{
	const int group = l >> 2, in = l & 3;

	return rows == 8 ? (struct place){ group, in * 2 + i } : (struct place){ i < 2 ? group : group + 8, in * 2 + (i & 1) };
}

static int bits_of(const char *type)
{
	return strcmp(type, "f64") == 0 ? 64
	       : strcmp(type, "tf32") == 0 || strcmp(type, "f32") == 0 || strcmp(type, "s32") == 0 ? 32
	       : strcmp(type, "f16") == 0 || strcmp(type, "bf16") == 0 ? 16 : 8;
}

/* Small whole numbers, which each type has: so all sums are exact. */
static uint64_t bits(int value, const char *type)
{
	const double wide = value;
	const float real = (float)value;
	uint64_t out = 0;

	if (strcmp(type, "f64") == 0) {
		memcpy(&out, &wide, 8);
		return out;
	}
	memcpy(&out, &real, 4);
	if (strcmp(type, "f32") == 0)
		return out;
	if (strcmp(type, "tf32") == 0)
		return out | 0x1234; /* bits that it does not have */
	if (strcmp(type, "bf16") == 0)
		return out >> 16;
	if (type[0] == 's' || type[0] == 'u')
		return (uint64_t)(int64_t)value & (strcmp(type, "s32") == 0 ? UINT32_MAX : 255);
	/* of others the exponent and the first bits of the mantissa */
	const int mantissa = strcmp(type, "f16") == 0 ? 10 : strcmp(type, "e4m3") == 0 ? 3 : 2;
	const int bias = strcmp(type, "e4m3") == 0 ? 7 : 15, width = bits_of(type);

	if (value == 0)
		return 0;
	return (out >> 31) << (width - 1) | ((out >> 23 & 255) - 127 + (uint64_t)bias) << mantissa | (out & 0x7fffff) >> (23 - mantissa);
}

static double value(uint64_t word, const char *type)
{
	double wide;
	float real;
	uint32_t low = (uint32_t)word;

	if (strcmp(type, "f64") == 0) {
		memcpy(&wide, &word, 8);
		return wide;
	}
	if (strcmp(type, "s32") == 0)
		return (int32_t)word;
	if (strcmp(type, "f16") == 0) {
		const int exponent = low >> 10 & 31;

		CHECK(exponent != 31);
		wide = exponent ? ldexp(1024 + (low & 1023), exponent - 25) : ldexp(low & 1023, -24);
		return low & 0x8000 ? -wide : wide;
	}
	memcpy(&real, &low, 4);
	return real;
}

struct product {
	const char *shape, *d, *a, *b;
	const char *version, *target;
	int rows, depth;
};

static const struct product products[] = {
	{ "m16n8k8", "f16", "f16", "f16", "6.5", "sm_75", 16, 8 },     { "m16n8k8", "f32", "f16", "f16", "6.5", "sm_75", 16, 8 },
	{ "m16n8k16", "f16", "f16", "f16", "7.0", "sm_80", 16, 16 },   { "m16n8k16", "f32", "f16", "f16", "7.0", "sm_80", 16, 16 },
	{ "m16n8k8", "f32", "bf16", "bf16", "7.0", "sm_80", 16, 8 },   { "m16n8k16", "f32", "bf16", "bf16", "7.0", "sm_80", 16, 16 },
	{ "m16n8k4", "f32", "tf32", "tf32", "7.0", "sm_80", 16, 4 },   { "m16n8k8", "f32", "tf32", "tf32", "7.0", "sm_80", 16, 8 },
	{ "m8n8k4", "f64", "f64", "f64", "7.0", "sm_80", 8, 4 },       { "m8n8k16", "s32", "s8", "s8", "6.5", "sm_75", 8, 16 },
	{ "m16n8k16", "s32", "u8", "s8", "7.0", "sm_80", 16, 16 },     { "m16n8k32", "s32", "s8", "u8", "7.0", "sm_80", 16, 32 },
	{ "m16n8k32", "f32", "e4m3", "e4m3", "8.4", "sm_89", 16, 32 }, { "m16n8k32", "f32", "e5m2", "e4m3", "8.4", "sm_89", 16, 32 },
};

/* Where element i of those of a width is that lane l has in its registers from the first one on. */
static unsigned char *place_of(int l, int first, int i, int width)
{
	const int each = width == 64 ? 1 : 32 / width;

	return memory + l * STRIDE + (first + i / each) * 8 + i % each * width / 8;
}

static void put_element(int l, int first, int i, int width, uint64_t word)
{
	memcpy(place_of(l, first, i, width), &word, (size_t)width / 8);
}

static uint64_t element(int l, int first, int i, int width)
{
	uint64_t word = 0;

	memcpy(&word, place_of(l, first, i, width), (size_t)width / 8);
	return word;
}

static char *list(char *to, const char *kind, int first, int count)
{
	*to++ = '{';
	for (int i = 0; i < count; i++)
		to += sprintf(to, "%s%%%s%d", i ? ", " : "", kind, first + i);
	*to++ = '}';
	*to = '\0';
	return to;
}

static void moves(char *source, const char *what, const char *kind, int size, int first, int count)
{
	for (int i = 0; i < count; i++) {
		if (what[0] == 'l')
			sprintf(source + strlen(source), "ld.global.b%d %%%s%d, [%%rd1+%d];\n", size, kind, first + i, (first + i) * 8);
		else
			sprintf(source + strlen(source), "st.global.b%d [%%rd1+%d], %%%s%d;\n", size, (first + i) * 8, kind, first + i);
	}
}

/* d in the registers of c, as compilers do it. */
static char *text_of(const struct product *p, char *source, const char *more)
{
	const int wide = bits_of(p->d) == 64, small = bits_of(p->a);
	const int nc = wide ? 2 : p->rows / 4 / (bits_of(p->d) == 16 ? 2 : 1);
	const int na = p->rows * p->depth / LANES * small / (wide ? 64 : 32), nb = 8 * p->depth / LANES * small / (wide ? 64 : 32);
	const char *kind = wide ? "d" : "r";

	sprintf(source, ".version %s\n.target %s\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
			".reg .b32 %%r<20>; .reg .b64 %%d<20>; .reg .b64 %%rd<4>;\n"
			"ld.param.u64 %%rd0, [p]; mov.u32 %%r19, %%tid.x; mul.wide.u32 %%rd1, %%r19, %d; add.u64 %%rd1, %%rd0, %%rd1;\n",
		p->version, p->target, STRIDE);
	moves(source, "ld", kind, wide ? 64 : 32, 0, nc + na + nb);
	char *to = source + strlen(source);

	to += sprintf(to, "mma.sync.aligned.%s.row.col%s.%s.%s.%s.%s ", p->shape, more, p->d, p->a, p->b, p->d);
	to = list(to, kind, 0, nc);
	to = list(to + sprintf(to, ", "), kind, nc, na);
	to = list(to + sprintf(to, ", "), kind, nc + na, nb);
	to = list(to + sprintf(to, ", "), kind, 0, nc);
	to += sprintf(to, ";\n");
	moves(source, "st", kind, wide ? 64 : 32, 0, nc);
	strcat(source, "ret; }\n");
	return source;
}

static void multiply(const struct product *p)
{
	static int a[16][32], b[32][8], c[16][8];
	const int small = bits_of(p->a), big = bits_of(p->d), packed = big == 16 ? 2 : 1;
	const int nc = p->rows / 4 / packed, na = p->rows * p->depth / LANES * small / (big == 64 ? 64 : 32);
	const uint64_t at = BASE;
	struct program program;
	char source[8192];

	/* a and b have what two bits of mantissa do */
	for (int i = 0; i < 16 * 32; i++)
		a[i / 32][i % 32] = (int)(random64() % 4) - (p->a[0] == 'u' ? 0 : 2);
	for (int i = 0; i < 32 * 8; i++)
		b[i / 8][i % 8] = (int)(random64() % 4) - (p->b[0] == 'u' ? 0 : 2);
	for (int i = 0; i < 16 * 8; i++)
		c[i / 8][i % 8] = (int)(random64() % 200) - 100;
	memset(memory, 0, LANES * STRIDE);
	for (int l = 0; l < LANES; l++) {
		for (int i = 0; i < p->rows / 4; i++)
			put_element(l, 0, i, big, bits(c[of_c(p->rows, l, i).row][of_c(p->rows, l, i).column], p->d));
		for (int i = 0; i < p->rows * p->depth / LANES; i++) {
			const struct place place = of_a(p->shape, small, l, i);

			put_element(l, nc, i, small, bits(a[place.row][place.column], p->a));
		}
		for (int i = 0; i < 8 * p->depth / LANES; i++) {
			const struct place place = of_b(p->shape, small, l, i);

			put_element(l, nc + na, i, small, bits(b[place.row][place.column], p->b));
		}
	}
	must_build(&program, text_of(p, source, ""));
	CHECK(run(&program, "k", 1, LANES, &at).fault == PTX_FAULT_NONE);
	drop(&program);
	for (int l = 0; l < LANES; l++) {
		for (int i = 0; i < p->rows / 4; i++) {
			const struct place place = of_c(p->rows, l, i);
			int want = c[place.row][place.column];

			for (int k = 0; k < p->depth; k++)
				want += a[place.row][k] * b[k][place.column];
			if (value(element(l, 0, i, big), p->d) != want) {
				fprintf(stderr, "%s.%s.%s.%s: lane %d has %g in %d, want %d\n", p->shape, p->d, p->a, p->b, l,
					value(element(l, 0, i, big), p->d), i, want);
				CHECK(false);
			}
		}
	}
}

static void products_are_sums(void)
{
	for (size_t i = 0; i < COUNT(products); i++) {
		for (int round = 0; round < 3; round++)
			multiply(&products[i]);
	}
}

/* Each of a, b and c from one word in all lanes; d, likewise, of the first lane. */
static uint64_t uniform(const struct product *p, const char *more, uint64_t a, uint64_t b, uint64_t c)
{
	const int small = bits_of(p->a), big = bits_of(p->d), nc = p->rows / 4 / (big == 16 ? 2 : 1);
	const int na = p->rows * p->depth / LANES * small / 32, nb = 8 * p->depth / LANES * small / 32;
	const uint64_t at = BASE;
	struct program program;
	char source[8192];

	for (int l = 0; l < LANES; l++) {
		for (int i = 0; i < nc + na + nb; i++)
			memcpy(memory + l * STRIDE + i * 8, i < nc ? &c : i < nc + na ? &a : &b, 8);
	}
	must_build(&program, text_of(p, source, more));
	CHECK(run(&program, "k", 1, LANES, &at).fault == PTX_FAULT_NONE);
	drop(&program);
	return element(0, 0, 0, big);
}

static void edges(void)
{
	const struct product *halves = &products[3], *small = &products[2], *bytes = &products[11];

	CHECK(uniform(halves, "", 0x7c007c00, 0x3c003c00, 0) == 0x7f800000);  /* infinity */
	CHECK(uniform(halves, "", 0x7c007c00, 0x00000000, 0) == 0x7fffffff);  /* of no sign, as NaN is */
	CHECK(uniform(halves, "", 0x00010001, 0x3c003c00, 0) == 0x35800000);  /* 16 times the least half */
	CHECK(uniform(small, "", 0x7bff7bff, 0x7bff7bff, 0) == 0x7c00);
	CHECK(uniform(small, "", 0x7e007e00, 0x3c003c00, 0) == 0x7fff);
	/* 32 * 127 * 255 beyond the largest */
	CHECK(uniform(bytes, "", 0x7f7f7f7f, 0xffffffff, 0x7ffffff0) == 0x7ffffff0u + 32 * 127 * 255);
	CHECK(uniform(bytes, ".satfinite", 0x7f7f7f7f, 0xffffffff, 0x7ffffff0) == 0x7fffffff);
	CHECK(uniform(bytes, ".satfinite", 0x80808080, 0xffffffff, 0x80000000) == 0x80000000);
}

/* Rows of shared memory, whose addresses lanes have; element e of row r of matrix m is m * 64 + r * 8 + e. */
static void load(const char *which, int count, bool transposed)
{
	const uint64_t at = BASE;
	struct program program;
	char source[4096], registers[128];

	list(registers, "r", 1, count);
	snprintf(source, sizeof(source),
		 ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
		 ".reg .pred %%p1; .reg .b32 %%r<20>; .reg .b64 %%rd<4>; .reg .b16 %%h1; .shared .align 16 .b8 tile[1024]; .shared .align 16 .b8 other[1024];\n"
		 "ld.param.u64 %%rd0, [p]; mov.u32 %%r0, %%tid.x; mul.wide.u32 %%rd1, %%r0, %d; add.u64 %%rd1, %%rd0, %%rd1;\n"
		 "mov.u32 %%r10, tile; shl.b32 %%r11, %%r0, 4; add.u32 %%r11, %%r10, %%r11; shl.b32 %%r12, %%r0, 3;\n"
		 "mov.u32 %%r13, 0; L: add.u32 %%r14, %%r12, %%r13; cvt.u16.u32 %%h1, %%r14; shl.b32 %%r15, %%r13, 1; add.u32 %%r15, %%r11, %%r15;\n"
		 "st.shared.u16 [%%r15], %%h1; add.u32 %%r13, %%r13, 1; setp.lt.u32 %%p1, %%r13, 8; @%%p1 bra L; bar.warp.sync -1;\n"
		 "mov.u32 %%r1, %%r11; ldmatrix.sync.aligned.m8n8.x%d%s.%s.b16 %s, [%%r1];\n" /* over its address */
		 "st.global.u32 [%%rd1], %%r1; st.global.u32 [%%rd1+8], %%r2; st.global.u32 [%%rd1+16], %%r3; st.global.u32 [%%rd1+24], %%r4;\n"
		 /* stored as it was loaded it is what it was */
		 "mov.u32 %%r16, other; shl.b32 %%r17, %%r0, 4; add.u32 %%r16, %%r16, %%r17;\n"
		 "stmatrix.sync.aligned.m8n8.x%d%s.shared.b16 [%%r16], %s; bar.warp.sync -1; ld.shared.u32 %%r17, [%%r16+4]; st.global.u32 [%%rd1+32], %%r17;\n"
		 "movmatrix.sync.aligned.m8n8.trans.b16 %%r18, %%r1; st.global.u32 [%%rd1+40], %%r18; ret; }\n",
		 STRIDE, count, transposed ? ".trans" : "", which, registers, count, transposed ? ".trans" : "", registers);
	memset(memory, 0, LANES * STRIDE);
	must_build(&program, source);
	CHECK(run(&program, "k", 1, LANES, &at).fault == PTX_FAULT_NONE);
	drop(&program);
	for (int l = 0; l < LANES; l++) {
		for (int e = 0; e < 2; e++) {
			const int row = l / 4, column = l % 4 * 2 + e;
			const int straight = row * 8 + column, across = column * 8 + row;

			for (int i = 0; i < count; i++)
				CHECK(element(l, i, e, 16) == (uint64_t)(i * 64 + (transposed ? across : straight)));
			CHECK(element(l, 5, e, 16) == (uint64_t)(transposed ? straight : across));
			if (l < 8 * count)
				CHECK(element(l, 4, e, 16) == (uint64_t)(l * 8 + 2 + e));
		}
	}
}

static void matrices_move(void)
{
	for (int count = 1; count <= 4; count *= 2) {
		load("shared", count, false);
		load("shared::cta", count, true);
	}
}

static void faults_and_forms(void)
{
	static const char *const refused[] = {
		"mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, {%r1,%r2}, {%r1,%r2}, {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8};",
		"mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
		"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
		"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2}, {%r1,%r2,%r3,%r4}, %r1, 0;",
		"ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r1}, [%r2];",
		"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r2];",
		"ldmatrix.sync.aligned.m8n8.x1.global.b16 {%r1}, [%d2];",
		"stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r1};", /* for later cards */
		"movmatrix.sync.aligned.m8n8.b16 %r1, %r2;",
		"movmatrix.sync.aligned.m8n8.v2.trans.b16 {%r1, %r2}, %r3;",
		"movmatrix.sync.aligned.m8n8.x1.trans.b16 %r1, %r3;",
		"ldmatrix.sync.aligned.m8n8.v8.shared.b16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%r9];",
		"ldmatrix.sync.aligned.m8n8.shared.b16 {%r1}, [%r2];",
		"ldmatrix.sync.aligned.m8n8.x2.x1.shared.b16 {%r1}, [%r2];",
		"ldmatrix.sync.m8n8.x1.shared.b16 {%r1}, [%r2];",
		"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {7}, [%r2];",
		"mma.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
		"mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
		"mma.sync.aligned.m16n8k16.row.col.rz.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
		"mma.sync.aligned.m16n8k16.v4.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%tid.x,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
		"add.m8n8.s32 %r1, %r2, %r3;",
	};
	const uint64_t at = BASE;
	struct program program;
	char source[2048];

	for (size_t i = 0; i < COUNT(refused); i++) {
		snprintf(source, sizeof(source), ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{ .reg .b32 %%r<16>; .reg .b64 %%d<4>;\n%s\nret; }\n",
			 refused[i]);
		if (build(&program, source) == 0)
			fprintf(stderr, "taken: %s\n", refused[i]);
		CHECK(program.code == NULL && program.log.text[0] != '\0');
		ptx_module_free(program.module);
	}
	/* a row that begins anywhere, one that is nowhere, and one in other memory */
	for (int i = 0; i < 3; i++) {
		snprintf(source, sizeof(source),
			 ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{ .reg .b32 %%r<16>; .shared .align 16 .b8 tile[128];\n"
			 ".reg .b64 %%d<2>; ld.param.u64 %%d1, [p]; mov.u32 %%r1, tile; add.u32 %%r1, %%r1, %d; ldmatrix.sync.aligned.m8n8.x1%s.b16 {%%r2}, [%s]; ret; }\n",
			 i == 0 ? 2 : 128, i < 2 ? ".shared" : "", i < 2 ? "%r1" : "%d1");
		must_build(&program, source);
		CHECK(run(&program, "k", 1, LANES, &at).fault == (i == 0 ? PTX_FAULT_MISALIGNED : PTX_FAULT_ADDRESS));
		drop(&program);
	}
}

static const struct scenario scenarios[] = {
	{ "products_are_sums", products_are_sums },
	{ "edges", edges },
	{ "matrices_move", matrices_move },
	{ "faults_and_forms", faults_and_forms },
};

RUN_SCENARIOS(scenarios)
