/* SPDX-License-Identifier: Apache-2.0 */
/*
 * external.c: memory of others, opened here.
 *
 * Rule: what a process of Divvy made has a number at the agent (named.h) and is held
 * by it: memory opened by IPC until its last cuIpcCloseMemHandle, a pointer of an
 * imported pool until it is freed, external memory until it is destroyed and all that
 * is mapped of it is freed. It is charged once in a share; what a share holds already
 * costs it nothing more.
 *
 * What nobody has named (of a process without Divvy, or made by Vulkan and the like) is
 * charged to who opens it, its size. A regular file (of host memory) costs nothing, nor do
 * external handles that are no descriptors: they are not followed.
 */
#include "named.h"
#include "front_hooks.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* SPACE_OPENED.extra: the number, and above that how often it was opened. */
#define NUMBER_BITS 48
#define NUMBER(extra) ((extra) & ((1ull << NUMBER_BITS) - 1))
#define ONCE (1ull << NUMBER_BITS)

static _Atomic uint32_t foreign; /* records of SPACE_OPENED and SPACE_VIEW, about */

static bool once_more(struct table_record *record, void *arg)
{
	(void)arg;
	record->extra += ONCE;
	return true;
}

static bool once_less(struct table_record *record, void *arg)
{
	*(struct table_record *)arg = *record;
	record->extra -= ONCE;
	return record->extra >= ONCE;
}

static void let_go(const struct table_record *record)
{
	named_release(NUMBER(record->extra));
	if (record->bytes)
		front_refund(record->slot, record->bytes);
}

/* Memory that the driver has opened at address; -ENOMEM: it must not stay. */
static int opened(uint64_t address, uint64_t number, uint32_t owner, const char *call)
{
	struct table_record record = {
		.key = address, .extra = number | ONCE, .space = SPACE_OPENED, .owner = owner,
	};
	CUdeviceptr base = 0;
	size_t bytes = 0;
	int slot = front_current_slot();

	if (table_change(&front_held, SPACE_OPENED, address, once_more, NULL)) {
		named_release(number); /* it is held once for all times that it is open */
		return 0;
	}
	if (!number && slot >= 0 &&
	    REAL(SYM_cuMemGetAddressRange_v2, cuMemGetAddressRange_v2)(&base, &bytes, address) == CUDA_SUCCESS) {
		record.bytes = memory_round(bytes, DIVVY_ALLOCATION_UNIT);
		record.slot = (uint8_t)slot;
		if (front_charge(slot, record.bytes, call) != 0)
			return -ENOMEM;
	}
	if (table_put(&front_held, &record, NULL) < 0) {
		let_go(&record);
		return -ENOMEM;
	}
	atomic_fetch_add(&foreign, 1);
	return 0;
}

static CUresult open_handle(enum divvy_symbol called, CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned flags)
{
	const struct named_name name = { .kind = DIVVY_NAME_IPC, .fd = -1, .text = &handle };
	struct named_hold hold;
	CUdeviceptr pointer = 0;
	CUresult result = named_import(&name, "cuIpcOpenMemHandle", &hold);

	_Static_assert(sizeof(handle) == NAMED_TEXT_BYTES, "what it is named by");
	if (result != CUDA_SUCCESS)
		return result;
	result = REAL(called, cuIpcOpenMemHandle_v2)(&pointer, handle, flags);
	if (result != CUDA_SUCCESS) {
		named_release(hold.number);
		return result;
	}
	if (opened(pointer, hold.number, context_place().owner, "cuIpcOpenMemHandle") < 0) {
		(void)REAL(SYM_cuIpcCloseMemHandle, cuIpcCloseMemHandle)(pointer);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*pdptr = pointer;
	return CUDA_SUCCESS;
}

CUresult hook_cuIpcOpenMemHandle(enum divvy_symbol called, CUdeviceptr *pdptr, CUipcMemHandle handle,
				 unsigned int Flags)
{
	CUresult result;

	if (!pdptr || !front_enter())
		return REAL(called, cuIpcOpenMemHandle)(pdptr, handle, Flags);
	result = open_handle(called, pdptr, handle, Flags);
	front_leave();
	return result;
}

CUresult hook_cuIpcOpenMemHandle_v2(enum divvy_symbol called, CUdeviceptr *pdptr, CUipcMemHandle handle,
				    unsigned int Flags)
{
	CUresult result;

	if (!pdptr || !front_enter())
		return REAL(called, cuIpcOpenMemHandle_v2)(pdptr, handle, Flags);
	result = open_handle(called, pdptr, handle, Flags);
	front_leave();
	return result;
}

CUresult hook_cuIpcGetMemHandle(enum divvy_symbol called, CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	CUipcMemHandle handle = { 0 };
	const struct named_name name = { .kind = DIVVY_NAME_IPC, .fd = -1, .text = &handle };
	struct table_record record;
	CUdeviceptr base = 0;
	size_t bytes = 0;
	CUresult result;

	if (!pHandle || !front_enter())
		return REAL(called, cuIpcGetMemHandle)(pHandle, dptr);
	result = REAL(called, cuIpcGetMemHandle)(&handle, dptr);
	if (result == CUDA_SUCCESS &&
	    REAL(SYM_cuMemGetAddressRange_v2, cuMemGetAddressRange_v2)(&base, &bytes, dptr) == CUDA_SUCCESS &&
	    named_mark(SPACE_POINTER, base, &record))
		result = named_export(SPACE_POINTER, base, &record, &name);
	if (result == CUDA_SUCCESS)
		*pHandle = handle;
	front_leave();
	return result;
}

CUresult hook_cuIpcCloseMemHandle(enum divvy_symbol called, CUdeviceptr dptr)
{
	struct table_record record;
	CUresult result;
	bool known;

	if (!front_enter())
		return REAL(called, cuIpcCloseMemHandle)(dptr);
	known = table_change(&front_held, SPACE_OPENED, dptr, once_less, &record);
	result = REAL(called, cuIpcCloseMemHandle)(dptr);
	if (known && result != CUDA_SUCCESS) {
		if (!table_change(&front_held, SPACE_OPENED, dptr, once_more, NULL))
			memory_restore(&record);
	} else if (known && record.extra < 2 * ONCE) {
		atomic_fetch_sub(&foreign, 1);
		let_go(&record);
	}
	front_leave();
	return result;
}

CUresult external_pointer(uint64_t address, uint64_t number)
{
	if (opened(address, number, 0, "cuMemPoolImportPointer") == 0)
		return CUDA_SUCCESS;
	(void)REAL(SYM_cuMemFree_v2, cuMemFree_v2)(address);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* -- external memory: its record and its views hold a backing -------------- */

bool external_take(uint64_t address, struct table_record *record)
{
	return atomic_load_explicit(&foreign, memory_order_relaxed) &&
	       (table_take(&front_held, SPACE_OPENED, address, record) ||
		table_take(&front_held, SPACE_VIEW, address, record));
}

void external_given(const struct table_record *record)
{
	atomic_fetch_sub(&foreign, 1);
	if (record->space == SPACE_VIEW)
		virtual_drop(record->extra);
	else
		let_go(record);
}

struct sweep {
	uint32_t owner;
	unsigned found;
	struct table_record record[32];
};

#define SWEPT (sizeof(((struct sweep *)0)->record) / sizeof(struct table_record))

static bool collect(const struct table_record *record, void *arg)
{
	struct sweep *sweep = arg;

	if ((record->space != SPACE_OPENED && record->space != SPACE_VIEW) || record->owner != sweep->owner ||
	    sweep->found == SWEPT)
		return false;
	sweep->record[sweep->found++] = *record;
	return true;
}

void external_views_gone(uint32_t owner)
{
	struct sweep sweep = { .owner = owner };

	while (owner && atomic_load_explicit(&foreign, memory_order_relaxed)) {
		sweep.found = 0;
		table_sweep(&front_held, collect, &sweep);
		for (unsigned i = 0; i < sweep.found; i++)
			external_given(&sweep.record[i]);
		if (sweep.found < SWEPT)
			return;
	}
}

static bool is_file(int fd)
{
	struct stat status;

	return syscall(SYS_fstat, fd, &status) == 0 && S_ISREG(status.st_mode); /* fstat itself is GLIBC_2.33 in newer libraries */
}

static CUresult import(enum divvy_symbol called, CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
	static const char call[] = "cuImportExternalMemory";
	const struct named_name name = { .kind = DIVVY_NAME_DESCRIPTOR, .fd = desc->handle.fd };
	struct table_record record = { .space = SPACE_EXTERNAL };
	struct named_hold hold;
	CUexternalMemory memory = NULL;
	uint64_t bytes = 0;
	CUresult result = named_import(&name, call, &hold);

	if (result != CUDA_SUCCESS)
		return result;
	if (!hold.number && !is_file(desc->handle.fd)) {
		hold.slot = front_current_slot();
		bytes = hold.slot < 0 ? 0 : memory_round(desc->size, DIVVY_ALLOCATION_UNIT);
		result = memory_charge(hold.slot, bytes, call);
	}
	if (result != CUDA_SUCCESS)
		return result;
	result = REAL(called, cuImportExternalMemory)(&memory, desc);
	if (result != CUDA_SUCCESS) {
		named_release(hold.number);
		front_uncharge(hold.slot, bytes);
		return result;
	}
	if (hold.number || bytes) {
		record.key = (uintptr_t)memory;
		record.extra = virtual_import(hold.number, bytes, hold.slot, 0);
		if (!record.extra || table_put(&front_held, &record, NULL) < 0)
			front_log("no memory to follow external memory: its charge stays");
	}
	*out = memory;
	return CUDA_SUCCESS;
}

CUresult hook_cuImportExternalMemory(enum divvy_symbol called, CUexternalMemory *extMem_out,
				     const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	CUresult result;

	if (!extMem_out || !memHandleDesc || memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD ||
	    !front_enter())
		return REAL(called, cuImportExternalMemory)(extMem_out, memHandleDesc);
	result = import(called, extMem_out, memHandleDesc);
	front_leave();
	return result;
}

CUresult hook_cuDestroyExternalMemory(enum divvy_symbol called, CUexternalMemory extMem)
{
	struct table_record record;
	CUresult result;
	bool known;

	if (!front_enter())
		return REAL(called, cuDestroyExternalMemory)(extMem);
	known = table_take(&front_held, SPACE_EXTERNAL, (uintptr_t)extMem, &record);
	result = REAL(called, cuDestroyExternalMemory)(extMem);
	if (known && result != CUDA_SUCCESS)
		memory_restore(&record);
	else if (known)
		virtual_drop(record.extra);
	front_leave();
	return result;
}

/* What is mapped of external memory holds it, though its handle is destroyed. */
static void viewed(CUexternalMemory memory, uint64_t key)
{
	struct table_record external;
	struct table_record view = { .key = key, .space = SPACE_VIEW, .owner = context_place().owner };

	if (!table_get(&front_held, SPACE_EXTERNAL, (uintptr_t)memory, &external) || !virtual_hold(external.extra))
		return;
	view.extra = external.extra;
	if (table_put(&front_held, &view, NULL) == 0)
		atomic_fetch_add(&foreign, 1);
}

CUresult hook_cuExternalMemoryGetMappedBuffer(enum divvy_symbol called, CUdeviceptr *devPtr,
					      CUexternalMemory extMem,
					      const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
	CUresult result;

	if (!devPtr || !front_enter())
		return REAL(called, cuExternalMemoryGetMappedBuffer)(devPtr, extMem, bufferDesc);
	result = REAL(called, cuExternalMemoryGetMappedBuffer)(devPtr, extMem, bufferDesc);
	if (result == CUDA_SUCCESS)
		viewed(extMem, *devPtr);
	front_leave();
	return result;
}

CUresult hook_cuExternalMemoryGetMappedMipmappedArray(enum divvy_symbol called, CUmipmappedArray *mipmap,
						      CUexternalMemory extMem,
						      const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc)
{
	CUresult result;

	if (!mipmap || !front_enter())
		return REAL(called, cuExternalMemoryGetMappedMipmappedArray)(mipmap, extMem, mipmapDesc);
	result = REAL(called, cuExternalMemoryGetMappedMipmappedArray)(mipmap, extMem, mipmapDesc);
	if (result == CUDA_SUCCESS)
		viewed(extMem, (uintptr_t)*mipmap);
	front_leave();
	return result;
}
