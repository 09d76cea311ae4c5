/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of PTX text by itself: what it understands, and what it says of the rest. */
#include <errno.h>
#include <stdint.h>

#include "../check.h"
#include "random.h"
#include "ptx/ast.h"
#include "ptx/code.h"
#include "ptx/lex.h"
#include "menu.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define HEAD ".version 7.8\n.target sm_80\n.address_size 64\n"

static struct ptx_module *read_linked(const char *text, struct ptx_log *log)
{
	struct ptx_module *module = ptx_module_new();

	CHECK(module);
	*log = (struct ptx_log){ 0 };
	int result = ptx_parse(module, text, strlen(text), 82, log);

	if (result == 0)
		result = ptx_link(module, log);
	CHECK((result == 0) == !log->text[0]);
	if (result == 0)
		return module;
	ptx_module_free(module);
	return NULL;
}

static struct ptx_module *good(const char *text)
{
	struct ptx_log log;
	struct ptx_module *module = read_linked(text, &log);

	if (!module)
		fprintf(stderr, "%s\n", log.text);
	CHECK(module);
	return module;
}

static const struct ptx_function *function_of(const struct ptx_module *module, const char *name)
{
	for (uint32_t i = 0; i < module->functioncount; i++) {
		if (strcmp(module->functions[i]->name, name) == 0)
			return module->functions[i];
	}
	fprintf(stderr, "no function %s\n", name);
	_exit(1);
}

static const struct ptx_variable *variable_of(const struct ptx_module *module, const char *name)
{
	for (uint32_t i = 0; i < module->variablecount; i++) {
		if (strcmp(module->variables[i]->name, name) == 0)
			return module->variables[i];
	}
	fprintf(stderr, "no variable %s\n", name);
	_exit(1);
}

/* Numbers of every notation, and words at their edges. */
static void tokens(void)
{
	static const struct {
		const char *text;
		uint8_t kind;
		uint8_t form;
		uint64_t bits;
	} wanted[] = {
		{ "10", PTX_TOKEN_NUMBER, PTX_FORM_INT, 10 },
		{ "0x1fU", PTX_TOKEN_NUMBER, PTX_FORM_UNSIGNED, 31 },
		{ "0777", PTX_TOKEN_NUMBER, PTX_FORM_INT, 511 },
		{ "0b101", PTX_TOKEN_NUMBER, PTX_FORM_INT, 5 },
		{ "0xffffffffffffffff", PTX_TOKEN_NUMBER, PTX_FORM_UNSIGNED, UINT64_MAX },
		{ "0f3F800000", PTX_TOKEN_NUMBER, PTX_FORM_F32, 0x3f800000 },
		{ "0D3ff0000000000000", PTX_TOKEN_NUMBER, PTX_FORM_F64, 0x3ff0000000000000 },
		{ "1.5", PTX_TOKEN_NUMBER, PTX_FORM_F64, 0x3ff8000000000000 },
		{ "1e3", PTX_TOKEN_NUMBER, PTX_FORM_F64, 0x408f400000000000 },
		{ "0f3F80", PTX_TOKEN_BAD, 0, 0 },
		{ "18446744073709551616", PTX_TOKEN_BAD, 0, 0 },
		{ "12ab", PTX_TOKEN_BAD, 0, 0 },
		{ "%r1", PTX_TOKEN_WORD, 0, 0 },
		{ ".2d", PTX_TOKEN_DOTTED, 0, 0 },
		{ ".L2::cache_hint", PTX_TOKEN_DOTTED, 0, 0 },
		{ "\"a\\\"b\"", PTX_TOKEN_STRING, 0, 0 },
		{ "\"open", PTX_TOKEN_BAD, 0, 0 },
		{ "/* open", PTX_TOKEN_BAD, 0, 0 },
		{ "<<", PTX_TOKEN_MARK, 0, PTX_MARK('<', '<') },
		{ "// nothing\n# 1 \"file\"\n@@DWARF\n", PTX_TOKEN_END, 0, 0 },
		{ "\x01", PTX_TOKEN_BAD, 0, 0 },
	};

	for (size_t i = 0; i < COUNT(wanted); i++) {
		struct ptx_lexer lexer = { .at = wanted[i].text, .end = wanted[i].text + strlen(wanted[i].text), .line = 1 };
		struct ptx_token token;

		ptx_lex(&lexer, &token);
		if (token.kind != wanted[i].kind)
			fprintf(stderr, "%s\n", wanted[i].text);
		CHECK(token.kind == wanted[i].kind);
		if (token.kind == PTX_TOKEN_NUMBER)
			CHECK(token.form == wanted[i].form && token.bits == wanted[i].bits);
		if (token.kind == PTX_TOKEN_MARK)
			CHECK(token.bits == wanted[i].bits);
	}
}

static void variables(void)
{
	struct ptx_module *module = good(
		HEAD ".visible .global .align 4 .u32 counter = 7;\n"
		     ".global .align 8 .b8 table[16] = {1, 2, 0x3, 4, 0xff};\n"
		     ".const .f32 half = 0.5, pi = 0f40490FDB, list[3] = {1.0, -2.0, 3};\n"
		     ".global .s32 matrix[2][3] = {{1, 2, 3}, {4, 5, 6}}, open[] = {(1 + 2) * 3, ~0, 1 << 4, -7 / 2};\n"
		     ".global .u64 at = table, after = generic(table) + 8, own = own;\n"
		     ".global .u8 byte[8] = {0xff(table), 0xff00(table), 0, 0, 0, 0, 0, 0};\n"
		     ".func f() { ret; }\n"
		     ".global .u64 functions[2] = {f, 0};\n"
		     ".global .attribute(.managed) .align 512 .v4 .f32 vector[2];\n"
		     ".global .texref picture; .global .surfref target;\n"
		     ".global .align 16 .b64 pair[2] = {WARP_SZ, 5 > 3 ? 10 : 20};\n");
	const struct ptx_variable *open = variable_of(module, "open");
	const struct ptx_variable *after = variable_of(module, "after");
	const struct ptx_variable *byte = variable_of(module, "byte");

	CHECK(module->variablecount == 16);
	CHECK(variable_of(module, "counter")->linkage == PTX_VISIBLE);
	CHECK(variable_of(module, "table")->bytes == 16 && variable_of(module, "table")->initialbytes == 5);
	CHECK(memcmp(variable_of(module, "half")->initial, (float[]){ 0.5f }, 4) == 0);
	CHECK(memcmp(variable_of(module, "list")->initial, (float[]){ 1, -2, 3 }, 12) == 0);
	CHECK(memcmp(variable_of(module, "matrix")->initial, (int[]){ 1, 2, 3, 4, 5, 6 }, 24) == 0);
	CHECK(open->bytes == 16 && memcmp(open->initial, (int[]){ 9, -1, 16, -3 }, 16) == 0);
	CHECK(variable_of(module, "at")->relocationcount == 1);
	CHECK(after->relocations[0].variable == variable_of(module, "table"));
	CHECK(after->relocations[0].addend == 8 && after->relocations[0].generic && after->relocations[0].bytes == 8);
	CHECK(variable_of(module, "own")->relocations[0].variable == variable_of(module, "own"));
	CHECK(byte->relocationcount == 2 && byte->relocations[1].shift == 1 && byte->relocations[1].offset == 1);
	CHECK(variable_of(module, "functions")->relocations[0].function == function_of(module, "f"));
	CHECK(function_of(module, "f")->addressed);
	CHECK(variable_of(module, "vector")->managed && variable_of(module, "vector")->align == 512);
	CHECK(variable_of(module, "vector")->bytes == 32 && variable_of(module, "picture")->type == PTX_TEXREF);
	CHECK(memcmp(variable_of(module, "pair")->initial, (uint64_t[]){ 32, 10 }, 16) == 0);
	ptx_module_free(module);
}

static void parameters(void)
{
	struct ptx_module *module = good(
		HEAD ".visible .entry kernel(.param .u8 a, .param .u64 .ptr .global .align 16 b,\n"
		     ".param .align 16 .b8 c[20], .param .f32 d) .maxntid 256, 2, 1 .minnctapersm 2 .maxnreg 64\n"
		     "{ .local .align 8 .b8 depot[40]; .shared .f32 tile[4][8]; .reg .f32 %f<3>;\n"
		     "  ld.param.f32 %f1, [d]; st.shared.f32 [tile + 4], %f1; st.shared.f32 [tile[2]], %f1; ret; }\n"
		     ".func (.param .align 8 .b8 r[24]) helper(.reg .u32 x, .param .b64 y) { ret; }\n");
	const struct ptx_function *kernel = function_of(module, "kernel");
	const struct ptx_function *helper = function_of(module, "helper");
	const struct ptx_variable *one = kernel->parameters;

	CHECK(kernel->entry && kernel->maxntid[0] == 256 && kernel->maxntid[1] == 2 && kernel->maxntid[2] == 1);
	CHECK(kernel->minctas == 2 && kernel->maxregisters == 64);
	CHECK(one->offset == 0 && one->next->offset == 8 && one->next->next->offset == 16);
	CHECK(one->next->next->next->offset == 36 && kernel->parameterbytes == 40);
	CHECK(kernel->localbytes == 40 && kernel->sharedbytes == 128 && !kernel->dynamic);
	CHECK(kernel->instructions[1].operands[0].offset == 4 && kernel->instructions[2].operands[0].offset == 64);
	CHECK(!helper->entry && helper->returns->bytes == 24 && helper->parameters->space == PTX_SPACE_REG);
	CHECK(helper->parameters->reg == 0 && helper->parameters->next->offset == 24 && helper->parambytes == 32);
	ptx_module_free(module);
}

static void instructions(void)
{
	struct ptx_module *module = good(
		HEAD ".global .texref picture;\n.visible .entry kernel(.param .u64 p) {\n"
		     ".reg .pred %p<4>; .reg .b32 %r<10>; .reg .b64 %rd<4>; .reg .f32 %f<9>; .reg .v4 .f32 %v; .reg .b16 %rs<3>;\n"
		     "mov.u32 %r1, %tid.x;\n"
		     "@!%p1 ld.global.nc.L1::no_allocate.L2::128B.v2.f32 {%f1, _}, [%rd1+-16];\n"
		     "setp.lt.and.s32 %p1|%p2, %r1, -5, !%p3;\n"
		     "mul.wide.u32 %rd2, %r1, 4;\n"
		     "cvt.rzi.ftz.sat.u16.f32 %rs1, %f1;\n"
		     "atom.acq_rel.gpu.global.cas.b32 %r2, [%rd1], %r3, 0xffffffff;\n"
		     "shfl.sync.down.b32 %r3|%p1, %r2, 1, 31, -1;\n"
		     "bar.red.popc.u32 %r4, 0, 64, %p1;\n"
		     "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [picture, {%f5, %f6}];\n"
		     "mov.f32 %f7, %v.y; mov.u32 %r5, %envreg3; mov.b32 %r6, {%rs1, %rs2};\n"
		     "fma.rn.f32 %f8, %f1, 0f40000000, 1.5;\n"
		     "lop3.b32 %r7, %r1, %r2, %r3, 0x96; vadd.s32.u32.s32 %r8, %r1.b0, -%r2.h1;\n"
		     "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r3}, {%f1,%f2,%f3,%f4};\n"
		     "ret; }\n");
	const struct ptx_function *kernel = function_of(module, "kernel");
	const struct ptx_instruction *at = kernel->instructions;

	CHECK(kernel->instructioncount == 17);
	CHECK(at[0].opcode == PTX_OP_MOV && at[0].operands[1].special == PTX_SR_TID && at[0].operands[1].lane == 1);
	CHECK(at[1].guard != PTX_NONE && at[1].guardnot && at[1].vector == 2 && at[1].space == PTX_SPACE_GLOBAL);
	CHECK(at[1].flags == (PTX_F(NC) | PTX_F(EVICTION) | PTX_F(PREFETCH_SIZE)) && !at[1].odd);
	CHECK(at[1].operands[0].elements[1].kind == PTX_OPERAND_SINK && at[1].operands[1].offset == -16);
	CHECK(at[2].compare == PTX_CMP_LT && at[2].operation == PTX_DO_AND && at[2].operands[3].negated);
	CHECK(at[2].operands[0].second != PTX_NONE && (int64_t)at[2].operands[2].bits == -5);
	CHECK(at[3].flags == PTX_F(WIDE) && at[3].types[0] == PTX_U32);
	CHECK(at[4].round == PTX_ROUND_RZI && at[4].flags == (PTX_F(FTZ) | PTX_F(SAT)) && at[4].types[1] == PTX_F32);
	CHECK(at[5].semantics == PTX_SEM_ACQ_REL && at[5].scope == PTX_SCOPE_GPU && at[5].operation == PTX_DO_CAS);
	CHECK(at[6].operation == PTX_DO_DOWN && at[6].flags == PTX_F(SYNC) && at[6].operandcount == 5);
	CHECK(at[7].flags == PTX_F(RED) && at[7].operation == PTX_DO_POPC);
	CHECK(at[8].geometry == PTX_GEOM_2D && at[8].operands[1].kind == PTX_OPERAND_TEXTURE);
	CHECK(at[8].operands[1].elements[0].kind == PTX_OPERAND_SYMBOL && at[8].operands[1].elements[2].count == 2);
	CHECK(at[9].operands[1].lane == 2 && at[10].operands[1].special == PTX_SR_ENVREG && at[10].operands[1].bits == 3);
	CHECK(at[11].operands[1].kind == PTX_OPERAND_VECTOR);
	CHECK(at[12].operands[2].form == PTX_FORM_F32 && at[12].operands[3].form == PTX_FORM_F64);
	CHECK(at[14].operands[1].odd && at[14].operands[2].odd);
	CHECK(at[15].shape == PTX_SHAPE_M16N8K8 && at[15].typecount == 4 && at[15].flags == (PTX_F(SYNC) | PTX_F(ALIGNED)) && at[15].layout == PTX_LAYOUT_ROW && at[15].layout2 == PTX_LAYOUT_COL);
	ptx_module_free(module);
}

/* Registers are those of the innermost scope, and only those used have an index. */
static void scopes(void)
{
	struct ptx_module *module = good(
		HEAD ".func f() {\n.reg .b32 %r<1000000>, x; .reg .f32 %r1<10>;\n"
		     "mov.b32 x, %r5;\n{ .reg .b64 x; mov.b64 x, 1; mov.b32 %r5, 2; }\n"
		     "mov.b32 x, %r5; mov.f32 %r11, 1.0;\n"
		     "{ .param .b32 a; .param .b64 b; }\n{ .param .align 16 .b8 c[32]; }\nret; }\n");
	const struct ptx_function *f = function_of(module, "f");
	const struct ptx_instruction *at = f->instructions;

	CHECK(f->registercount == 4 && f->parambytes == 32);
	CHECK(at[0].operands[0].reg == at[3].operands[0].reg && at[0].operands[1].reg == at[2].operands[0].reg);
	CHECK(at[1].operands[0].reg != at[0].operands[0].reg && f->registers[at[1].operands[0].reg].type == PTX_B64);
	ptx_module_free(module);
}

/* Labels are seen in their scope and those inside it, before and after them. */
static void labels(void)
{
	struct ptx_module *module = good(
		HEAD ".func f() {\n.reg .b32 %r<3>; .reg .pred p;\n"
		     "bra.uni end;\n{ loop: @p bra loop; bra end; }\n{ loop: bra loop; }\n"
		     "$table: .branchtargets first, end, first;\nbrx.idx %r1, $table;\nfirst: ret;\nend: }\n");
	const struct ptx_instruction *at = function_of(module, "f")->instructions;

	CHECK(function_of(module, "f")->instructioncount == 6);
	CHECK(at[0].operands[0].target == 6 && at[1].operands[0].target == 1 && at[3].operands[0].target == 3);
	CHECK(at[4].operands[1].count == 3 && at[4].operands[1].targets[0] == 5 && at[4].operands[1].targets[1] == 6);
	ptx_module_free(module);
}

static void calls(void)
{
	struct ptx_module *module = good(
		HEAD ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
		     ".extern .func unused(.param .b32 x);\n"
		     ".func (.param .b32 r) one(.param .b32 x);\n"
		     ".func (.param .b32 r) two(.param .b32 x) { .shared .b32 s; .reg .b32 %r<2>; ld.shared.b32 %r1, [s]; ret; }\n"
		     ".visible .entry kernel() {\n.reg .b64 %rd<3>; .reg .b32 %r<3>; .param .b32 r; .param .b32 x;\n"
		     "mov.u64 %rd1, two;\n"
		     "call.uni (r), one, (x);\ncall (r), vprintf, (x, x);\n"
		     "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
		     "call (r), %rd1, (x), proto;\nlist: .calltargets one, two;\ncall (r), %rd1, (x), list;\n"
		     "call one;\n ret; }\n"
		     ".func (.param .b32 r) one(.param .b32 x) { ret; }\n");
	const struct ptx_function *kernel = function_of(module, "kernel");
	const struct ptx_instruction *at = kernel->instructions;

	CHECK(module->functioncount == 4); /* unused is nowhere, and nobody minds */
	CHECK(at[0].operands[1].function == function_of(module, "two") && function_of(module, "two")->addressed);
	CHECK(at[1].operands[1].function == function_of(module, "one") && at[1].operands[1].function->defined);
	CHECK(at[1].operands[0].count == 1 && at[1].operands[2].elements[0].kind == PTX_OPERAND_SYMBOL);
	CHECK(at[2].operands[1].function->builtin == PTX_BUILTIN_VPRINTF);
	CHECK(at[3].operands[3].kind == PTX_OPERAND_PROTOTYPE && at[3].operands[3].prototype->parameters->bytes == 4);
	CHECK(at[4].operands[3].count == 2 && at[4].operands[3].functions[0] == function_of(module, "one"));
	CHECK(at[5].operands[2].count == 0 && kernel->indirect);
	CHECK(kernel->sharedbytes == 4); /* by way of the function whose address is taken */
	ptx_module_free(module);
}

/* Shared variables overlap only where no kernel reaches both. */
static void shared_layout(void)
{
	struct ptx_module *module = good(
		HEAD ".shared .align 4 .b8 common[100]; .extern .shared .align 16 .b8 rest[];\n"
		     ".func f() { .reg .b32 %r<2>; ld.shared.b32 %r1, [common]; ret; }\n"
		     ".visible .entry a() { .shared .align 8 .b8 own[24]; .reg .b32 %r<2>; ld.shared.b32 %r1, [own]; call f; ret; }\n"
		     ".visible .entry b() { .shared .align 8 .b8 own[40]; .reg .b32 %r<2>; ld.shared.b32 %r1, [own];\n"
		     "  ld.shared.b32 %r1, [common+4]; ld.shared.b32 %r1, [rest]; ret; }\n"
		     ".visible .entry c() { .shared .align 8 .b8 own[8]; .reg .b32 %r<2>; ld.shared.b32 %r1, [own]; ret; }\n");

	CHECK(function_of(module, "a")->sharedbytes == 128 && !function_of(module, "a")->dynamic);
	CHECK(function_of(module, "b")->sharedbytes == 144 && function_of(module, "b")->dynamic);
	CHECK(function_of(module, "c")->sharedbytes == 8);
	CHECK(function_of(module, "c")->variables->offset == 0);
	ptx_module_free(module);
}

/* Several inputs: what is visible is one, what is not stays apart. */
static void linked(void)
{
	static const char first[] = HEAD ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
					 ".extern .global .u32 counter; .global .u32 hidden = 1;\n"
					 ".weak .func soft() { ret; }\n"
					 ".visible .entry kernel() { .reg .b32 %r<3>; .param .b32 a; .param .b32 r;\n"
					 "ld.global.u32 %r1, [counter]; call (r), twice, (a); call soft; ret; }\n";
	static const char second[] = HEAD ".visible .global .u32 counter = 5; .global .u32 hidden = 2;\n"
					  ".visible .func (.param .b32 r) twice(.param .b32 x) { ret; }\n"
					  ".visible .func soft() { trap; ret; }\n";
	struct ptx_module *module = ptx_module_new();
	struct ptx_log log = { 0 };

	CHECK(ptx_parse(module, first, sizeof(first) - 1, 82, &log) == 0);
	CHECK(ptx_parse(module, second, sizeof(second) - 1, 82, &log) == 0);
	CHECK(ptx_link(module, &log) == 0);
	const struct ptx_instruction *at = function_of(module, "kernel")->instructions;

	CHECK(module->variablecount == 3 && at[0].operands[1].variable == variable_of(module, "counter"));
	CHECK(at[1].operands[1].function == function_of(module, "twice"));
	CHECK(at[2].operands[1].function->instructioncount == 2); /* the one that is not weak */
	ptx_module_free(module);

	module = ptx_module_new();
	CHECK(ptx_parse(module, first, sizeof(first) - 1, 82, &log) == 0);
	CHECK(ptx_link(module, &log) == -EBADMSG && strstr(log.text, "unresolved extern"));
	ptx_module_free(module);
	module = ptx_module_new();
	log = (struct ptx_log){ 0 };
	CHECK(ptx_parse(module, second, sizeof(second) - 1, 82, &log) == 0);
	CHECK(ptx_parse(module, second, sizeof(second) - 1, 82, &log) == 0);
	CHECK(ptx_link(module, &log) == -EBADMSG && strstr(log.text, "defined twice"));
	ptx_module_free(module);
}

#define BODY(text) HEAD ".func f() {\n.reg .b32 %r<3>; .reg .pred p; .reg .b64 %rd<2>;\n" text "\nret; }\n"

static void errors(void)
{
	static const struct {
		const char *text;
		const char *says;
	} wanted[] = {
		{ "", "expected .version" },
		{ ".target sm_80\n", "line 1: expected .version first" },
		{ ".version 7.8\n.func f() { }", "line 2: expected .target" },
		{ ".version 9.9\n", "line 1: PTX version 9.9 is newer than 8.2" },
		{ ".version 7.8\n.target sm_xy\n", "line 2: unknown target" },
		{ ".version 7.8\n.target sm_80\n.address_size 32\n", "32 bits" },
		{ HEAD ".bogus", "line 4: unknown directive '.bogus'" },
		{ HEAD ".global .u33 x;", "line 4: unknown type '.u33'" },
		{ HEAD ".global .u32 x[2] = {1, 2, 3};", "more values" },
		{ HEAD ".global .u32 x[];", "size of 'x' is missing" },
		{ HEAD ".global .u32 x = y;", "'y' is not declared" },
		{ HEAD ".global .u32 x; .global .u32 x;", "declared twice" },
		{ HEAD ".global .u32 x = 1 / 0;", "divided by zero" },
		{ HEAD ".shared .u32 x = 1;", "initializer" },
		{ HEAD ".global .b8 x[1099511627777];", "expected a number up to" },
		{ HEAD ".const .b8 x[65537];", "constant memory" },
		{ HEAD ".entry k(.param .b8 x[40000]) { ret; }", "does not fit" },
		{ HEAD ".entry k(.reg .b32 x) { ret; }", "cannot be a register" },
		{ HEAD ".func f() { ret;", "before the end of the text" },
		{ HEAD ".func f() { } .func f() { }", "two bodies" },
		{ BODY("frobnicate.b32 %r1, %r2;"), "line 6: unknown instruction 'frobnicate.b32'" },
		{ BODY("add.s32 %r1, %r2;"), "line 6: 'add.s32' has 2 operands" },
		{ BODY("\nmov.b32 %r1, %r7;"), "line 7: '%r7' is not declared" },
		{ BODY("mov.b32 %r1, %tod.x;"), "'%tod' is not declared" },
		{ BODY("@%r1 bra x;"), "'%r1' is no predicate" },
		{ BODY("bra nowhere;"), "line 6: there is no label 'nowhere'" },
		{ BODY("{ inner: } bra inner;"), "there is no label 'inner'" },
		{ BODY("x: x: bra x;"), "label 'x' is there twice" },
		{ BODY("mov.b32 %r1, 5"), "expected" },
		{ BODY("ld.b32 %r1, [%rd1;"), "expected ']' before ';'" },
		{ BODY("call g;"), "'g' is not declared" },
		{ BODY("call %rd1, (%r1);"), "prototype" },
		{ BODY("mov.b32 %r1, 99999999999999999999;"), "64 bits" },
		{ BODY("mov.b32 %r1, 1.5 << 2;"), "needs integers" },
		{ BODY("/* no end"), "comment has no end" },
		{ HEAD ".extern .func g(); .func f() { call g; }", "unresolved extern function 'g'" },
	};

	for (size_t i = 0; i < COUNT(wanted); i++) {
		struct ptx_log log;
		struct ptx_module *module = read_linked(wanted[i].text, &log);

		if (module || !strstr(log.text, wanted[i].says))
			fprintf(stderr, "%s: %s, want %s\n", wanted[i].text, log.text, wanted[i].says);
		CHECK(!module && strstr(log.text, wanted[i].says));
	}
}

/* Depth and size have bounds, and a text that is only long does not take long. */
static void bounds(void)
{
	enum { DEEP = 200000 };
	static const char *const nests[] = { "{", "mov.b32 %r1, ((((((((", "mov.b32 %r1, {{{{{{{{", "mov.b32 %r1, - - - - " };
	char *text = malloc(DEEP * 48 + 1000);
	struct ptx_log log;

	CHECK(text);
	for (size_t i = 0; i < COUNT(nests); i++) {
		size_t size = (size_t)sprintf(text, "%s", HEAD ".func f() { .reg .b32 %r<3>;\n");

		for (int j = 0; j < DEEP; j++)
			size += (size_t)sprintf(text + size, "%s", j && strchr(nests[i], ' ') ? strchr(nests[i], ',') + 1 : nests[i]);
		CHECK(!read_linked(text, &log) && log.text[0]);
	}
	size_t size = (size_t)sprintf(text, "%s", HEAD ".func f() { .reg .b32 %r<300000>;\n");

	for (int j = 0; j < DEEP; j++)
		size += (size_t)sprintf(text + size, "L%d: mov.b32 %%r%d, %d;\n", j, j, j);
	sprintf(text + size, "}");
	struct ptx_module *module = good(text);

	CHECK(module->functions[0]->registercount == DEEP && module->functions[0]->instructioncount == DEEP);
	ptx_module_free(module);
	free(text);
}

#define REGISTERS \
	".reg .pred %p<3>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<9>; .reg .f64 %e<9>;\n"

/* Every form on the menu is understood to the last word. */
static void menu_is_read(void)
{
	static char text[4096];

	for (size_t i = 0; i < COUNT(menu); i++) {
		sprintf(text, "%s%s\nL1: ret;\n}\n", HEAD MENU_VARIABLES ".func f() {\n" REGISTERS, menu[i]);
		struct ptx_module *module = good(text);
		const struct ptx_function *f = function_of(module, "f");

		for (uint32_t j = 0; j < f->instructioncount; j++) {
			if (f->instructions[j].odd)
				fprintf(stderr, "%s: %s\n", menu[i], f->instructions[j].odd);
			CHECK(!f->instructions[j].odd);
		}
		ptx_module_free(module);
	}
}

static const char sample[] =
	HEAD ".file 1 \"x.cu\"\n.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
	     ".visible .global .align 8 .u64 at[3] = {at, generic(at)+8, 0xff};\n.const .f32 c[] = {1.5, 0f3f800000};\n"
	     ".extern .shared .align 16 .b8 rest[]; .global .texref t;\n"
	     ".func (.param .b64 r) g(.param .align 8 .b8 p[16]) { .reg .b64 %rd<3>; ld.param.b64 %rd1, [p+8];\n"
	     "st.param.b64 [r+0], %rd1; ret; }\n"
	     ".visible .entry k(.param .u64 a, .param .f32 b) .maxntid 128, 1, 1\n{\n"
	     ".reg .pred %p<3>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>; .shared .f32 s[32];\n"
	     ".loc 1 2 3\n.pragma \"nounroll\";\nld.param.u64 %rd1, [a]; cvta.to.global.u64 %rd2, %rd1;\n"
	     "mov.u32 %r1, %ctaid.x; mad.lo.s32 %r2, %r1, 4, -1; setp.ge.s32 %p1, %r2, 10; @%p1 bra L2;\n"
	     "L1: ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2+16]; tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [t, {%f5, %f6}];\n"
	     "{ .param .align 8 .b8 p0[16]; .param .b64 r0; st.param.b64 [p0+0], %rd1; call.uni (r0), g, (p0);\n"
	     "ld.param.b64 %rd3, [r0+0]; }\natom.global.add.u32 %r3, [%rd2], 1; bar.sync 0; @!%p1 bra L1;\n"
	     "targets: .branchtargets L1, L2; brx.idx %r3, targets;\nL2: ret;\n}\n";

/* The sample, or a function of some things from the menu. */
static size_t some_text(char *text)
{
	if (random64() % 2) {
		memcpy(text, sample, sizeof(sample));
		return sizeof(sample) - 1;
	}
	size_t size = (size_t)sprintf(text, "%s", HEAD MENU_VARIABLES ".visible .entry k() {\n" REGISTERS);

	for (uint64_t i = 1 + random64() % 5; i > 0; i--)
		size += (size_t)sprintf(text + size, "%s\n", menu[random64() % COUNT(menu)]);
	return size + (size_t)sprintf(text + size, "L1: ret;\n}\n");
}

/* A token of the sample or of the menu, to put somewhere else. */
static size_t some_token(const char **text)
{
	const char *from = random64() % 2 ? sample : menu[random64() % COUNT(menu)];
	size_t size = strlen(from);
	struct ptx_lexer lexer = { .at = from + random64() % size, .end = from + size };
	struct ptx_token token;

	ptx_lex(&lexer, &token);
	*text = token.kind == PTX_TOKEN_BAD ? "" : token.text;
	return token.kind == PTX_TOKEN_BAD ? 0 : token.length;
}

/* What a reader of the tree relies on. */
static void check_tree(const struct ptx_module *module)
{
	for (uint32_t i = 0; i < module->functioncount; i++) {
		const struct ptx_function *function = module->functions[i];

		CHECK(function->definition == function && function->index == i);
		for (uint32_t j = 0; j < function->instructioncount; j++) {
			const struct ptx_instruction *one = &function->instructions[j];

			CHECK(one->guard == PTX_NONE || one->guard < function->registercount);
			for (uint32_t k = 0; k < one->operandcount; k++) {
				const struct ptx_operand *operand = &one->operands[k];

				CHECK(operand->reg == PTX_NONE || operand->reg < function->registercount);
				if (operand->kind == PTX_OPERAND_REGISTER)
					CHECK(operand->reg < function->registercount);
				if (operand->kind == PTX_OPERAND_LABEL)
					CHECK(operand->target <= function->instructioncount);
				if (operand->kind == PTX_OPERAND_FUNCTION)
					CHECK(operand->function->defined || operand->function->builtin);
				if (operand->kind == PTX_OPERAND_SYMBOL)
					CHECK(operand->variable && operand->variable->definition == operand->variable);
			}
		}
	}
	for (uint32_t i = 0; i < module->variablecount; i++)
		CHECK(module->variables[i]->initialbytes <= module->variables[i]->bytes);
}

/* In memory of exactly its size, so that a sanitizer sees a read past it. */
static void read_mutated(void)
{
	static char text[sizeof(sample) * 2];
	static const char marks[] = "{}()[]<>;,.=\"/* 9\n\t-%@!_|+";
	size_t size = some_text(text);

	for (uint64_t i = random64() % 6; i > 0; i--) {
		size_t at = random64() % size;
		const char *token = NULL;
		size_t length = some_token(&token);

		if (random64() % 2) {
			text[at] = marks[random64() % (sizeof(marks) - 1)];
		} else if (size + length < sizeof(text) && length) {
			memmove(text + at + length, text + at, size - at);
			memcpy(text + at, token, length);
			size += length;
		}
	}
	if (random64() % 4 == 0)
		size = 1 + random64() % size;
	char *copy = malloc(size);
	struct ptx_module *module = ptx_module_new();
	struct ptx_log log = { 0 };

	CHECK(copy && module);
	memcpy(copy, text, size);
	int result = ptx_parse(module, copy, size, 82, &log);

	free(copy);
	if (result == 0)
		result = ptx_link(module, &log);
	CHECK(result == 0 ? !log.text[0] : log.text[0] != '\0');
	struct ptx_code *code = NULL;

	if (result == 0) {
		check_tree(module);
		result = ptx_compile(module, true, &log, &code);
		CHECK(result == 0 ? !log.text[0] : log.text[0] != '\0');
	}
	ptx_code_free(result == 0 ? code : NULL);
	ptx_module_free(module);
}

/* 5,000 texts, or for DIVVY_FUZZ_SECONDS with another seed */
static void mutated(void)
{
	while (one_more(5000))
		read_mutated();
}

static const struct scenario scenarios[] = {
	{ "tokens", tokens },	{ "variables", variables }, { "parameters", parameters }, { "instructions", instructions },
	{ "scopes", scopes },	{ "labels", labels },	    { "calls", calls },		  { "shared_layout", shared_layout },
	{ "linked", linked },	{ "errors", errors },	    { "bounds", bounds },	  { "menu_is_read", menu_is_read },
	{ "mutated", mutated },
};

RUN_SCENARIOS(scenarios)
