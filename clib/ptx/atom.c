/* SPDX-License-Identifier: Apache-2.0 */
/* atom.c: one atomic operation on one place. mode: operation | type << 8. Gives the old value. */
#include "lane.h"
#include "machine.h"

static uint64_t half_result(uint64_t a, uint64_t b, uint8_t operation, uint8_t type)
{
	if (operation != PTX_DO_ADD)
		return ptx_lane_fmin(a, b, 0, type | (operation == PTX_DO_MAX ? PTX_LANE_D : 0));
	return ptx_from_double(ptx_fma_odd(ptx_to_double(a, type), 1.0, ptx_to_double(b, type)), type, PTX_ROUND_RN);
}

static uint64_t changed32(uint32_t old, uint32_t b, uint32_t c, uint8_t operation, uint8_t type)
{
	if (type == PTX_F16X2 || type == PTX_BF16X2) {
		uint8_t half = type == PTX_F16X2 ? PTX_F16 : PTX_BF16;

		return (uint32_t)(half_result(old >> 16, b >> 16, operation, half) << 16 |
				  half_result(old & 0xffff, b & 0xffff, operation, half));
	}
	switch (operation) {
	case PTX_DO_ADD:
		if (type == PTX_F32) /* .ftz is what global and shared atomics of f32 do */
			return ptx_flush(ptx_bits32(ptx_f32(ptx_flush(old, PTX_F32)) + ptx_f32(ptx_flush(b, PTX_F32))), PTX_F32);
		return old + b;
	case PTX_DO_AND:
		return old & b;
	case PTX_DO_OR:
		return old | b;
	case PTX_DO_XOR:
		return old ^ b;
	case PTX_DO_EXCH:
		return b;
	case PTX_DO_CAS:
		return old == b ? c : old;
	case PTX_DO_INC:
		return old >= b ? 0 : old + 1;
	case PTX_DO_DEC:
		return old == 0 || old > b ? b : old - 1;
	case PTX_DO_MIN:
		return (type == PTX_S32 ? (int32_t)b < (int32_t)old : b < old) ? b : old;
	case PTX_DO_MAX:
		return (type == PTX_S32 ? (int32_t)b > (int32_t)old : b > old) ? b : old;
	default:
		return old;
	}
}

static uint64_t changed64(uint64_t old, uint64_t b, uint64_t c, uint8_t operation, uint8_t type)
{
	switch (operation) {
	case PTX_DO_ADD:
		return type == PTX_F64 ? ptx_bits64(ptx_f64(old) + ptx_f64(b)) : old + b;
	case PTX_DO_AND:
		return old & b;
	case PTX_DO_OR:
		return old | b;
	case PTX_DO_XOR:
		return old ^ b;
	case PTX_DO_EXCH:
		return b;
	case PTX_DO_CAS:
		return old == b ? c : old;
	case PTX_DO_MIN:
		return (type == PTX_S64 ? (int64_t)b < (int64_t)old : b < old) ? b : old;
	case PTX_DO_MAX:
		return (type == PTX_S64 ? (int64_t)b > (int64_t)old : b > old) ? b : old;
	default:
		return old;
	}
}

static uint64_t changed16(uint64_t old, uint64_t b, uint64_t c, uint8_t operation, uint8_t type)
{
	if (operation == PTX_DO_CAS)
		return old == (uint16_t)b ? c : old;
	if (operation == PTX_DO_EXCH)
		return b;
	return half_result(old, b & 0xffff, operation, type);
}

uint64_t ptx_atom(uint32_t mode, void *at, uint64_t b, uint64_t c)
{
	uint8_t operation = (uint8_t)mode;
	uint8_t type = (uint8_t)(mode >> 8);

	switch (ptx_type_bytes(type)) {
	case 2: {
		uint16_t old = __atomic_load_n((uint16_t *)at, __ATOMIC_RELAXED);

		while (!__atomic_compare_exchange_n((uint16_t *)at, &old, (uint16_t)changed16(old, b, c, operation, type),
						    false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			continue;
		return old;
	}
	case 4: {
		uint32_t old;

		if (operation == PTX_DO_ADD && !ptx_floating(type))
			return __atomic_fetch_add((uint32_t *)at, (uint32_t)b, __ATOMIC_SEQ_CST);
		old = __atomic_load_n((uint32_t *)at, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n((uint32_t *)at, &old,
						    (uint32_t)changed32(old, (uint32_t)b, (uint32_t)c, operation, type), false,
						    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			continue;
		return old;
	}
	default: {
		uint64_t old;

		if (operation == PTX_DO_ADD && type != PTX_F64)
			return __atomic_fetch_add((uint64_t *)at, b, __ATOMIC_SEQ_CST);
		old = __atomic_load_n((uint64_t *)at, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n((uint64_t *)at, &old, changed64(old, b, c, operation, type), false,
						    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			continue;
		return old;
	}
	}
}

/* What stands there becomes the wanted value if it is the expected one; old: what stood there. */
static bool exchange128(void *at, uint64_t old[2], const uint64_t wanted[2])
{
	bool done;

	__asm__ volatile("lock cmpxchg16b %1"
			 : "=@ccz"(done), "+m"(*(unsigned char(*)[16])at), "+a"(old[0]), "+d"(old[1])
			 : "b"(wanted[0]), "c"(wanted[1])
			 : "memory");
	return done;
}

void ptx_atom128(uint8_t operation, void *at, uint64_t old[2], const uint64_t b[2], const uint64_t c[2])
{
	old[0] = b[0];
	old[1] = b[1];
	if (operation == PTX_DO_CAS) {
		(void)exchange128(at, old, c);
		return;
	}
	while (!exchange128(at, old, b))
		continue;
}
