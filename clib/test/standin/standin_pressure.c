/* SPDX-License-Identifier: Apache-2.0 */
/* How many registers a thread needs: by hand, and random code against a slow twin. */
#include <stdarg.h>
#include <stdbool.h>

#include "ptx/liveness.h"
#include "image/registers.h"

#include "program.h"

static char text[65536];
static size_t used;

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	used += (size_t)vsnprintf(text + used, sizeof(text) - used, format, list);
	va_end(list);
	CHECK(used < sizeof(text));
}

/* The most registers at once in the first function of a text. */
static uint32_t pressure_of(const char *source)
{
	struct ptx_module *module = ptx_module_new();
	struct ptx_log log = { 0 };
	struct ptx_flow flow;

	CHECK(module);
	int result = ptx_parse(module, source, strlen(source), 90, &log);

	if (result == 0)
		result = ptx_link(module, &log);
	if (result != 0)
		fprintf(stderr, "%s\n%s\n", log.text, source);
	CHECK(result == 0 && ptx_flow_make(module->functions[0], &flow));
	uint32_t most = ptx_pressure(&flow);

	ptx_flow_end(&flow);
	ptx_module_free(module);
	return most;
}

static uint32_t body(const char *instructions)
{
	used = 0;
	say(HEADER ".visible .entry k(.param .u64 p)\n{\n.reg .pred %%p<4>; .reg .b16 %%h<9>; .reg .b32 %%r<9>; .reg .b64 %%d<9>;\n"
	    ".reg .v4 .b32 %%v<3>;\n%s\n}\n", instructions);
	return pressure_of(text);
}

/* %d1 is a kernel's parameter: at hand, and two registers where it is used. */
#define START "ld.param.u64 %d1, [p];\n"
#define LOAD(n) "ld.global.u32 %r" #n ", [%d1];\n"
#define STORE(n) "st.global.u32 [%d1], %r" #n ";\n"

static void straight(void)
{
	CHECK(body("ret;") == 0);
	CHECK(body(START LOAD(1) STORE(1)) == 3);
	CHECK(body(START LOAD(1) LOAD(2) STORE(1) STORE(2)) == 4);
	CHECK(body(START LOAD(1) STORE(1) LOAD(2) STORE(2)) == 3); /* one after the other */
	CHECK(body(START LOAD(1) LOAD(2) "add.u32 %r1, %r1, %r2;\n" STORE(1)) == 3);
	CHECK(body(START LOAD(1)) == 2); /* nobody reads it, but it is written somewhere */
	CHECK(body("mov.u32 %r1, %tid.x; mov.u32 %r1, %tid.y;") == 1);
}

static void widths(void)
{
	CHECK(body("mov.u64 %d2, %clock64; mov.u32 %r1, %tid.x; st.global.u32 [%d2], %r1;") == 3);
	CHECK(body("ld.global.u16 %h1, [%d1]; ld.global.u16 %h2, [%d1]; add.u16 %h1, %h1, %h2;") == 2);
	CHECK(body("mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; add.rn.f16x2 %r1, %r1, %r2;") == 2);
	CHECK(body("mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1; @%p1 bra L; @%p2 bra L;\nL: ret;") == 1);
	CHECK(body(START "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1]; st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4};") == 6);
	/* a vector is one register with four parts: a part written keeps the others */
	CHECK(body(START "mov.b32 %v1.x, %tid.x; mov.b32 %r1, %tid.y; st.global.u32 [%d1], %r1; st.global.u32 [%d1], %v1.x;") == 7);
}

static void constants(void)
{
	/* at hand: an immediate, a parameter, a copy of one, the shape */
	CHECK(body("mov.u32 %r1, 5; mov.u32 %r2, %tid.x; add.u32 %r3, %r2, %r2; add.u32 %r3, %r3, %r1;") == 2);
	CHECK(body("mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; add.u32 %r3, %r2, %r2; add.u32 %r3, %r3, %r1;") == 2);
	CHECK(body(START "cvta.to.global.u64 %d2, %d1; mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; add.u32 %r1, %r1, %r2;\n"
		   "st.global.u32 [%d2], %r1;") == 3);
	/* not at hand: what is written twice is a variable, tid must be read */
	CHECK(body("mov.u32 %r1, 5; mov.u32 %r2, %tid.x; add.u32 %r3, %r2, %r2; add.u32 %r3, %r3, %r1; mov.u32 %r1, 6;") == 2);
	CHECK(body("mov.u32 %r1, 5; mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y; add.u32 %r3, %r2, %r3; add.u32 %r3, %r3, %r1;\n"
		   "mov.u32 %r1, 6;") == 3);
}

static void flows(void)
{
	/* read again in the next turn: it lives through the loop's end */
	CHECK(body(START LOAD(1) "L: " LOAD(2) STORE(2) "setp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;") == 4);
	CHECK(body(START LOAD(1) "setp.eq.u32 %p1, %r1, 0;\nL: " LOAD(2) STORE(2) "@%p1 bra L;") == 3);
	/* under a condition a write keeps what was there ... */
	CHECK(body(START LOAD(1) "setp.eq.u32 %p1, %r1, 0;\n" LOAD(2) STORE(2) "@%p1 mov.u32 %r1, 7;\n" STORE(1)) == 4);
	CHECK(body(START LOAD(1) "setp.eq.u32 %p1, %r1, 0;\n" LOAD(2) STORE(2) "mov.u32 %r1, %tid.x;\n" STORE(1)) == 3);
	/* ... but where nothing was there yet, there is nothing to keep */
	CHECK(body(START LOAD(1) "setp.eq.u32 %p1, %r1, 0;\n" LOAD(2) STORE(2) "@%p1 mov.u32 %r3, 7; @!%p1 mov.u32 %r3, 8;\n" STORE(3)) == 3);
	/* of two ways the needier one */
	CHECK(body(START LOAD(1) "setp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;\n" LOAD(1) LOAD(2) LOAD(3) STORE(1) STORE(2) STORE(3)
		   "ret;\nL: " LOAD(2) STORE(2)) == 5);
}

#define MANY(name) \
	".func " name "() { .reg .b64 %d; .reg .b32 %r<9>; mov.u64 %d, %clock64;\n" \
	"ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d]; st.global.v4.u32 [%d], {%r1, %r2, %r3, %r4}; ret; }\n"

static uint32_t registers_of(const char *source, const char *name)
{
	struct program program;
	uint32_t count = 0;

	must_build(&program, source);
	for (uint32_t i = 0; i < program.module->functioncount; i++) {
		if (strcmp(program.module->functions[i]->name, name) == 0)
			count = ptx_code_registers(program.code, program.module->functions[i]);
	}
	drop(&program);
	return count;
}

static void calls(void)
{
	CHECK(registers_of(HEADER ".entry k() { ret; }\n", "k") == 2);
	CHECK(registers_of(HEADER MANY("many") ".entry k() { ret; }\n", "k") == 2);
	CHECK(registers_of(HEADER MANY("many") ".entry k() { call many; ret; }\n", "k") == 8);
	/* through another function, in either order of the text, and one that calls itself */
	CHECK(registers_of(HEADER MANY("many") ".func two() { call many; ret; }\n.entry k() { call two; ret; }\n", "k") == 8);
	CHECK(registers_of(HEADER ".func many();\n.func two();\n.entry k() { call two; ret; }\n.func two() { call many; call two; ret; }\n"
			   MANY("many"), "k") == 8);
	/* by an address: any function whose address is taken */
	CHECK(registers_of(HEADER MANY("many") ".func few() { ret; }\n.global .u64 table[1] = {few};\n"
			   ".entry k() { .reg .b64 %d; ld.global.u64 %d, [table]; q: .callprototype _ (); call %d, (), q; ret; }\n",
			   "k") == 4);
	CHECK(registers_of(HEADER MANY("many") ".func few() { ret; }\n.global .u64 table[2] = {few, many};\n"
			   ".entry k() { .reg .b64 %d; ld.global.u64 %d, [table]; q: .callprototype _ (); call %d, (), q; ret; }\n",
			   "k") == 8);
}

/* What a thread is given when it needs so many, and what fits then. */
static void limits(void)
{
	const struct sd_register_wish none = { 0 };
	const struct sd_register_wish few = { .most = 32 };
	const struct sd_register_wish large = { .threads = 1024 };
	struct ptx_function plain = { .entry = true };
	struct ptx_function bounded = { .maxntid = { 32, 32, 1 } };
	struct ptx_function twice = { .maxntid = { 256, 1, 1 }, .minctas = 4 };
	struct ptx_function often = { .maxntid = { 256, 1, 1 }, .minctas = 99 };
	struct ptx_function exact = { .reqntid = { 512, 1, 1 }, .maxregisters = 40 };
	struct ptx_function tiny = { .maxregisters = 8 };

	CHECK(sd_registers_given(&plain, 100, &none) == 100);
	CHECK(sd_registers_given(&plain, 300, &none) == 255);
	CHECK(sd_registers_given(&plain, 100, &few) == 32);
	CHECK(sd_registers_given(&plain, 20, &few) == 20);
	CHECK(sd_registers_given(&plain, 100, &large) == 64);
	CHECK(sd_registers_given(&bounded, 100, &none) == 64);
	CHECK(sd_registers_given(&bounded, 100, &few) == 64); /* the directive goes first */
	CHECK(sd_registers_given(&twice, 100, &none) == 64);
	CHECK(sd_registers_given(&twice, 300, &none) == 64);
	CHECK(sd_registers_given(&often, 300, &none) == 255);
	CHECK(sd_registers_given(&exact, 100, &none) == 40);
	CHECK(sd_registers_given(&tiny, 100, &none) == 24);
	/* 65536 / (32 threads * registers, in units of 256), warps in fours */
	CHECK(sd_registers_threads(64) == 1024 && sd_registers_threads(65) == 896);
	CHECK(sd_registers_threads(80) == 768 && sd_registers_threads(96) == 640 && sd_registers_threads(128) == 512);
	CHECK(sd_registers_threads(168) == 384 && sd_registers_threads(255) == 256 && sd_registers_threads(1) == 1024);
	for (uint32_t threads = 32; threads <= 1024; threads += 32) {
		struct ptx_function asked = { .maxntid = { threads, 1, 1 } };
		uint32_t given = sd_registers_given(&asked, 300, &none);

		CHECK(sd_registers_threads(given) >= threads);
		CHECK(given == 255 || sd_registers_threads(given + 8) < threads); /* and no fewer than need be */
	}
}

/* Random code. An instruction reads, writes and is guarded by registers of these
 * kinds; the text is made from it, and the twin looks at nothing else. */
enum kind { PREDICATE, SHORT, WORD, LONG, PAIR, KINDS };
enum { OF_KIND = 4, CODE_MOST = 30, TOUCHED_MOST = 4, NOBODY = -1 };
static const uint32_t kind_registers[KINDS] = { 0, 1, 1, 2, 2 };
static const char *const kind_names[KINDS] = { "p", "h", "r", "d", "v" };

struct step {
	int written[2]; /* kind * OF_KIND + number, NOBODY for none */
	int reads[TOUCHED_MOST];
	int guard;
	bool part;      /* writes a part of a vector only */
	bool hand;      /* what it writes is at hand: an immediate, a parameter */
	bool copy;
	bool leaves;    /* ret */
	int target;     /* of a branch, NOBODY for none */
	char form[96];
};

static struct step code[CODE_MOST];
static int count;

static uint64_t random_below(uint64_t most)
{
	static uint64_t state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % most;
}

static int pick(enum kind kind)
{
	return (int)(kind * OF_KIND + random_below(OF_KIND));
}

static const char *name(int reg)
{
	static char names[8][8];
	static unsigned int next;
	char *made = names[next++ % 8];

	snprintf(made, sizeof(names[0]), "%%%s%d", kind_names[reg / OF_KIND], reg % OF_KIND);
	return made;
}

static struct step random_step(void)
{
	struct step s = { .written = { NOBODY, NOBODY }, .reads = { NOBODY, NOBODY, NOBODY, NOBODY },
			  .guard = random_below(3) ? NOBODY : pick(PREDICATE), .target = NOBODY };
	static const enum kind adds[] = { SHORT, WORD, LONG };
	static const char *const types[] = { "s16", "s32", "s64" };
	size_t which = random_below(3);
	int *w = s.written;
	int *r = s.reads;

	switch (random_below(12)) {
	case 0:
		s.target = (int)random_below((uint64_t)count);
		snprintf(s.form, sizeof(s.form), "bra L%d", s.target);
		break;
	case 1:
		s.leaves = random_below(2);
		snprintf(s.form, sizeof(s.form), "%s", s.leaves ? "ret" : "bar.sync 0");
		break;
	case 2:
		w[0] = pick(PREDICATE);
		r[0] = pick(WORD);
		r[1] = pick(WORD);
		snprintf(s.form, sizeof(s.form), "setp.lt.s32 %s, %s, %s", name(w[0]), name(r[0]), name(r[1]));
		break;
	case 3:
		w[0] = pick(WORD);
		s.hand = true;
		snprintf(s.form, sizeof(s.form), "mov.u32 %s, 7", name(w[0]));
		break;
	case 4:
		w[0] = pick(LONG);
		s.hand = true;
		snprintf(s.form, sizeof(s.form), "ld.param.u64 %s, [p]", name(w[0]));
		break;
	case 5:
		w[0] = pick(WORD);
		r[0] = pick(WORD);
		s.copy = true;
		snprintf(s.form, sizeof(s.form), "mov.b32 %s, %s", name(w[0]), name(r[0]));
		break;
	case 6:
		w[0] = pick(WORD);
		w[1] = WORD * OF_KIND + (w[0] + 1) % OF_KIND; /* another one */
		r[0] = pick(LONG);
		snprintf(s.form, sizeof(s.form), "ld.global.v2.u32 {%s, %s}, [%s]", name(w[0]), name(w[1]), name(r[0]));
		break;
	case 7:
		r[0] = pick(LONG);
		r[1] = pick(WORD);
		snprintf(s.form, sizeof(s.form), "st.global.u32 [%s], %s", name(r[0]), name(r[1]));
		break;
	case 8:
		w[0] = pick(PAIR);
		r[0] = pick(WORD);
		s.part = true;
		snprintf(s.form, sizeof(s.form), "mov.b32 %s.%c, %s", name(w[0]), random_below(2) ? 'x' : 'y', name(r[0]));
		break;
	case 9:
		w[0] = pick(WORD);
		r[0] = pick(PAIR);
		snprintf(s.form, sizeof(s.form), "mov.b32 %s, %s.x", name(w[0]), name(r[0]));
		break;
	default:
		w[0] = pick(adds[which]);
		r[0] = pick(adds[which]);
		r[1] = pick(adds[which]);
		snprintf(s.form, sizeof(s.form), "add.%s %s, %s, %s", types[which], name(w[0]), name(r[0]), name(r[1]));
		break;
	}
	return s;
}

static void random_code(void)
{
	count = 2 + (int)random_below(CODE_MOST - 2);
	for (int i = 0; i < count; i++)
		code[i] = random_step();
	used = 0;
	say(HEADER ".visible .entry k(.param .u64 p)\n{\n.reg .pred %%p<4>; .reg .b16 %%h<4>; .reg .b32 %%r<4>; .reg .b64 %%d<4>;\n"
	    ".reg .v2 .b32 %%v<4>;\n");
	for (int i = 0; i < count; i++) {
		say("L%d: ", i);
		if (code[i].guard != NOBODY)
			say("@%s ", name(code[i].guard));
		say("%s;\n", code[i].form);
	}
	say("}\n");
}

static bool writes(int at, int reg)
{
	return code[at].written[0] == reg || code[at].written[1] == reg;
}

static int reads(int at, int reg)
{
	int times = code[at].guard == reg;

	for (int i = 0; i < TOUCHED_MOST; i++)
		times += code[at].reads[i] == reg;
	return times;
}

static int next(int at, int to[2])
{
	int ways = 0;

	if (code[at].target != NOBODY)
		to[ways++] = code[at].target;
	if (at + 1 < count && (code[at].guard != NOBODY || (code[at].target == NOBODY && !code[at].leaves)))
		to[ways++] = at + 1;
	return ways;
}

/* Whether some way from here reads it before it is wholly written. */
static bool wanted(int at, int reg, bool *seen)
{
	int to[2];

	if (seen[at])
		return false;
	seen[at] = true;
	if (reads(at, reg))
		return true;
	if (writes(at, reg))
		return code[at].guard != NOBODY || code[at].part;
	for (int i = next(at, to); i-- > 0;) {
		if (wanted(to[i], reg, seen))
			return true;
	}
	return false;
}

static bool wanted_before(int at, int reg)
{
	bool seen[CODE_MOST] = { false };

	return wanted(at, reg, seen);
}

static bool wanted_after(int at, int reg)
{
	int to[2];

	for (int i = next(at, to); i-- > 0;) {
		if (wanted_before(to[i], reg))
			return true;
	}
	return false;
}

static bool leads(int from, int to, bool *seen)
{
	int ways[2];

	for (int i = next(from, ways); i-- > 0;) {
		if (ways[i] == to)
			return true;
		if (!seen[ways[i]]) {
			seen[ways[i]] = true;
			if (leads(ways[i], to, seen))
				return true;
		}
	}
	return false;
}

static bool there_before(int at, int reg)
{
	for (int i = 0; i < count; i++) {
		bool seen[CODE_MOST] = { false };

		if (writes(i, reg) && leads(i, at, seen))
			return true;
	}
	return false;
}

static bool at_hand(int reg)
{
	int writer = NOBODY;

	for (int i = 0; i < count; i++) {
		for (int j = 0; j < 2; j++) {
			if (code[i].written[j] == reg && writer != NOBODY)
				return false;
			if (code[i].written[j] == reg)
				writer = i;
		}
	}
	if (writer == NOBODY || code[writer].guard != NOBODY || code[writer].part)
		return false;
	if (!code[writer].copy)
		return code[writer].hand;
	/* a copy of what was at hand further up */
	for (int i = 0; i < writer; i++) {
		if (writes(i, code[writer].reads[0]))
			return at_hand(code[writer].reads[0]);
	}
	return false;
}

static uint32_t twin(void)
{
	uint32_t most = 0;

	for (int at = 0; at < count; at++) {
		uint32_t before = 0;
		uint32_t after = 0;

		for (int reg = 0; reg < KINDS * OF_KIND; reg++) {
			uint32_t each = kind_registers[reg / OF_KIND];

			if (at_hand(reg)) {
				before += each * (uint32_t)reads(at, reg);
				continue;
			}
			before += wanted_before(at, reg) && there_before(at, reg) ? each : 0;
			after += writes(at, reg) || (wanted_after(at, reg) && there_before(at, reg)) ? each : 0;
		}
		most = before > most ? before : most;
		most = after > most ? after : most;
	}
	return most;
}

static void twins(void)
{
	uint32_t highest = 0;

	for (int round = 0; round < 3000; round++) {
		random_code();
		uint32_t want = twin();
		uint32_t got = pressure_of(text);

		if (got != want)
			fprintf(stderr, "round %d: %u, its twin says %u\n%s", round, got, want, text);
		CHECK(got == want);
		highest = got > highest ? got : highest;
	}
	CHECK(highest > 12);
}

static const struct scenario list[] = {
	{ "straight", straight },
	{ "widths", widths },
	{ "constants", constants },
	{ "flows", flows },
	{ "calls", calls },
	{ "limits", limits },
	{ "twins", twins },
};

RUN_SCENARIOS(list)
