/* SPDX-License-Identifier: Apache-2.0 */
/* fakedriver.c: see fakedriver.h. One mutex around everything the driver does. */
#include "fakedriver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "divvy_arrays.h"
#include "divvy_limits.h"

/* -- the driver's things --------------------------------------------------- */

enum sort { NONE, LIBRARY, LINEAR, POOLED, ARRAY, MIPMAP, BACKING, CONTEXT, MODULE, POOL, GRAPH, EXEC, GREEN, LEAVING };

struct thing {
	enum sort sort;
	unsigned references;
	unsigned maps;
	bool gone;        /* a pool or a context, destroyed while something needs it */
	unsigned context; /* index of the context it dies with */
	unsigned pool;
	uint64_t bytes;
	uint64_t used;   /* pool */
	uint64_t queued; /* pool: of what is used, freed by streams that have not got that far */
	uint64_t limit[3];
};

#define THINGS 8192u
#define BASE 0x7f0000000000ull
#define STEP 0x40000000ull

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
static struct thing things[THINGS];
static struct { uint64_t address, size; unsigned backing; } maps[1024];
static uint64_t held, most;
static uint64_t graph_reserved;
static uint64_t generous;
static bool queueing;
static unsigned primary, primary_retained, default_pool;
static unsigned failing, dice;
static __thread unsigned current;
static __thread bool capturing;
static __thread unsigned capture_graph;
static void (*turns)(const char *call, bool done);

void fake_turns(void (*turn)(const char *call, bool done))
{
	turns = turn;
}

void fake_turn(const char *call, bool done)
{
	if (turns)
		turns(call, done);
}

static bool fails(void)
{
	unsigned every = __atomic_load_n(&failing, __ATOMIC_RELAXED);

	dice = dice * 1103515245u + 12345u;
	return every && (dice >> 16) % every == 0;
}

void fake_fail(unsigned n)
{
	__atomic_store_n(&failing, n, __ATOMIC_RELAXED);
}

static void grow(uint64_t bytes)
{
	held += bytes;
	if (held > most)
		most = held;
}

static unsigned make(enum sort sort, uint64_t bytes)
{
	for (unsigned i = 1; i < THINGS; i++) {
		if (things[i].sort == NONE) {
			things[i] = (struct thing){ .sort = sort, .bytes = bytes, .context = current, .references = 1 };
			return i;
		}
	}
	abort();
}

static uint64_t name(unsigned i)
{
	return BASE + i * STEP;
}

static unsigned find(uint64_t handle, enum sort sort)
{
	uint64_t i = (handle - BASE) / STEP;

	return handle >= BASE && i < THINGS && handle == name((unsigned)i) && things[i].sort == sort &&
			       (sort != BACKING || things[i].references) ?
		       (unsigned)i : 0;
}

static uint64_t chunks(uint64_t bytes)
{
	return (bytes + FAKE_CHUNK - 1) / FAKE_CHUNK * FAKE_CHUNK;
}

/* Every call of the driver: its turn comes before it has done anything and after it has done all. */
#define BEGIN() \
	do { \
		fake_turn(__func__, false); \
		pthread_mutex_lock(&big); \
	} while (0)
#define LEAVE(result) \
	do { \
		CUresult result_ = (result); \
		pthread_mutex_unlock(&big); \
		fake_turn(__func__, true); \
		return result_; \
	} while (0)
#define ENTER(failure) \
	do { \
		BEGIN(); \
		if (fails()) \
			LEAVE(failure); \
	} while (0)

static CUresult make_linear(CUdeviceptr *pointer, uint64_t bytes)
{
	unsigned i;

	ENTER(CUDA_ERROR_OUT_OF_MEMORY);
	if (!current)
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	bytes = (bytes + 511) / 512 * 512;
	i = make(LINEAR, bytes);
	grow(bytes);
	*pointer = name(i);
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_alloc(CUdeviceptr *pointer, size_t bytes)
{
	return make_linear(pointer, bytes);
}

static CUresult f_managed(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
	(void)flags;
	return make_linear(pointer, bytes);
}

static CUresult f_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element)
{
	uint64_t row = (width + 255) / 256 * 256;
	CUresult result = make_linear(pointer, row * height);

	(void)element;
	if (result == CUDA_SUCCESS)
		*pitch = row;
	return result;
}

static void shrink_pool(struct thing *pool)
{
	held -= pool->bytes - chunks(pool->used);
	pool->bytes = chunks(pool->used);
	if (pool->gone && !pool->used)
		pool->sort = NONE;
}

static CUresult give_pooled(unsigned i, bool queue)
{
	struct thing *pool = &things[things[i].pool];

	if (queue)
		pool->queued += things[i].bytes;
	else
		pool->used -= things[i].bytes;
	if (pool->gone)
		shrink_pool(pool);
	things[i].sort = NONE;
	return CUDA_SUCCESS;
}

static CUresult f_free(CUdeviceptr pointer)
{
	unsigned i;

	ENTER(CUDA_ERROR_UNKNOWN);
	i = find(pointer, POOLED);
	if (i)
		LEAVE(give_pooled(i, false));
	i = find(pointer, LINEAR);
	if (!i)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	held -= things[i].bytes;
	things[i].sort = NONE;
	LEAVE(CUDA_SUCCESS);
}

static CUresult make_array(void *out, uint64_t bytes, enum sort sort)
{
	unsigned i;
	uint64_t handle;

	ENTER(CUDA_ERROR_OUT_OF_MEMORY);
	i = make(sort, bytes);
	grow(bytes);
	handle = name(i);
	memcpy(out, &handle, sizeof(handle));
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_array3d(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	uint64_t bytes;

	if (divvy_array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels, d->Flags, 0, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return make_array(array, d->Flags & 0xc0 ? 0 : bytes, ARRAY);
}

static CUresult f_array(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
	CUDA_ARRAY3D_DESCRIPTOR d3 = {
		.Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels,
	};

	return f_array3d(array, &d3);
}

/* Of levels it makes as many as the size has halves, as drivers do. */
static CUresult f_mipmap(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	uint64_t longest = d->Width | d->Height | d->Depth;
	unsigned most = longest ? 64 - (unsigned)__builtin_clzll(longest) : 1;
	uint64_t bytes;

	if (levels > most)
		levels = most;
	if (divvy_array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels, d->Flags, levels, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return make_array(array, bytes, MIPMAP);
}

static CUresult end_array(uint64_t handle, enum sort sort)
{
	unsigned i;

	BEGIN();
	/* like cuMemFreeAsync below, unloading takes back what there is no room for */
	if (sort != MODULE && fails())
		LEAVE(CUDA_ERROR_UNKNOWN);
	i = find(handle, sort);
	if (!i)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	held -= things[i].bytes;
	things[i].sort = NONE;
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_array_destroy(CUarray array)
{
	return end_array((uintptr_t)array, ARRAY);
}

static CUresult f_mipmap_destroy(CUmipmappedArray array)
{
	return end_array((uintptr_t)array, MIPMAP);
}

/* -- virtual memory -------------------------------------------------------- */

static CUresult f_create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			 unsigned long long flags)
{
	unsigned i;

	(void)prop, (void)flags;
	ENTER(CUDA_ERROR_OUT_OF_MEMORY);
	i = make(BACKING, size);
	grow(size);
	*handle = name(i);
	LEAVE(CUDA_SUCCESS);
}

static void backing_look(unsigned i)
{
	if (things[i].references || things[i].maps)
		return;
	held -= things[i].bytes;
	things[i].sort = NONE;
}

static CUresult f_release(CUmemGenericAllocationHandle handle)
{
	unsigned i;

	ENTER(CUDA_ERROR_UNKNOWN);
	i = find(handle, BACKING);
	if (!i)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	things[i].references--;
	backing_look(i);
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_map(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		      unsigned long long flags)
{
	unsigned i;

	(void)offset, (void)flags;
	ENTER(CUDA_ERROR_UNKNOWN);
	i = find(handle, BACKING);
	if (!i)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	for (unsigned m = 0; m < 1024; m++) {
		if (maps[m].size && maps[m].address < pointer + size && pointer < maps[m].address + maps[m].size)
			LEAVE(CUDA_ERROR_INVALID_VALUE);
	}
	for (unsigned m = 0; m < 1024; m++) {
		if (maps[m].size)
			continue;
		maps[m].address = pointer, maps[m].size = size, maps[m].backing = i;
		things[i].maps++;
		LEAVE(CUDA_SUCCESS);
	}
	LEAVE(CUDA_ERROR_UNKNOWN);
}

static CUresult f_unmap(CUdeviceptr pointer, size_t size)
{
	bool any = false;

	ENTER(CUDA_ERROR_UNKNOWN);
	for (unsigned m = 0; m < 1024; m++) {
		if (!maps[m].size || maps[m].address < pointer || maps[m].address >= pointer + size)
			continue;
		maps[m].size = 0;
		things[maps[m].backing].maps--;
		backing_look(maps[m].backing);
		any = true;
	}
	LEAVE(any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult f_retain(CUmemGenericAllocationHandle *handle, void *address)
{
	ENTER(CUDA_ERROR_UNKNOWN);
	for (unsigned m = 0; m < 1024; m++) {
		if (maps[m].size && (uintptr_t)address - maps[m].address < maps[m].size) {
			things[maps[m].backing].references++;
			*handle = name(maps[m].backing);
			LEAVE(CUDA_SUCCESS);
		}
	}
	LEAVE(CUDA_ERROR_INVALID_VALUE);
}

static CUresult f_multicast(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
{
	CUmemAllocationProp none = { 0 };

	(void)prop;
	return f_create(handle, 0, &none, 0);
}

static CUresult f_bind(CUmemGenericAllocationHandle object, size_t at, CUmemGenericAllocationHandle handle, size_t from,
		       size_t size, unsigned long long flags)
{
	(void)from;
	return find(object, BACKING) ? f_map(object + at, size, 0, handle, flags) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult f_unbind(CUmemGenericAllocationHandle object, CUdevice device, size_t at, size_t size)
{
	(void)device;
	return f_unmap(object + at, size);
}

static CUresult f_map_array(CUarrayMapInfo *info, unsigned count, CUstream stream)
{
	uint64_t array = (uintptr_t)info->resource.array;

	(void)stream;
	if (count != 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
		return f_unmap(array, 1);
	return f_map(array, 1, 0, info->memHandle.memHandle, 0);
}

/* -- contexts -------------------------------------------------------------- */

static void end_context(unsigned context)
{
	for (unsigned i = 1; i < THINGS; i++) {
		if (things[i].context != context || i == context)
			continue;
		if (things[i].sort == LINEAR || things[i].sort == ARRAY || things[i].sort == MIPMAP ||
		    things[i].sort == MODULE || things[i].sort == LEAVING) {
			held -= things[i].bytes;
			things[i].sort = NONE;
		}
	}
	held -= things[context].bytes;
	things[context].sort = NONE;
}

/* A descriptor is a number here: it keeps nothing. */
static CUresult f_export(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)
{
	unsigned i;

	(void)type, (void)flags;
	ENTER(CUDA_ERROR_UNKNOWN);
	i = find(handle, BACKING);
	if (!i)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	*(int *)out = 1000000 + (int)i;
	LEAVE(CUDA_SUCCESS);
}

/* This driver knows its own memory again: one reference more. */
static CUresult f_import(CUmemGenericAllocationHandle *handle, void *descriptor, CUmemAllocationHandleType type)
{
	unsigned i = (unsigned)(uintptr_t)descriptor - 1000000;

	(void)type;
	ENTER(CUDA_ERROR_UNKNOWN);
	if (i >= THINGS || things[i].sort != BACKING)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	things[i].references++;
	*handle = name(i);
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_ipc(CUipcMemHandle *handle, CUdeviceptr pointer)
{
	ENTER(CUDA_ERROR_UNKNOWN);
	if (!find(pointer, LINEAR))
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &pointer, sizeof(pointer));
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
	unsigned i;

	ENTER(CUDA_ERROR_UNKNOWN);
	i = find(pointer, LINEAR);
	if (!i)
		LEAVE(CUDA_ERROR_NOT_FOUND);
	*base = pointer;
	*bytes = things[i].bytes;
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_ctx_create(CUcontext *context, unsigned flags, CUdevice device)
{
	unsigned i;

	(void)flags;
	ENTER(CUDA_ERROR_UNKNOWN);
	if (device != FAKE_CARD)
		LEAVE(CUDA_ERROR_INVALID_DEVICE);
	i = make(CONTEXT, FAKE_CONTEXT);
	grow(FAKE_CONTEXT);
	*context = (CUcontext)name(i);
	current = i;
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_ctx_destroy(CUcontext context)
{
	unsigned i;

	ENTER(CUDA_ERROR_UNKNOWN);
	i = find((uintptr_t)context, CONTEXT);
	if (!i || i == primary)
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	end_context(i);
	if (current == i)
		current = 0;
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_ctx_current(CUcontext *context)
{
	BEGIN();
	*context = current && things[current].sort == CONTEXT ? (CUcontext)name(current) : NULL;
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_ctx_set(CUcontext context)
{
	BEGIN();
	current = find((uintptr_t)context, CONTEXT);
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_ctx_version(CUcontext context, unsigned *version)
{
	unsigned i;

	BEGIN();
	i = find((uintptr_t)context, CONTEXT);
	*version = 3020;
	LEAVE(i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

static CUresult f_primary_retain(CUcontext *context, CUdevice device)
{
	(void)device;
	ENTER(CUDA_ERROR_UNKNOWN);
	if (!primary) {
		primary = make(CONTEXT, FAKE_CONTEXT);
		grow(FAKE_CONTEXT);
	}
	primary_retained++;
	*context = (CUcontext)name(primary);
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_primary_state(CUdevice device, unsigned *flags, int *active)
{
	(void)device;
	BEGIN();
	*flags = 0;
	*active = primary != 0;
	LEAVE(CUDA_SUCCESS);
}

static void primary_let_go(void)
{
	if (--primary_retained == 0) {
		end_context(primary);
		primary = 0;
	}
}

static CUresult f_primary_release(CUdevice device)
{
	(void)device;
	ENTER(CUDA_ERROR_UNKNOWN);
	if (!primary_retained)
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	primary_let_go();
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_primary_reset(CUdevice device)
{
	(void)device;
	ENTER(CUDA_ERROR_UNKNOWN);
	if (primary)
		end_context(primary);
	primary = primary_retained = 0;
	LEAVE(CUDA_SUCCESS);
}

/* It keeps the primary context alive. What stands for it takes nothing. */
static CUresult f_green_create(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice device, unsigned flags)
{
	CUcontext context;
	CUresult result = f_primary_retain(&context, device);

	(void)desc, (void)flags;
	return result == CUDA_SUCCESS ? make_array(green, FAKE_CONTEXT, GREEN) : result;
}

static CUresult f_green_context(CUcontext *context, CUgreenCtx green)
{
	unsigned i;

	ENTER(CUDA_ERROR_UNKNOWN);
	i = find((uintptr_t)green, GREEN);
	if (!i)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	if (!things[i].used)
		things[i].used = make(CONTEXT, 0);
	*context = (CUcontext)name((unsigned)things[i].used);
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_green_destroy(CUgreenCtx green)
{
	unsigned i;

	BEGIN();
	i = find((uintptr_t)green, GREEN);
	if (!i)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	if (things[i].used)
		things[things[i].used].sort = NONE;
	held -= things[i].bytes;
	things[i].sort = NONE;
	primary_let_go();
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_limit_set(CUlimit limit, size_t value)
{
	uint64_t before, now;

	BEGIN();
	if (!current)
		LEAVE(CUDA_ERROR_INVALID_CONTEXT);
	value = (value + 4095) / 4096 * 4096;
	before = divvy_limit_bytes((int)limit, things[current].limit[limit], 100);
	now = divvy_limit_bytes((int)limit, value, 100);
	if (now > before && fails())
		LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
	things[current].limit[limit] = value;
	things[current].bytes += now - before;
	grow(now - before);
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_limit_get(size_t *value, CUlimit limit)
{
	BEGIN();
	*value = current ? things[current].limit[limit] : 0;
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	(void)attribute, (void)device;
	*value = 100;
	return CUDA_SUCCESS;
}

static CUresult f_module_load(CUmodule *module, const void *image)
{
	(void)image;
	return make_array(module, FAKE_MODULE, MODULE);
}

static CUresult f_module_unload(CUmodule module)
{
	return end_array((uintptr_t)module, MODULE);
}

/* A library takes memory at its first use, and never gives it back before it is unloaded. */
static CUresult f_library_load(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned count,
			       CUlibraryOption *more, void **morevalues, unsigned morecount)
{
	(void)code, (void)options, (void)values, (void)count, (void)more, (void)morevalues, (void)morecount;
	return make_array(library, 0, LIBRARY);
}

static CUresult use_library(uint64_t handle)
{
	unsigned i;

	BEGIN();
	i = find(handle, LIBRARY);
	if (i && !things[i].bytes) {
		things[i].bytes = FAKE_MODULE;
		grow(FAKE_MODULE);
	}
	LEAVE(i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult f_library_module(CUmodule *module, CUlibrary library)
{
	*module = (CUmodule)library;
	return use_library((uintptr_t)library);
}

static CUresult f_library_global(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
	(void)pointer, (void)bytes, (void)name;
	(void)use_library((uintptr_t)library);
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult f_library_kernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	(void)name;
	*kernel = (CUkernel)((uintptr_t)library + 1);
	return CUDA_SUCCESS;
}

static CUresult f_kernel_function(CUfunction *function, CUkernel kernel)
{
	*function = (CUfunction)kernel;
	return use_library((uintptr_t)kernel - 1);
}

static CUresult f_library_unload(CUlibrary library)
{
	return end_array((uintptr_t)library, LIBRARY);
}

/* -- pools and graphs ------------------------------------------------------ */

static uint64_t take_generous(void)
{
	uint64_t bytes = generous;

	generous = 0;
	return bytes;
}

void fake_generous(uint64_t bytes)
{
	generous = bytes;
}

void fake_queueing(bool yes)
{
	queueing = yes;
}

static CUresult f_pool_of_device(CUmemoryPool *pool, CUdevice device)
{
	(void)device;
	*pool = (CUmemoryPool)name(default_pool);
	return CUDA_SUCCESS;
}

static CUresult f_pool_create(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	unsigned i;

	(void)props;
	ENTER(CUDA_ERROR_UNKNOWN);
	i = make(POOL, 0);
	*pool = (CUmemoryPool)name(i);
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_pool_destroy(CUmemoryPool pool)
{
	unsigned i;

	ENTER(CUDA_ERROR_UNKNOWN);
	i = find((uintptr_t)pool, POOL);
	if (!i || things[i].gone)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	things[i].gone = true;
	shrink_pool(&things[i]);
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	unsigned i;

	BEGIN();
	i = find((uintptr_t)pool, POOL);
	if (!i || things[i].gone) {
		fprintf(stderr, "a pool was asked that is no more\n");
		abort();
	}
	*(uint64_t *)value = attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? things[i].used : things[i].bytes;
	LEAVE(CUDA_SUCCESS);
}

/* Reserves shrink at the next synchronisation whatever their threshold. */
static CUresult f_pool_set(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	unsigned i;

	(void)attribute, (void)value;
	BEGIN();
	i = find((uintptr_t)pool, POOL);
	LEAVE(i && !things[i].gone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult f_pool_trim(CUmemoryPool pool, size_t keep)
{
	unsigned i;

	BEGIN();
	i = find((uintptr_t)pool, POOL);
	if (i && !things[i].gone) {
		uint64_t wanted = chunks(things[i].used) > chunks(keep) ? chunks(things[i].used) : chunks(keep);

		if (wanted < things[i].bytes) {
			held -= things[i].bytes - wanted;
			things[i].bytes = wanted;
		}
	}
	LEAVE(i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult f_alloc_from(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	unsigned i, p;

	(void)stream;
	ENTER(CUDA_ERROR_OUT_OF_MEMORY);
	if (capturing) {
		things[capture_graph].bytes += bytes;
		*pointer = 0x123456;
		LEAVE(CUDA_SUCCESS);
	}
	p = find((uintptr_t)pool, POOL);
	if (!p || things[p].gone)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	bytes = (bytes + 511) / 512 * 512;
	i = make(POOLED, bytes);
	things[i].pool = p;
	things[p].used += bytes;
	if (things[p].used > things[p].bytes) {
		uint64_t reserve = chunks(things[p].used) + take_generous();

		grow(reserve - things[p].bytes);
		things[p].bytes = reserve;
	}
	*pointer = name(i);
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_alloc_async(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return f_alloc_from(pointer, bytes, (CUmemoryPool)name(default_pool), stream);
}

static CUresult f_free_async(CUdeviceptr pointer, CUstream stream)
{
	unsigned i;

	(void)stream;
	BEGIN(); /* never fails: it is what takes back an allocation that there is no room for */
	i = find(pointer, POOLED);
	if (i)
		LEAVE(give_pooled(i, queueing));
	i = find(pointer, LINEAR);
	if (!i)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	if (queueing) {
		things[i].sort = LEAVING;
		LEAVE(CUDA_SUCCESS);
	}
	held -= things[i].bytes;
	things[i].sort = NONE;
	LEAVE(CUDA_SUCCESS);
}

/* One that waits behind a free. */
static struct host_function {
	CUhostFn call;
	void *argument;
} host_functions[THINGS];
static unsigned host_functions_count;

static CUresult f_host_function(CUstream stream, CUhostFn call, void *argument)
{
	(void)stream;
	ENTER(CUDA_ERROR_OUT_OF_MEMORY);
	host_functions[host_functions_count].call = call;
	host_functions[host_functions_count++].argument = argument;
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_query(CUstream stream)
{
	CUresult result = CUDA_SUCCESS;

	(void)stream;
	BEGIN();
	for (unsigned i = 1; i < THINGS; i++) {
		if (things[i].sort == LEAVING || (things[i].sort == POOL && things[i].queued))
			result = CUDA_ERROR_NOT_READY;
	}
	LEAVE(result);
}

static CUresult f_sync(CUstream stream)
{
	struct host_function *ready;
	unsigned count;

	(void)stream;
	BEGIN();
	for (unsigned i = 1; i < THINGS; i++) {
		if (things[i].sort == LEAVING) {
			held -= things[i].bytes;
			things[i].sort = NONE;
		}
		if (things[i].sort == POOL) {
			things[i].used -= things[i].queued;
			things[i].queued = 0;
			shrink_pool(&things[i]);
		}
	}
	ready = malloc((host_functions_count + 1) * sizeof(*ready));
	if (!ready)
		abort();
	count = host_functions_count;
	memcpy(ready, host_functions, count * sizeof(*ready));
	host_functions_count = 0;
	pthread_mutex_unlock(&big); /* a thread of the driver's calls them */
	for (unsigned i = 0; i < count; i++)
		ready[i].call(ready[i].argument);
	free(ready);
	fake_turn(__func__, true);
	return CUDA_SUCCESS;
}

static CUresult f_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
	(void)stream;
	*status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

static CUresult f_begin(CUstream stream)
{
	(void)stream;
	BEGIN();
	capture_graph = make(GRAPH, 0);
	capturing = true;
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_end(CUstream stream, CUgraph *graph)
{
	(void)stream;
	capturing = false;
	*graph = (CUgraph)name(capture_graph);
	return CUDA_SUCCESS;
}

/* A graph is one alloc node here; the node has the graph's name. */
static CUresult f_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	*count = 1;
	if (nodes)
		nodes[0] = (CUgraphNode)graph;
	return CUDA_SUCCESS;
}

static CUresult f_node_type(CUgraphNode node, CUgraphNodeType *type)
{
	(void)node;
	*type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	return CUDA_SUCCESS;
}

static CUresult f_node_params(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	unsigned i;

	BEGIN();
	i = find((uintptr_t)node, GRAPH);
	*params = (CUDA_MEM_ALLOC_NODE_PARAMS){ .bytesize = things[i].bytes };
	params->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	params->poolProps.location.id = FAKE_CARD;
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	unsigned g, i;

	(void)flags;
	ENTER(CUDA_ERROR_OUT_OF_MEMORY);
	g = find((uintptr_t)graph, GRAPH);
	i = make(EXEC, things[g].bytes);
	*exec = (CUgraphExec)name(i);
	LEAVE(g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult f_graph_launch(CUgraphExec exec, CUstream stream)
{
	unsigned i;

	(void)stream;
	ENTER(CUDA_ERROR_UNKNOWN);
	i = find((uintptr_t)exec, EXEC);
	if (!i)
		LEAVE(CUDA_ERROR_INVALID_VALUE);
	if (chunks(things[i].bytes) > graph_reserved) {
		uint64_t reserve = chunks(things[i].bytes) + take_generous();

		grow(reserve - graph_reserved);
		graph_reserved = reserve;
	}
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_thing_destroy(void *handle)
{
	unsigned i;

	ENTER(CUDA_ERROR_UNKNOWN);
	i = find((uintptr_t)handle, GRAPH);
	if (!i)
		i = find((uintptr_t)handle, EXEC);
	if (i)
		things[i].sort = NONE;
	LEAVE(i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult f_graph_attribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	(void)device, (void)attribute;
	BEGIN();
	*(uint64_t *)value = graph_reserved;
	LEAVE(CUDA_SUCCESS);
}

static CUresult f_graph_trim(CUdevice device)
{
	(void)device;
	BEGIN();
	held -= graph_reserved;
	graph_reserved = 0;
	LEAVE(CUDA_SUCCESS);
}

void *front_real[DIVVY_SYMBOLS + DIVVY_SPARES] = {
	[SYM_cuMemAlloc_v2] = f_alloc,
	[SYM_cuMemAllocManaged] = f_managed,
	[SYM_cuMemAllocPitch_v2] = f_pitch,
	[SYM_cuMemFree_v2] = f_free,
	[SYM_cuArrayCreate_v2] = f_array,
	[SYM_cuArray3DCreate_v2] = f_array3d,
	[SYM_cuArrayDestroy] = f_array_destroy,
	[SYM_cuMipmappedArrayCreate] = f_mipmap,
	[SYM_cuMipmappedArrayDestroy] = f_mipmap_destroy,
	[SYM_cuMemCreate] = f_create,
	[SYM_cuMemRelease] = f_release,
	[SYM_cuMemMap] = f_map,
	[SYM_cuMemUnmap] = f_unmap,
	[SYM_cuMulticastCreate] = f_multicast,
	[SYM_cuMulticastBindMem] = f_bind,
	[SYM_cuMulticastUnbind] = f_unbind,
	[SYM_cuMemMapArrayAsync] = f_map_array,
	[SYM_cuMemRetainAllocationHandle] = f_retain,
	[SYM_cuMemExportToShareableHandle] = f_export,
	[SYM_cuMemImportFromShareableHandle] = f_import,
	[SYM_cuIpcGetMemHandle] = f_ipc,
	[SYM_cuMemGetAddressRange_v2] = f_range,
	[SYM_cuCtxCreate_v2] = f_ctx_create,
	[SYM_cuCtxDestroy_v2] = f_ctx_destroy,
	[SYM_cuCtxGetCurrent] = f_ctx_current,
	[SYM_cuCtxSetCurrent] = f_ctx_set,
	[SYM_cuCtxGetApiVersion] = f_ctx_version,
	[SYM_cuDevicePrimaryCtxRetain] = f_primary_retain,
	[SYM_cuDevicePrimaryCtxGetState] = f_primary_state,
	[SYM_cuDevicePrimaryCtxRelease_v2] = f_primary_release,
	[SYM_cuDevicePrimaryCtxReset_v2] = f_primary_reset,
	[SYM_cuGreenCtxCreate] = f_green_create,
	[SYM_cuGreenCtxDestroy] = f_green_destroy,
	[SYM_cuCtxFromGreenCtx] = f_green_context,
	[SYM_cuCtxSetLimit] = f_limit_set,
	[SYM_cuCtxGetLimit] = f_limit_get,
	[SYM_cuDeviceGetAttribute] = f_attribute,
	[SYM_cuModuleLoadData] = f_module_load,
	[SYM_cuModuleUnload] = f_module_unload,
	[SYM_cuLibraryLoadData] = f_library_load,
	[SYM_cuLibraryUnload] = f_library_unload,
	[SYM_cuLibraryGetModule] = f_library_module,
	[SYM_cuLibraryGetGlobal] = f_library_global,
	[SYM_cuLibraryGetKernel] = f_library_kernel,
	[SYM_cuKernelGetFunction] = f_kernel_function,
	[SYM_cuDeviceGetDefaultMemPool] = f_pool_of_device,
	[SYM_cuDeviceGetMemPool] = f_pool_of_device,
	[SYM_cuMemPoolCreate] = f_pool_create,
	[SYM_cuMemPoolDestroy] = f_pool_destroy,
	[SYM_cuMemPoolGetAttribute] = f_pool_attribute,
	[SYM_cuMemPoolSetAttribute] = f_pool_set,
	[SYM_cuMemPoolTrimTo] = f_pool_trim,
	[SYM_cuMemAllocAsync] = f_alloc_async,
	[SYM_cuMemAllocFromPoolAsync] = f_alloc_from,
	[SYM_cuMemFreeAsync] = f_free_async,
	[SYM_cuStreamSynchronize] = f_sync,
	[SYM_cuStreamQuery] = f_query,
	[SYM_cuLaunchHostFunc] = f_host_function,
	[SYM_cuStreamIsCapturing] = f_is_capturing,
	[SYM_cuStreamBeginCapture] = f_begin,
	[SYM_cuStreamEndCapture] = f_end,
	[SYM_cuGraphGetNodes] = f_nodes,
	[SYM_cuGraphNodeGetType] = f_node_type,
	[SYM_cuGraphMemAllocNodeGetParams] = f_node_params,
	[SYM_cuGraphInstantiateWithFlags] = f_instantiate,
	[SYM_cuGraphUpload] = f_graph_launch,
	[SYM_cuGraphLaunch] = f_graph_launch,
	[SYM_cuGraphExecDestroy] = f_thing_destroy,
	[SYM_cuGraphDestroy] = f_thing_destroy,
	[SYM_cuDeviceGetGraphMemAttribute] = f_graph_attribute,
	[SYM_cuDeviceGraphMemTrim] = f_graph_trim,
};

uint64_t fake_held(void)
{
	uint64_t now;

	pthread_mutex_lock(&big);
	now = held;
	pthread_mutex_unlock(&big);
	return now;
}

uint64_t fake_most(void)
{
	uint64_t was;

	pthread_mutex_lock(&big);
	was = most;
	most = held;
	pthread_mutex_unlock(&big);
	return was;
}

void fake_start(uint64_t limitbytes)
{
	fake_grant(limitbytes);
	pthread_mutex_lock(&big);
	default_pool = make(POOL, 0);
	pthread_mutex_unlock(&big);
}
