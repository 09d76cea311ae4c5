/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poolpart.c: parts of pools that go to other processes. Such a part has a number at
 * the agent (named.h). Its maker's pool is charged for it as long as the maker lives,
 * and who has imported it when it does not; a pool that is imported costs nothing.
 */
#include "pool.h"
#include "named.h"
#include "front_hooks.h"

/* The pool itself holds nothing: its parts are exported one by one. */
CUresult hook_cuMemPoolExportToShareableHandle(enum divvy_symbol called, void *handle_out, CUmemoryPool pool,
					       CUmemAllocationHandleType handleType, unsigned long long flags)
{
	return REAL(called, cuMemPoolExportToShareableHandle)(handle_out, pool, handleType, flags);
}

CUresult hook_cuMemPoolExportPointer(enum divvy_symbol called, CUmemPoolPtrExportData *shareData_out,
				     CUdeviceptr ptr)
{
	CUmemPoolPtrExportData data = { 0 };
	const struct named_name name = { .kind = DIVVY_NAME_POINTER, .fd = -1, .text = &data };
	struct table_record record;
	CUdeviceptr base = 0;
	size_t bytes = 0;
	CUresult result;
	int slot = -1;

	_Static_assert(sizeof(data) == NAMED_TEXT_BYTES, "what it is named by");
	if (!shareData_out || !front_enter())
		return REAL(called, cuMemPoolExportPointer)(shareData_out, ptr);
	result = REAL(called, cuMemPoolExportPointer)(&data, ptr);
	if (result == CUDA_SUCCESS && table_get(&front_held, SPACE_POOLED, ptr, &record))
		slot = pool_slot_of((uint32_t)record.extra);
	if (slot >= 0)
		result = REAL(SYM_cuMemGetAddressRange_v2, cuMemGetAddressRange_v2)(&base, &bytes, ptr);
	if (result == CUDA_SUCCESS && slot >= 0 && named_mark(SPACE_POOLED, ptr, &record)) {
		record.slot = (uint8_t)slot;
		record.bytes = bytes;
		record.owner = 0;
		result = named_export(SPACE_POOLED, ptr, &record, &name);
	}
	if (result == CUDA_SUCCESS)
		*shareData_out = data;
	front_leave();
	return result;
}

CUresult hook_cuMemPoolImportPointer(enum divvy_symbol called, CUdeviceptr *ptr_out, CUmemoryPool pool,
				     CUmemPoolPtrExportData *shareData)
{
	const struct named_name name = { .kind = DIVVY_NAME_POINTER, .fd = -1, .text = shareData };
	struct named_hold hold;
	CUdeviceptr pointer = 0;
	CUresult result;

	if (!ptr_out || !shareData || !front_enter())
		return REAL(called, cuMemPoolImportPointer)(ptr_out, pool, shareData);
	result = named_import(&name, "cuMemPoolImportPointer", &hold);
	if (result == CUDA_SUCCESS) {
		result = REAL(called, cuMemPoolImportPointer)(&pointer, pool, shareData);
		if (result != CUDA_SUCCESS)
			named_release(hold.number);
		else
			result = external_pointer(pointer, hold.number);
		if (result == CUDA_SUCCESS)
			*ptr_out = pointer;
	}
	front_leave();
	return result;
}
