/* SPDX-License-Identifier: Apache-2.0 */
/*
 * code.c: for as long as there is no compiler, every module is taken as it is and
 * its kernels only take time.
 */
#include "ptx/code.h"

__attribute__((weak)) int ptx_compile(struct ptx_module *module, struct ptx_log *log, struct ptx_code **out)
{
	(void)module;
	(void)log;
	*out = NULL;
	return 0;
}

__attribute__((weak)) void ptx_code_free(struct ptx_code *code)
{
	(void)code;
}

__attribute__((weak)) uint32_t ptx_code_registers(const struct ptx_code *code, const struct ptx_function *function)
{
	(void)code;
	(void)function;
	return 32;
}

__attribute__((weak)) uint32_t ptx_code_local(const struct ptx_code *code, const struct ptx_function *function)
{
	(void)code;
	return function->localbytes;
}
