/* SPDX-License-Identifier: Apache-2.0 */
/* slots.c: where each register of a function is in its frame. */
#include "compile.h"

enum ptx_width ptx_register_width(const struct ptx_register *reg)
{
	return (enum ptx_width)ptx_width_of(reg->type);
}

bool ptx_slots_assign(const struct ptx_function *function, uint32_t *slots, uint32_t *bytes)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < function->registercount; i++) {
		const struct ptx_register *reg = &function->registers[i];

		slots[i] = at;
		at += ptx_column_bytes(ptx_register_width(reg)) * (reg->vector ? reg->vector : 1u);
	}
	*bytes = at;
	return true;
}
