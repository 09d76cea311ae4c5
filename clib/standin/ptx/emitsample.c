/* SPDX-License-Identifier: Apache-2.0 */
/* emitsample.c: textures and surfaces. */
#include "compile.h"

bool ptx_emit_sample(struct ptx_compiler *c)
{
	return ptx_refuse(c, "this instruction is not supported by the simulated card");
}
