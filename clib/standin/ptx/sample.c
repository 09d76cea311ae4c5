/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c: reading textures, reading and writing surfaces. */
#include "machine.h"

bool ptx_sample(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	(void)op;
	(void)mask;
	ptx_fault(warp, PTX_FAULT_TRAP, 0);
	return false;
}

bool ptx_surface(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	(void)op;
	(void)mask;
	ptx_fault(warp, PTX_FAULT_TRAP, 0);
	return false;
}

bool ptx_texture_query(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	(void)op;
	(void)mask;
	ptx_fault(warp, PTX_FAULT_TRAP, 0);
	return false;
}
