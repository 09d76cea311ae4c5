/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h: what emittensor.c and tensor.c agree on. */
#ifndef DIVVY_STANDIN_PTX_TENSOR_H
#define DIVVY_STANDIN_PTX_TENSOR_H

#include "op.h"

#define PTX_TENSOR_SATURATES 256u
enum { PTX_TENSOR_ROWS = 16, PTX_TENSOR_DEPTH = 32 };
enum ptx_matrix_use { PTX_MATRIX_LOAD, PTX_MATRIX_STORE, PTX_MATRIX_MOVE };

/* Elements in a register. */
static inline uint32_t ptx_tensor_packed(uint8_t type)
{
	return type == PTX_F16 || type == PTX_BF16 ? 2 : ptx_type_bytes(type) == 1 ? 4 : 1;
}

/* Registers that hold an operand of so many rows and columns; of so many rows of the result. */
static inline uint32_t ptx_tensor_registers(uint8_t type, uint32_t rows, uint32_t columns)
{
	return rows / 8 * columns / (4 * ptx_tensor_packed(type));
}

static inline uint32_t ptx_tensor_results(uint8_t type, uint32_t rows)
{
	return rows / 4 / ptx_tensor_packed(type);
}

static inline uint8_t ptx_tensor_width(uint8_t type)
{
	return type == PTX_F64 ? PTX_W_64 : PTX_W_32;
}

#endif
