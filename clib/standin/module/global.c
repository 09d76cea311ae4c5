/* SPDX-License-Identifier: Apache-2.0 */
/* global.c: the variables of modules: their places, first contents and names. */
#include <stdlib.h>
#include <string.h>

#include "cuda/enter.h"
#include "memory/memory.h"
#include "module.h"

static CUresult place(struct sd_module *module, struct ptx_variable *variable, struct sd_global *global)
{
	/* memory starts at multiples of a unit; more than that is made here */
	uint64_t spare = variable->align > SD_UNIT ? variable->align - SD_UNIT : 0;
	CUresult result = sd_linear_new(module->context, variable->managed ? SD_MANAGED : SD_GLOBAL,
					DIVVY_SIM_KIND_MODULE, variable->bytes + spare, &global->memory);

	if (result != CUDA_SUCCESS)
		return result;
	global->memory->owner = module;
	global->address = (global->memory->address + variable->align - 1) & ~(variable->align - 1);
	global->bytes = variable->bytes;
	return CUDA_SUCCESS;
}

static struct sd_global *known(const struct sd_module *module, const struct ptx_variable *variable)
{
	for (size_t i = 0; i < module->globalcount; i++) {
		if (module->globals[i]->place == variable->place)
			return module->globals[i];
	}
	return NULL;
}

static CUresult add(struct sd_module *module, struct ptx_variable *variable, struct sd_global **out)
{
	struct sd_global **more = realloc(module->globals, (module->globalcount + 1) * sizeof(struct sd_global *));
	struct sd_global *global = more ? calloc(1, sizeof(*global)) : NULL;

	module->globals = more ? more : module->globals;
	if (!global)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = place(module, variable, global);

	if (result != CUDA_SUCCESS) {
		free(global);
		return result;
	}
	global->name = variable->inbody ? NULL : variable->name;
	global->place = variable->place;
	module->globals[module->globalcount++] = global;
	*out = global;
	return CUDA_SUCCESS;
}

CUresult sd_globals_place(struct sd_module *module, struct ptx_module *tree)
{
	bool first = module->globalcount == 0; /* then none is known */
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; result == CUDA_SUCCESS && i < tree->variablecount; i++) {
		struct ptx_variable *variable = tree->variables[i];

		if (!variable->bytes || variable->type >= PTX_TEXREF) /* kernels that name a reference are refused */
			continue;
		struct sd_global *global = first ? NULL : known(module, variable);

		if (!global)
			result = add(module, variable, &global);
		if (result == CUDA_SUCCESS) {
			variable->address = global->address;
			variable->user = global;
		}
	}
	return result;
}

static void relocate(const struct ptx_variable *variable, unsigned char *bytes)
{
	for (uint32_t i = 0; i < variable->relocationcount; i++) {
		const struct ptx_relocation *one = &variable->relocations[i];
		uint64_t value = one->variable ? one->variable->address : ptx_function_address(one->function);

		value = (value + (uint64_t)one->addend) >> one->shift * 8;
		memcpy(bytes + one->offset, &value, one->bytes);
	}
}

CUresult sd_globals_fill(const struct ptx_module *tree)
{
	for (uint32_t i = 0; i < tree->variablecount; i++) {
		const struct ptx_variable *variable = tree->variables[i];
		struct sd_global *global = variable->user;

		if (!global || global->filled)
			continue;
		global->filled = true;
		sd_arena_clear(global->memory->address, global->memory->bytes);
		if (!variable->initialbytes)
			continue;
		CUresult result = sd_error(sim_touch(variable->initialbytes));

		if (result != CUDA_SUCCESS)
			return result;
		memcpy(sd_alias(global->address), variable->initial, variable->initialbytes);
		relocate(variable, sd_alias(global->address));
	}
	return CUDA_SUCCESS;
}

void sd_globals_end(struct sd_module *module)
{
	for (size_t i = 0; i < module->globalcount; i++) {
		module->globals[i]->memory->end(module->globals[i]->memory);
		free(module->globals[i]);
	}
	free(module->globals);
	module->globals = NULL;
	module->globalcount = 0;
}

struct sd_global *sd_module_global(struct sd_module *module, const char *name)
{
	for (size_t i = 0; i < module->globalcount; i++) {
		if (module->globals[i]->name && strcmp(module->globals[i]->name, name) == 0)
			return module->globals[i];
	}
	return NULL;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	struct sd_module *module = sd_object_get(hmod, SD_MODULE);

	if (!module)
		return sd_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!name || (!dptr && !bytes))
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	const struct sd_global *global = sd_module_global(module, name);

	if (!global)
		return sd_leave(CUDA_ERROR_NOT_FOUND);
	if (dptr)
		*dptr = global->address;
	if (bytes)
		*bytes = global->bytes;
	return sd_leave(CUDA_SUCCESS);
}
