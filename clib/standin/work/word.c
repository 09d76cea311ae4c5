/* SPDX-License-Identifier: Apache-2.0 */
/*
 * word.c: writing words of device memory from a stream, and waiting for them.
 * A wait holds if the word is there already; nothing waits for another thread
 * or process to write it (CUDA_ERROR_NOT_SUPPORTED), and the device attributes
 * say that waiting for words cannot be used.
 */
#include "word.h"

#include "memory/memory.h"

_Static_assert(offsetof(CUstreamBatchMemOpParams, waitValue.value64) == 16 &&
		       offsetof(CUstreamBatchMemOpParams, waitValue.flags) == 24 &&
		       offsetof(CUstreamBatchMemOpParams, writeValue.flags) == 24,
	       "the value lies before the flags, as in the driver's layout");

static bool holds(uint64_t is, uint64_t wanted, unsigned int flags, unsigned int bits)
{
	uint64_t mask = bits == 32 ? UINT32_MAX : UINT64_MAX;

	switch (flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return !(((is - wanted) & mask) >> (bits - 1));
	case CU_STREAM_WAIT_VALUE_EQ:
		return ((is ^ wanted) & mask) == 0;
	case CU_STREAM_WAIT_VALUE_AND:
		return (is & wanted & mask) != 0;
	default: /* NOR */
		return (~(is | wanted) & mask) != 0;
	}
}

static CUresult write_word(uint64_t address, uint64_t value, size_t bytes, const struct sd_card *card)
{
	unsigned char *place = address % bytes ? NULL : sd_reach(address, bytes, card, true, NULL);

	if (!place)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes == 4)
		__atomic_store_n((uint32_t *)(void *)place, (uint32_t)value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint64_t *)(void *)place, value, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

static CUresult await_word(uint64_t address, uint64_t wanted, unsigned int flags, size_t bytes,
			   const struct sd_card *card)
{
	unsigned char *place = address % bytes ? NULL : sd_reach(address, bytes, card, false, NULL);

	if (!place)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t is = bytes == 4 ? __atomic_load_n((uint32_t *)(void *)place, __ATOMIC_ACQUIRE)
				 : __atomic_load_n((uint64_t *)(void *)place, __ATOMIC_ACQUIRE);

	return holds(is, wanted, flags, (unsigned int)bytes * 8) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult sd_words_run(const CUstreamBatchMemOpParams *list, unsigned int count, const struct sd_card *card)
{
	CUresult result = CUDA_SUCCESS;

	for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++) {
		const CUstreamBatchMemOpParams *op = &list[i];

		switch (op->operation) {
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
			result = write_word(op->writeValue.address, op->writeValue.value, 4, card);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			result = write_word(op->writeValue.address, op->writeValue.value64, 8, card);
			break;
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
			result = await_word(op->waitValue.address, op->waitValue.value, op->waitValue.flags, 4, card);
			break;
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			result = await_word(op->waitValue.address, op->waitValue.value64, op->waitValue.flags, 8, card);
			break;
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		case CU_STREAM_MEM_OP_BARRIER:
			break;
		default:
			result = CUDA_ERROR_INVALID_VALUE;
		}
	}
	return result;
}
