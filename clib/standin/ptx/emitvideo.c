/* SPDX-License-Identifier: Apache-2.0 */
/* emitvideo.c: video instructions. */
#include "compile.h"

bool ptx_emit_video(struct ptx_compiler *c)
{
	return ptx_refuse(c, "this instruction is not supported by the simulated card");
}
