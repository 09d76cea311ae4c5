/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of another process: what its owner is charged for costs an importer of the same share nothing more. */
#define _GNU_SOURCE
#include "snippet.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED_BYTES (8 * MIB)

/*
 * Runs this program again as a part for SYMBOL, with the handle's bytes on its
 * standard input and fd (or -1) as descriptor 3, and waits for it. 0 when the
 * part is content.
 */
static int run_part(const char *symbol, int fd, const void *handle, size_t size)
{
	int ends[2], status = -1;
	pid_t child;

	if (pipe(ends) != 0)
		return -1;
	fflush(stdout);
	child = fork();
	if (child == 0) {
		dup2(ends[0], 0);
		if (fd == 3)
			fcntl(3, F_SETFD, 0); /* as dup2 to another number would */
		else if (fd >= 0)
			dup2(fd, 3);
		if (ends[1] != 3)
			close(ends[1]);
		execl("/proc/self/exe", "snippets", "part", symbol, (char *)NULL);
		_exit(127);
	}
	close(ends[0]);
	if (child > 0 && write(ends[1], handle, size) == (ssize_t)size)
		status = 0;
	close(ends[1]);
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The second process: opens what the first one owns. */
static void open_with(__typeof__(&cuIpcOpenMemHandle_v2) call)
{
	CUipcMemHandle handle;
	CUdeviceptr address = 0;
	uint64_t before = snippet_room();
	uint8_t byte = 0;

	CHECK(read(0, &handle, sizeof handle) == (ssize_t)sizeof handle);
	OK(call(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	EQUAL(snippet_room(), before);
	OK(DRIVER(cuMemcpyDtoH_v2)(&byte, address + SHARED_BYTES - 1, 1));
	EQUAL(byte, 0x5a);
	OK(DRIVER(cuIpcCloseMemHandle)(address));
	EQUAL(snippet_room(), before);
}

/* A pool of another process on the ledger brings no charge of its own. */
static void import_pool(void)
{
	CUmemPoolPtrExportData data;
	CUmemoryPool pool = NULL;
	CUdeviceptr address = 0;
	uint64_t before = snippet_room();
	uint8_t byte = 0;

	CHECK(read(0, &data, sizeof data) == (ssize_t)sizeof data);
	OK(DRIVER(cuMemPoolImportFromShareableHandle)(&pool, (void *)(uintptr_t)3,
						      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(DRIVER(cuMemPoolImportPointer)(&address, pool, &data));
	EQUAL(snippet_room(), before);
	OK(DRIVER(cuMemcpyDtoH_v2)(&byte, address + SHARED_BYTES - 1, 1));
	EQUAL(byte, 0x5a);
	OK(DRIVER(cuMemFree_v2)(address));
	OK(DRIVER(cuMemPoolDestroy)(pool));
	EQUAL(snippet_room(), before);
}

int snippet_part(int argc, char **argv)
{
	const char *symbol = argc > 0 ? argv[0] : "";

	snippet_name(symbol);
	if (DRIVER(cuInit)(0) != 0 || DRIVER(cuDeviceGet)(&snippet_run.device, 0) != 0 ||
	    DRIVER(cuDevicePrimaryCtxRetain)(&snippet_run.context, snippet_run.device) != 0 ||
	    DRIVER(cuCtxSetCurrent)(snippet_run.context) != 0) {
		snippet_fail(__FILE__, __LINE__, "the second process has no context");
		return 1;
	}
	if (strcmp(symbol, "cuIpcOpenMemHandle") == 0)
		open_with(DRIVER(cuIpcOpenMemHandle));
	else if (strcmp(symbol, "cuMemPoolImportPointer") == 0)
		import_pool();
	else
		open_with(DRIVER(cuIpcOpenMemHandle_v2));
	return snippet_failed() ? 1 : 0;
}

static void open_in_second(const char *symbol)
{
	CUipcMemHandle handle;
	CUdeviceptr address = 0;
	uint64_t before = snippet_room();

	memset(&handle, 0, sizeof handle);
	OK(DRIVER(cuMemAlloc_v2)(&address, SHARED_BYTES));
	OK(DRIVER(cuMemsetD8_v2)(address, 0x5a, SHARED_BYTES));
	OK(DRIVER(cuIpcGetMemHandle)(&handle, address));
	OK(run_part(symbol, -1, &handle, sizeof handle));
	CHECK(snippet_room_back(before - SHARED_BYTES));
	OK(DRIVER(cuMemFree_v2)(address));
	EQUAL(snippet_room(), before);
}

static void open_v2(void)
{
	open_in_second("cuIpcOpenMemHandle_v2");
}

static void open_v1(void)
{
	open_in_second("cuIpcOpenMemHandle");
}

static void export_pool(void)
{
	CUmemPoolProps props = {0};
	CUmemPoolPtrExportData data;
	CUmemoryPool pool = NULL;
	CUdeviceptr address = 0;
	uint64_t before = snippet_room(), held;
	int fd = -1;

	memset(&data, 0, sizeof data);
	props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = snippet_run.device;
	props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	OK(DRIVER(cuMemPoolCreate)(&pool, &props));
	OK(DRIVER(cuMemAllocFromPoolAsync)(&address, SHARED_BYTES, pool, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	OK(DRIVER(cuMemsetD8_v2)(address, 0x5a, SHARED_BYTES));
	held = snippet_room();
	CHECK(before - held >= SHARED_BYTES);
	OK(DRIVER(cuMemPoolExportToShareableHandle)(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(DRIVER(cuMemPoolExportPointer)(&data, address));
	EQUAL(snippet_room(), held);
	OK(run_part("cuMemPoolImportPointer", fd, &data, sizeof data));
	CHECK(snippet_room_back(held));
	OK(DRIVER(cuMemFreeAsync)(address, NULL));
	OK(DRIVER(cuCtxSynchronize)());
	OK(DRIVER(cuMemPoolDestroy)(pool));
	close(fd);
	CHECK(snippet_room_back(before));
}

/* What another API made (here: a memory file) costs its maker, not us. */
static int import_external(CUexternalMemory *memory, int fd, uint64_t bytes)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC description;

	memset(&description, 0, sizeof description);
	description.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
	description.handle.fd = fd;
	description.size = bytes;
	return (int)DRIVER(cuImportExternalMemory)(memory, &description);
}

static void external_buffer(void)
{
	CUmemAllocationProp prop = {0};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC part;
	CUmemGenericAllocationHandle handle = 0;
	CUexternalMemory memory = NULL;
	CUdeviceptr address = 0;
	uint64_t before = snippet_room();
	int fd = -1;

	memset(&part, 0, sizeof part);
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = snippet_run.device;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	OK(DRIVER(cuMemCreate)(&handle, SHARED_BYTES, &prop, 0));
	OK(DRIVER(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(import_external(&memory, fd, SHARED_BYTES));
	EQUAL(before - snippet_room(), SHARED_BYTES);
	part.size = SHARED_BYTES;
	OK(DRIVER(cuExternalMemoryGetMappedBuffer)(&address, memory, &part));
	EQUAL(before - snippet_room(), SHARED_BYTES);
	OK(snippet_linear_data(address, SHARED_BYTES));
	OK(DRIVER(cuMemFree_v2)(address));
	OK(DRIVER(cuDestroyExternalMemory)(memory));
	EQUAL(before - snippet_room(), SHARED_BYTES);
	OK(DRIVER(cuMemRelease)(handle));
	/* The descriptor was a holder too; the driver sees its end in its own time. */
	CHECK(snippet_room_back(before));
}

static void external_mipmap(void)
{
	CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC part;
	CUexternalMemory memory = NULL;
	CUmipmappedArray levels = NULL;
	CUarray level = NULL;
	uint64_t before = snippet_room();
	int fd = memfd_create("external", MFD_CLOEXEC);

	CHECK(fd >= 0 && ftruncate(fd, (off_t)SHARED_BYTES) == 0);
	memset(&part, 0, sizeof part);
	part.arrayDesc.Width = 512;
	part.arrayDesc.Height = 512;
	part.arrayDesc.Format = CU_AD_FORMAT_FLOAT;
	part.arrayDesc.NumChannels = 1;
	part.numLevels = 3;
	OK(import_external(&memory, fd, SHARED_BYTES));
	OK(DRIVER(cuExternalMemoryGetMappedMipmappedArray)(&levels, memory, &part));
	EQUAL(snippet_room(), before);
	OK(DRIVER(cuMipmappedArrayGetLevel)(&level, levels, 0));
	OK(DRIVER(cuMipmappedArrayDestroy)(levels));
	OK(DRIVER(cuDestroyExternalMemory)(memory));
	EQUAL(snippet_room(), before);
}

static const struct snippet snippets[] = {
	SNIPPET(cuMemPoolImportFromShareableHandle, export_pool),
	SNIPPET(cuMemPoolImportPointer, export_pool),
	SNIPPET(cuMemPoolExportToShareableHandle, export_pool),
	SNIPPET(cuMemPoolExportPointer, export_pool),
	SNIPPET(cuImportExternalMemory, external_buffer),
	SNIPPET(cuExternalMemoryGetMappedBuffer, external_buffer),
	SNIPPET(cuExternalMemoryGetMappedMipmappedArray, external_mipmap),
	SNIPPET(cuDestroyExternalMemory, external_mipmap),
	SNIPPET(cuIpcOpenMemHandle_v2, open_v2),
	SNIPPET(cuIpcOpenMemHandle, open_v1),
	SNIPPET(cuIpcCloseMemHandle, open_v2),
	SNIPPET(cuIpcGetMemHandle, open_v2),
	SNIPPET(cuMemExportToShareableHandle, external_buffer),
};

const struct area area_exchange = {
	.name = "exchange",
	.snippets = snippets,
	.snippets_count = COUNT(snippets),
};
