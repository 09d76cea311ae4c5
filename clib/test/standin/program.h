/* SPDX-License-Identifier: Apache-2.0 */
/* program.h: PTX made ready and run without a driver, in a megabyte of memory. */
#ifndef DIVVY_TEST_STANDIN_PROGRAM_H
#define DIVVY_TEST_STANDIN_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "../check.h"
#include "ptx/code.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BASE 0x700000000000ull
#define BYTES (1u << 20)
#define HEADER ".version 8.0\n.target sm_80\n.address_size 64\n"

static _Alignas(4096) unsigned char memory[BYTES];
static char printed[4096];
static size_t printedsize;

struct program {
	struct ptx_module *module;
	struct ptx_code *code;
	struct ptx_log log;
};

static inline void print(void *who, const char *text, size_t size)
{
	(void)who;
	CHECK(printedsize + size < sizeof(printed));
	memcpy(printed + printedsize, text, size);
	printedsize += size;
	printed[printedsize] = '\0';
}

static inline int build(struct program *program, const char *text)
{
	uint64_t at = BASE + BYTES / 2;

	*program = (struct program){ .module = ptx_module_new() };
	CHECK(program->module);
	int result = ptx_parse(program->module, text, strlen(text), 90, &program->log);

	if (result == 0)
		result = ptx_link(program->module, &program->log);
	for (uint32_t i = 0; result == 0 && i < program->module->variablecount; i++) {
		struct ptx_variable *variable = program->module->variables[i];

		at = (at + 255) & ~255ull;
		variable->address = at;
		memset(memory + (at - BASE), 0, variable->bytes);
		if (variable->initial)
			memcpy(memory + (at - BASE), variable->initial, variable->initialbytes);
		for (uint32_t r = 0; r < variable->relocationcount; r++) {
			const struct ptx_relocation *relocation = &variable->relocations[r];
			uint64_t value = relocation->function ? ptx_function_address(relocation->function)
							      : relocation->variable->address;

			value += (uint64_t)relocation->addend;
			memcpy(memory + (at - BASE) + relocation->offset, &value, relocation->bytes);
		}
		at += variable->bytes;
	}
	return result == 0 ? ptx_compile(program->module, true, &program->log, &program->code) : result;
}

static inline void drop(struct program *program)
{
	ptx_code_free(program->code);
	ptx_module_free(program->module);
}

static inline void must_build(struct program *program, const char *text)
{
	int result = build(program, text);

	if (result != 0)
		fprintf(stderr, "%s\n%s\n", program->log.text, text);
	CHECK(result == 0);
}

static inline struct ptx_outcome run_as(const struct program *program, const char *name, const void *parameters,
				 struct ptx_launch launch)
{
	const struct ptx_range range = { BASE, BYTES, (uint64_t)(uintptr_t)memory - BASE, false };
	struct ptx_outcome outcome;

	launch.code = program->code;
	launch.parameters = parameters;
	launch.stackbytes = 65536;
	launch.multiprocessors = 4;
	launch.resident = 64;
	launch.clockmhz = 1000;
	launch.ranges = &range;
	launch.rangecount = 1;
	launch.print = print;
	for (uint32_t i = 0; i < program->module->functioncount; i++) {
		if (strcmp(program->module->functions[i]->name, name) == 0)
			launch.function = program->module->functions[i];
	}
	CHECK(launch.function);
	printedsize = 0;
	printed[0] = '\0';
	ptx_run(&launch, &outcome);
	return outcome;
}

static inline struct ptx_outcome run(const struct program *program, const char *name, uint32_t blocks, uint32_t threads,
			      const void *parameters)
{
	return run_as(program, name, parameters,
		      (struct ptx_launch){ .grid = { blocks, 1, 1 }, .block = { threads, 1, 1 } });
}

#endif
