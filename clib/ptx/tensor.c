/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.c: products of small matrices, whose elements the lanes of a warp have among them,
 * and matrices on their way there.
 *
 * MMA: d = a * b + c. sub and sub2 are the types of a and b; mode is the type of c and d, and
 *   PTX_TENSOR_SATURATES; imm has the rows of a and, from bit 8, its columns; list has the columns of d, a, b, c
 * MATRIX: c is what (enum ptx_matrix_use), imm how many matrices, sub2 whether they are transposed, list the
 *   columns; memory is at column a of width wa, with target added, in space sub
 * e is the column of the lanes that take part.
 *
 * Who has which element: "Matrix Fragments" of the PTX ISA. Lane l holds row l / 4 (of 16 rows also row
 * l / 4 + 8, its registers in turns) and, of each block of 4 * packed columns, the packed ones from
 * l % 4 * packed on. b is laid out as its transpose.
 */
#include <math.h>

#include "lane.h"
#include "machine.h"
#include "tensor.h"

enum { COLUMNS = 8 }; /* of d */

/* Bits beyond the type's are ignored. The usual types are converted here, as this is done for each element. */
static double element(uint64_t bits, uint8_t type)
{
	switch (type) {
	case PTX_F16:
		return ptx_f16(bits);
	case PTX_BF16:
		return ptx_f32(bits << 16);
	case PTX_TF32:
		return ptx_f32(bits & ~0x1fffull); /* the bits that it does not have are not read */
	case PTX_F32:
		return ptx_f32(bits);
	case PTX_S8: case PTX_U8: case PTX_S32:
		return (double)ptx_signed_value(bits, type);
	default:
		return ptx_to_double(bits, type);
	}
}

/* a, or the transpose of b: rows of it, with so many columns. */
static void read_operand(const struct ptx_frame *frame, const uint32_t *list, uint8_t type, uint32_t rows, uint32_t columns,
			 double out[PTX_TENSOR_ROWS][PTX_TENSOR_DEPTH])
{
	const uint32_t each = ptx_tensor_packed(type), bits = 32 / each, block = 4 * each, tall = rows / 8;
	const uint8_t width = ptx_tensor_width(type);

	for (uint32_t r = 0; r < ptx_tensor_registers(type, rows, columns); r++) {
		const unsigned char *column = ptx_column(frame, list[r]);

		for (uint32_t l = 0; l < PTX_LANES; l++) {
			uint64_t word = ptx_get(column, width, l);
			double *to = &out[l / 4 + r % tall * 8][r / tall * block + l % 4 * each];

			for (uint32_t i = 0; i < each; i++)
				to[i] = element(word >> i * bits, type);
		}
	}
}

/* Where element i of a lane is in c and d. */
static double *of_result(double all[PTX_TENSOR_ROWS][COLUMNS], uint32_t l, uint32_t i)
{
	return &all[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
}

static void read_result(const struct ptx_frame *frame, const uint32_t *list, uint8_t type, uint32_t rows,
			double out[PTX_TENSOR_ROWS][COLUMNS])
{
	const uint32_t each = ptx_tensor_packed(type);

	for (uint32_t i = 0; i < rows / 4; i++) {
		const unsigned char *column = ptx_column(frame, list[i / each]);

		for (uint32_t l = 0; l < PTX_LANES; l++)
			*of_result(out, l, i) = element(ptx_get(column, ptx_tensor_width(type), l) >> i % each * 16, type);
	}
}

static uint64_t rounded(double value, uint8_t type, bool saturates)
{
	if (type == PTX_S32)
		return (uint32_t)(int64_t)(saturates ? fmin(fmax(value, INT32_MIN), INT32_MAX) : value);
	if (isnan(value))
		return ptx_quiet(type);
	return type == PTX_F32 ? ptx_bits32((float)value) : ptx_from_double(value, type, PTX_ROUND_RN);
}

/* Products of small formats are exact, and their sum is rounded once, at its end. */
static void add(double *restrict sum, double a, const double *restrict b)
{
	for (uint32_t n = 0; n < COLUMNS; n++)
		sum[n] += a * b[n];
}

static void add_each_rounded(double *restrict sum, double a, const double *restrict b)
{
	for (uint32_t n = 0; n < COLUMNS; n++)
		sum[n] = fma(a, b[n], sum[n]);
}

void ptx_mma(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_frame *frame = warp->frame;
	const uint8_t type = op->mode & 255;
	const uint32_t rows = op->imm & 255, depth = op->imm >> 8 & 255, each = ptx_tensor_packed(type);
	const uint32_t results = ptx_tensor_results(type, rows);
	const uint32_t *a = op->list + results, *b = a + ptx_tensor_registers(op->sub, rows, depth),
		       *c = b + ptx_tensor_registers(op->sub2, COLUMNS, depth);
	double left[PTX_TENSOR_ROWS][PTX_TENSOR_DEPTH], right[PTX_TENSOR_ROWS][PTX_TENSOR_DEPTH], across[PTX_TENSOR_DEPTH][COLUMNS];
	double sum[PTX_TENSOR_ROWS][COLUMNS];

	read_operand(frame, a, op->sub, rows, depth, left);
	read_operand(frame, b, op->sub2, COLUMNS, depth, right);
	read_result(frame, c, type, rows, sum);
	for (uint32_t k = 0; k < depth; k++) {
		for (uint32_t n = 0; n < COLUMNS; n++)
			across[k][n] = right[n][k];
	}
	for (uint32_t m = 0; m < rows; m++) {
		for (uint32_t k = 0; k < depth; k++)
			type == PTX_F64 ? add_each_rounded(sum[m], left[m][k], across[k]) : add(sum[m], left[m][k], across[k]);
	}
	for (uint32_t r = 0; r < results; r++) {
		for (uint32_t rest = op->list[r] == PTX_NOWHERE ? 0 : mask; rest; rest &= rest - 1) {
			const uint32_t l = (uint32_t)__builtin_ctz(rest);
			uint64_t value = 0;

			for (uint32_t i = 0; i < each; i++)
				value |= rounded(*of_result(sum, l, r * each + i), type, op->mode & PTX_TENSOR_SATURATES) << 16 * i;
			ptx_put(frame->columns + op->list[r], ptx_tensor_width(type), l, value);
		}
	}
}

/* Lane l has elements 2 (l % 4) and the next one of row l / 4; of the transpose, of column l / 4. */
static uint16_t *of_matrix(uint16_t all[8][8], bool transposed, uint32_t l, uint32_t i)
{
	uint32_t row = l / 4, column = l % 4 * 2 + i;

	return transposed ? &all[column][row] : &all[row][column];
}

static void take_matrix(uint16_t all[8][8], const unsigned char *column, bool transposed)
{
	for (uint32_t l = 0; l < PTX_LANES; l++) {
		uint32_t word = (uint32_t)ptx_get(column, PTX_W_32, l);

		*of_matrix(all, transposed, l, 0) = (uint16_t)word;
		*of_matrix(all, transposed, l, 1) = (uint16_t)(word >> 16);
	}
}

static void put_matrix(uint16_t all[8][8], unsigned char *column, bool transposed, uint32_t mask)
{
	for (uint32_t rest = mask; rest; rest &= rest - 1) {
		const uint32_t l = (uint32_t)__builtin_ctz(rest);

		ptx_put(column, PTX_W_32, l, *of_matrix(all, transposed, l, 0) | (uint32_t)*of_matrix(all, transposed, l, 1) << 16);
	}
}

/* Row by row, whose addresses the lanes have: those of the first matrix the first eight. */
static bool rows_of(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask, uint16_t all[][8][8], bool write)
{
	const unsigned char *column = ptx_column(warp->frame, op->a);

	for (uint32_t l = 0; l < 8 * op->imm; l++) {
		uint64_t address = ptx_get(column, op->wa, l) + (uint64_t)(int64_t)(int32_t)op->target;
		uint16_t *row = all[l / 8][l % 8];
		unsigned char *at;

		if (!(mask >> l & 1)) {
			memset(row, 0, sizeof(all[0][0]));
			continue;
		}
		if (op->sub == PTX_MEM_SHARED)
			address = (uint32_t)address | PTX_WINDOW_SHARED << PTX_WINDOW_SHIFT;
		if (address >> PTX_WINDOW_SHIFT != PTX_WINDOW_SHARED) { /* matrices are nowhere else */
			ptx_fault(warp, PTX_FAULT_ADDRESS, address);
			return false;
		}
		at = ptx_reach(warp, l, address, sizeof(all[0][0]), write);
		if (!at)
			return false;
		memcpy(write ? (void *)at : row, write ? (void *)row : at, sizeof(all[0][0]));
	}
	return true;
}

bool ptx_matrix(struct ptx_warp *warp, const struct ptx_op *op, uint32_t mask)
{
	const struct ptx_frame *frame = warp->frame;
	uint16_t all[4][8][8];

	switch (op->c) {
	case PTX_MATRIX_STORE:
		for (uint32_t i = 0; i < op->imm; i++)
			take_matrix(all[i], ptx_column(frame, op->list[i]), op->sub2);
		return rows_of(warp, op, mask, all, true);
	case PTX_MATRIX_MOVE:
		take_matrix(all[0], ptx_column(frame, op->list[1]), false);
		break;
	default:
		if (!rows_of(warp, op, mask, all, false))
			return false;
	}
	for (uint32_t i = 0; i < op->imm; i++) {
		if (op->list[i] != PTX_NOWHERE)
			put_matrix(all[i], frame->columns + op->list[i], op->sub2, mask);
	}
	return true;
}
