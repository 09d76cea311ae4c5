/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc.c: the one way by which linear memory reaches the driver and leaves it.
 *
 * Rule: linear and managed memory is charged its size rounded up to 512 bytes
 * (the driver's documented alignment of any allocation; a contract of Divvy).
 * Pitched memory is charged rows times the pitch. The pitch is the driver's
 * secret until it answers, so the estimate is the row rounded up to 512, the
 * largest alignment that drivers give; then the charge follows the answer.
 */
#include "named.h"

#include <errno.h>

struct table front_held;

void memory_refused(int slot, uint64_t bytes, CUresult result, const char *call)
{
	front_uncharge(slot, bytes);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		front_driver_oom(slot, bytes, call);
}

int memory_settle(int slot, uint64_t charged, uint64_t truth, const char *call)
{
	if (truth > charged)
		return front_charge(slot, truth - charged, call);
	if (truth < charged)
		front_refund(slot, charged - truth);
	return 0;
}

int memory_note(const struct table_record *record)
{
	struct table_record old;
	int rc = table_put(&front_held, record, &old);

	if (rc < 0)
		return rc;
	if (rc == 1)
		front_refund(old.slot, old.bytes);
	return 0;
}

void memory_restore(const struct table_record *record)
{
	/*
	 * Without a place for it the charge stays for the life of the process:
	 * too much, never too little.
	 */
	(void)table_put(&front_held, record, NULL);
}

static CUresult ask(struct front_request *request)
{
	CUresult result;
	CUdeviceptr pointer = 0;
	CUdeviceptr_v1 pointer1 = 0;
	size_t pitch = 0;
	unsigned pitch1 = 0;

	switch (request->sort) {
	case FRONT_LINEAR:
		result = REAL(request->symbol, cuMemAlloc_v2)(&pointer, request->bytes);
		break;
	case FRONT_MANAGED:
		result = REAL(request->symbol, cuMemAllocManaged)(&pointer, request->bytes, request->flags);
		break;
	case FRONT_PITCH:
		result = REAL(request->symbol, cuMemAllocPitch_v2)(&pointer, &pitch, request->bytes, request->rows,
								   request->element);
		break;
	case FRONT_LINEAR_V1:
		result = REAL(request->symbol, cuMemAlloc)(&pointer1, (unsigned)request->bytes);
		pointer = pointer1;
		break;
	case FRONT_PITCH_V1:
		result = REAL(request->symbol, cuMemAllocPitch)(&pointer1, &pitch1, (unsigned)request->bytes,
								(unsigned)request->rows, request->element);
		pointer = pointer1;
		pitch = pitch1;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (result == CUDA_SUCCESS) {
		request->pointer = pointer;
		request->pitch = pitch;
	}
	return result;
}

/* Gives back what ask got, when it cannot be accounted for. */
static void undo(const struct front_request *request)
{
	if (request->sort == FRONT_LINEAR_V1 || request->sort == FRONT_PITCH_V1)
		(void)REAL(SYM_cuMemFree, cuMemFree)((CUdeviceptr_v1)request->pointer);
	else
		(void)REAL(SYM_cuMemFree_v2, cuMemFree_v2)(request->pointer);
}

static inline bool is_pitched(const struct front_request *request)
{
	return request->sort == FRONT_PITCH || request->sort == FRONT_PITCH_V1;
}

CUresult front_allocate(struct front_request *request)
{
	struct front_place place = context_place();
	uint64_t charged = memory_round(request->bytes, DIVVY_ALLOCATION_UNIT);
	struct table_record record;
	CUresult result;

	if (is_pitched(request))
		charged = memory_times(charged, request->rows);
	result = memory_charge(place.slot, charged, request->call);
	if (result != CUDA_SUCCESS)
		return result;
	result = ask(request);
	if (result != CUDA_SUCCESS) {
		memory_refused(place.slot, charged, result, request->call);
		return result;
	}
	if (place.slot < 0)
		return CUDA_SUCCESS;
	if (is_pitched(request)) {
		uint64_t truth = memory_round(memory_times(request->pitch, request->rows), DIVVY_ALLOCATION_UNIT);

		if (memory_settle(place.slot, charged, truth, request->call) != 0)
			goto give_back;
		charged = truth;
	}
	record = (struct table_record){
		.key = request->pointer,
		.bytes = charged,
		.owner = place.owner,
		.space = SPACE_POINTER,
		.slot = (uint8_t)place.slot,
	};
	if (memory_note(&record) == 0)
		return CUDA_SUCCESS;
give_back:
	undo(request);
	front_uncharge(place.slot, charged);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult front_free(uint64_t address, CUresult (*give)(uint64_t address, enum divvy_symbol called), enum divvy_symbol called)
{
	struct table_record record;
	bool ours = table_take(&front_held, SPACE_POINTER, address, &record);
	bool pooled = !ours && pool_take(address, &record);
	bool opened = !ours && !pooled && external_take(address, &record);
	CUresult result = give(address, called);

	if (!ours && !pooled && !opened)
		return result; /* nonsense */
	if (result != CUDA_SUCCESS)
		memory_restore(&record);
	else if (pooled)
		pool_given(&record);
	else if (opened)
		external_given(&record);
	else if (record.flags & MEMORY_NAMED)
		memory_handed(&record);
	else
		front_refund(record.slot, record.bytes);
	return result;
}

void memory_handed(const struct table_record *record)
{
	if (!named_released(record->space, record->key))
		front_refund(record->slot, record->bytes);
}
