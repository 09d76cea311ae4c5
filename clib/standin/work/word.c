/* SPDX-License-Identifier: Apache-2.0 */
/* word.c: writing words of device memory from a stream, and waiting for them. */
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

/* Where an operation's word lies, and how long it is; NULL: it has none. */
static unsigned char *place_of(const CUstreamBatchMemOpParams *op, size_t *bytes, const struct sd_card *card)
{
	bool writes = op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
	uint64_t address = writes ? op->writeValue.address : op->waitValue.address;

	*bytes = op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ? 8 : 4;
	return address % *bytes ? NULL : sd_reach(address, *bytes, card, writes, NULL);
}

static CUresult write_word(const CUstreamBatchMemOpParams *op, const struct sd_card *card)
{
	size_t bytes;
	unsigned char *place = place_of(op, &bytes, card);

	if (!place)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes == 4)
		__atomic_store_n((uint32_t *)(void *)place, op->writeValue.value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint64_t *)(void *)place, op->writeValue.value64, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

static CUresult await_word(const CUstreamBatchMemOpParams *op, const struct sd_card *card)
{
	size_t bytes;
	unsigned char *place = place_of(op, &bytes, card);

	if (!place)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t is = bytes == 4 ? __atomic_load_n((uint32_t *)(void *)place, __ATOMIC_ACQUIRE)
				 : __atomic_load_n((uint64_t *)(void *)place, __ATOMIC_ACQUIRE);

	uint64_t wanted = bytes == 4 ? op->waitValue.value : op->waitValue.value64;

	return holds(is, wanted, op->waitValue.flags, (unsigned int)bytes * 8) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult sd_words_check(const CUstreamBatchMemOpParams *list, unsigned int count, const struct sd_card *card)
{
	for (unsigned int i = 0; i < count; i++) {
		size_t bytes;

		switch (list[i].operation) {
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			if (!place_of(&list[i], &bytes, card))
				return CUDA_ERROR_INVALID_VALUE;
			break;
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		case CU_STREAM_MEM_OP_BARRIER:
			break;
		default:
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

CUresult sd_words_run(const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int *done, const struct sd_card *card)
{
	CUresult result = CUDA_SUCCESS;

	for (; *done < count; ++*done) {
		const CUstreamBatchMemOpParams *op = &list[*done];

		if (op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
			result = write_word(op, card);
		else if (op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
			result = await_word(op, card);
		if (result != CUDA_SUCCESS)
			break;
	}
	return result;
}
