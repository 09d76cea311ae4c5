/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c: what addresses are. Host memory that the driver would pin is memory of this
 * process. Device memory has its address here, too: the range is reserved, so that
 * nothing else comes to lie there and a stray read faults, as it does with a GPU.
 */
#include "payload.h"
#include "remote.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum {
	PAGE = 4096,
	TRIES = 16,          /* another address is asked for so often */
	ALLOCATE_FLAGS = 7,  /* portable, device map, write combined */
	REGISTER_FLAGS = 15, /* portable, device map, of a device, read only */
};

#define RANGE_BARE 1u /* of device memory: addresses that memory may be mapped to */
#define LOWEST (1ull << 20) /* of addresses that are reserved */
#define HIGHEST (1ull << 47)

enum range_kind { RANGE_ALLOCATED, RANGE_REGISTERED, RANGE_DEVICE };

struct range {
	uint64_t start, bytes;
	uint8_t kind;
	uint8_t reserved; /* its pages are ours alone */
	uint32_t flags;
};

/* Sorted by start; none lies in another. */
static struct {
	pthread_mutex_t lock;
	struct range *at;
	size_t count, room;
} ranges = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* How many ranges start at or below an address; the lock is held. */
static size_t upto(uint64_t address)
{
	size_t low = 0, high = ranges.count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (ranges.at[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct range *find(uint64_t address)
{
	size_t i = upto(address);

	if (!i || address - ranges.at[i - 1].start >= ranges.at[i - 1].bytes)
		return NULL;
	return &ranges.at[i - 1];
}

/* False: it overlaps one that is there, or there is no memory. */
static bool enter(const struct range *range)
{
	size_t i = upto(range->start);

	if (find(range->start) || (i < ranges.count && ranges.at[i].start - range->start < range->bytes))
		return false;
	if (ranges.count == ranges.room) {
		size_t room = ranges.room ? 2 * ranges.room : 64;
		struct range *at = realloc(ranges.at, room * sizeof(*at));

		if (!at)
			return false;
		ranges.at = at;
		ranges.room = room;
	}
	memmove(&ranges.at[i + 1], &ranges.at[i], (ranges.count - i) * sizeof(*range));
	ranges.at[i] = *range;
	ranges.count++;
	return true;
}

/* Takes out the range that starts at an address. */
static bool leave(uint64_t start, unsigned int kind, struct range *gone)
{
	size_t i = upto(start);

	if (!i || ranges.at[i - 1].start != start || ranges.at[i - 1].kind != kind)
		return false;
	*gone = ranges.at[i - 1];
	memmove(&ranges.at[i - 1], &ranges.at[i], (ranges.count - i) * sizeof(*gone));
	ranges.count--;
	return true;
}

enum remote_place remote_place_of(uint64_t address)
{
	pthread_mutex_lock(&ranges.lock);
	const struct range *range = find(address);
	enum remote_place place = !range ? REMOTE_UNKNOWN : range->kind == RANGE_DEVICE ? REMOTE_DEVICE : REMOTE_HOST;

	pthread_mutex_unlock(&ranges.lock);
	return place;
}

bool remote_holds(uint64_t address, uint64_t bytes)
{
	pthread_mutex_lock(&ranges.lock);
	const struct range *range = find(address);
	bool holds = range && range->kind == RANGE_DEVICE && !(range->flags & RANGE_BARE) && bytes <= range->bytes - (address - range->start);

	pthread_mutex_unlock(&ranges.lock);
	return holds;
}

bool remote_host_range(uint64_t address, uint64_t *start, uint64_t *bytes)
{
	pthread_mutex_lock(&ranges.lock);
	const struct range *range = find(address);
	bool host = range && range->kind != RANGE_DEVICE;

	if (host) {
		*start = range->start;
		*bytes = range->bytes;
	}
	pthread_mutex_unlock(&ranges.lock);
	return host;
}

/* Host memory. */

EXPORT CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pp || !bytesize || Flags & ~(unsigned int)ALLOCATE_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytesize > SIZE_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	void *host = mmap(NULL, bytesize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (host == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	const struct range range = { (uint64_t)(uintptr_t)host, bytesize, RANGE_ALLOCATED, 0, Flags };

	pthread_mutex_lock(&ranges.lock);
	bool entered = enter(&range);
	pthread_mutex_unlock(&ranges.lock);
	if (!entered) {
		munmap(host, bytesize);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*pp = host;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return cuMemHostAlloc(pp, bytesize, 0);
}

EXPORT CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return cuMemHostAlloc(pp, bytesize, 0);
}

/* What still wants to be read from or written to it is awaited, as a driver does. */
EXPORT CUresult cuMemFreeHost(void *p)
{
	struct range gone;
	CUresult result = remote_is_open() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;

	if (result != CUDA_SUCCESS || !p)
		return result;
	pthread_mutex_lock(&ranges.lock);
	bool left = leave((uint64_t)(uintptr_t)p, RANGE_ALLOCATED, &gone);
	pthread_mutex_unlock(&ranges.lock);
	if (!left)
		return CUDA_ERROR_INVALID_VALUE;
	munmap(p, gone.bytes);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	uint64_t address = (uint64_t)(uintptr_t)p;
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	if (!p || !bytesize || address > UINT64_MAX - bytesize || Flags & ~(unsigned int)REGISTER_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	const struct range range = { address, bytesize, RANGE_REGISTERED, 0, Flags };

	pthread_mutex_lock(&ranges.lock);
	bool device = find(address) && find(address)->kind == RANGE_DEVICE;
	bool entered = enter(&range);
	pthread_mutex_unlock(&ranges.lock);
	return entered ? CUDA_SUCCESS : device ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

EXPORT CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return cuMemHostRegister_v2(p, bytesize, Flags);
}

EXPORT CUresult cuMemHostUnregister(void *p)
{
	struct range gone;

	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&ranges.lock);
	bool left = leave((uint64_t)(uintptr_t)p, RANGE_REGISTERED, &gone);
	pthread_mutex_unlock(&ranges.lock);
	return left ? CUDA_SUCCESS : p ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct remote_lane *lane;
	CUresult result = remote_ready(&lane);

	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&ranges.lock);
	const struct range *range = find((uint64_t)(uintptr_t)p);

	if (!pFlags || !range || range->kind == RANGE_DEVICE)
		result = CUDA_ERROR_INVALID_VALUE;
	else
		*pFlags = range->flags;
	pthread_mutex_unlock(&ranges.lock);
	return result;
}

/* Device memory. */

static uint64_t page_down(uint64_t address)
{
	return address & ~(uint64_t)(PAGE - 1);
}

static uint64_t page_up(uint64_t address)
{
	return page_down(address + PAGE - 1);
}

/* Keeps everything else away from a device range. False: something of this process lies
 * there. Pages that another allocation has reserved are as good. The lock is held. */
static bool reserve(struct range *range)
{
	uint64_t first = page_down(range->start), end = page_up(range->start + range->bytes);

	if (first < LOWEST || end > HIGHEST || end < first)
		return true; /* nothing of a process lies there */
	void *want = (void *)(uintptr_t)first;
	void *got = mmap(want, end - first, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (got == want) {
		range->reserved = 1;
		return true;
	}
	if (got != MAP_FAILED) { /* a kernel that does not know the flag */
		munmap(got, end - first);
		return false;
	}
	size_t i = upto(end - 1);

	return errno == EEXIST && i && ranges.at[i - 1].kind == RANGE_DEVICE &&
	       page_up(ranges.at[i - 1].start + ranges.at[i - 1].bytes) > first;
}

/* Gives back the pages of a range that has left, but for those that others have, too; the
 * lock is held. */
static void release(const struct range *gone)
{
	uint64_t first = page_down(gone->start), end = page_up(gone->start + gone->bytes);
	size_t i = upto(end - 1);
	bool others = i && ranges.at[i - 1].kind == RANGE_DEVICE && page_up(ranges.at[i - 1].start + ranges.at[i - 1].bytes) > first;

	if (gone->reserved && !others)
		munmap((void *)(uintptr_t)first, end - first);
}

/* What the driver gives out now is free of what lay there: a context's memory goes with it,
 * without a call for each. The lock is held. */
static void leave_stale(uint64_t start, uint64_t bytes)
{
	for (;;) {
		size_t i = upto(start + bytes - 1);
		struct range gone;

		if (!i || ranges.at[i - 1].kind != RANGE_DEVICE || ranges.at[i - 1].start + ranges.at[i - 1].bytes <= start)
			return;
		leave(ranges.at[i - 1].start, RANGE_DEVICE, &gone);
		release(&gone);
	}
}

/* Remembers device memory, or with flags addresses for it. False: not at this address. */
static bool enter_device(uint64_t start, uint64_t bytes, uint32_t flags)
{
	struct range range = { start, bytes ? bytes : 1, RANGE_DEVICE, 0, flags };

	pthread_mutex_lock(&ranges.lock);
	leave_stale(range.start, range.bytes);
	bool reserved = reserve(&range);
	bool entered = enter(&range);

	pthread_mutex_unlock(&ranges.lock);
	return reserved && entered;
}

static bool leave_device(uint64_t start)
{
	struct range gone;

	pthread_mutex_lock(&ranges.lock);
	bool left = leave(start, RANGE_DEVICE, &gone);

	if (left)
		release(&gone);
	pthread_mutex_unlock(&ranges.lock);
	return left;
}

/*
 * Calls for memory until it lies where nothing of this process does; what lay wrong is
 * given back when one lies right. After many it is taken as it is: then a copy without a
 * direction may mistake one for the other.
 */
static CUresult placed(unsigned int number, const uint64_t *values, size_t bytes, unsigned int release)
{
	CUdeviceptr *address = (CUdeviceptr *)(uintptr_t)values[0];
	CUdeviceptr wrong[TRIES];
	unsigned int tries = 0;
	CUresult result = CUDA_SUCCESS;

	for (;;) {
		result = (CUresult)remote_call(number, 0, values);
		if (result != CUDA_SUCCESS || !address || enter_device(*address, bytes, number == CALL_cuMemAddressReserve ? RANGE_BARE : 0))
			break;
		if (tries == TRIES)
			break;
		wrong[tries++] = *address;
	}
	if (result == CUDA_ERROR_OUT_OF_MEMORY && tries) { /* better here than not at all */
		*address = wrong[--tries];
		result = CUDA_SUCCESS;
	}
	for (unsigned int i = 0; i < tries; i++) {
		const uint64_t back[] = { wrong[i], bytes };

		remote_call(release, 0, back);
	}
	return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	const uint64_t values[] = { WORD(dptr), bytesize };

	return placed(CALL_cuMemAlloc_v2, values, bytesize, CALL_cuMemFree_v2);
}

EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	const uint64_t values[] = { WORD(dptr), bytesize };

	return (CUresult)remote_call(CALL_cuMemAlloc, 0, values);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
				   unsigned int ElementSizeBytes)
{
	const uint64_t values[] = { WORD(dptr), WORD(pPitch), WidthInBytes, Height, ElementSizeBytes };
	CUresult result = (CUresult)remote_call(CALL_cuMemAllocPitch_v2, 0, values);

	if (result == CUDA_SUCCESS)
		enter_device(*dptr, *pPitch * Height, 0);
	return result;
}

EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes, unsigned int Height,
				unsigned int ElementSizeBytes)
{
	const uint64_t values[] = { WORD(dptr), WORD(pPitch), WidthInBytes, Height, ElementSizeBytes };

	return (CUresult)remote_call(CALL_cuMemAllocPitch, 0, values);
}

/* A twin of these marks its lane, which the first call clears. */
static unsigned int twin(void)
{
	const struct remote_lane *lane = remote_lane();

	return lane ? lane->twin : 0;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	const uint64_t values[] = { WORD(dptr), bytesize, WORD(hStream) };
	CUresult result = (CUresult)remote_call(CALL_cuMemAllocAsync, twin(), values);

	if (result == CUDA_SUCCESS)
		enter_device(*dptr, bytesize, 0);
	return result;
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
	const uint64_t values[] = { WORD(dptr), bytesize, WORD(pool), WORD(hStream) };
	CUresult result = (CUresult)remote_call(CALL_cuMemAllocFromPoolAsync, twin(), values);

	if (result == CUDA_SUCCESS)
		enter_device(*dptr, bytesize, 0);
	return result;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	const uint64_t values[] = { dptr, WORD(hStream) };

	leave_device(dptr);
	return (CUresult)remote_call(CALL_cuMemFreeAsync, twin(), values);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	const uint64_t values[] = { dptr };

	/* a free of what was allocated succeeds: nobody waits for it */
	if (leave_device(dptr))
		return (CUresult)remote_call_one_way(CALL_cuMemFree_v2, values);
	return (CUresult)remote_call(CALL_cuMemFree_v2, 0, values);
}

EXPORT CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
	return cuMemFree_v2(dptr);
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
	const uint64_t values[] = { WORD(ptr), size, alignment, addr, flags };

	return placed(CALL_cuMemAddressReserve, values, size, CALL_cuMemAddressFree);
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	const uint64_t values[] = { ptr, size };
	CUresult result = (CUresult)remote_call(CALL_cuMemAddressFree, 0, values);

	if (result == CUDA_SUCCESS)
		leave_device(ptr);
	return result;
}

/* What another process of the run has given out: its worker and ours are of one share. */
static CUresult opened(unsigned int number, const void *handle, uint64_t flags, uint64_t *got)
{
	struct remote_lane *lane = remote_lane();
	struct call_opened want = { .flags = flags };
	size_t at = sizeof(uint64_t), length = 0;

	if (!lane)
		return CUDA_ERROR_NOT_INITIALIZED;
	memcpy(want.handle, handle, sizeof(want.handle));
	if (!remote_begin(lane) || !remote_put(&lane->out, &want, sizeof(want)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = (CUresult)remote_finish(lane, number);
	const void *bytes = result == CUDA_SUCCESS ? remote_next(lane, &at, &length) : NULL;

	if (bytes && length == sizeof(*got))
		memcpy(got, bytes, sizeof(*got));
	return result;
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	CUdeviceptr base = 0;
	uint64_t address = 0;
	size_t bytes = 0;

	if (!pdptr)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = opened(CALL_cuIpcOpenMemHandle_v2, &handle, Flags, &address);

	if (result != CUDA_SUCCESS)
		return result;
	*pdptr = address;
	if (cuMemGetAddressRange_v2(&base, &bytes, address) == CUDA_SUCCESS)
		enter_device(base, bytes, 0);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	const uint64_t values[] = { dptr };
	CUresult result = (CUresult)remote_call(CALL_cuIpcCloseMemHandle, 0, values);

	if (result == CUDA_SUCCESS)
		leave_device(dptr);
	return result;
}

EXPORT CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	uint64_t event = 0;

	if (!phEvent)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = opened(CALL_cuIpcOpenEventHandle, &handle, 0, &event);

	if (result == CUDA_SUCCESS)
		*phEvent = (CUevent)(uintptr_t)event;
	return result;
}
