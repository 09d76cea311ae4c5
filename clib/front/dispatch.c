/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dispatch.c: the real driver behind the front, found and opened when the
 * first function of it is wanted. The only file that knows about hooking.
 *
 * Everything here may be called before cuInit, from constructors, after fork,
 * and by the driver itself while it is being opened: then the answer is "not
 * ready" and is not remembered.
 */
#include "front.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compat.h"
#include "image.h"

#define DEFAULT_DRIVER_DIR "/run/divvy/driver"
/* In a container: the socket alone, and in its folder, where the one of an
 * agent that was started anew appears. */
#define DEFAULT_SOCKET "/run/divvy/share.sock"
#define FOLDER_SOCKET "/run/divvy/share/share.sock"
#define PATH_BYTES 1024
#define OPENING 2u /* in front_thread.inside: this thread is opening a library */


/*
 * No lock and no pthread_once: a constructor that the dynamic loader runs under
 * its own lock may call us while another thread is here and wants that lock.
 * dlopen of the same file twice is one library, so everyone may try.
 */
struct library {
	const char *file;
	const char *probe;    /* a function that a driver has */
	void *handle;         /* NULL: not opened */
	uint32_t failed;      /* cannot be opened: said once, not tried again */
	uint32_t claimed;     /* by whom says it */
	uint32_t event;       /* DIVVY_EVENT_*, for the agent; reason is filled in before it */
	char reason[DIVVY_TEXT_BYTES];
};

static struct library cuda = {.file = "libcuda.so.1", .probe = "cuInit"};
static struct library nvml = {.file = "libnvidia-ml.so.1", .probe = "nvmlInit_v2"};
static uint64_t unclassified[(DIVVY_SPARES + 63) / 64]; /* used before there was an agent to tell */

/* from the linker: where this library begins and ends */
extern const char ehdr[] __asm__("__ehdr_start") __attribute__((visibility("hidden")));
extern const char end[] __asm__("_end") __attribute__((visibility("hidden")));

__thread struct front_thread front_thread __attribute__((tls_model("initial-exec"))) = FRONT_THREAD_NEW;

/* What programs get instead of a function that is not there. */
static int cuda_unavailable(void)
{
	return CUDA_ERROR_SYSTEM_NOT_READY;
}

static int cuda_missing(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

static int nvml_unavailable(void)
{
	return NVML_ERROR_LIBRARY_NOT_FOUND;
}

static int nvml_missing(void)
{
	return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static const char *nvml_no_error_string(void)
{
	return "NVML is not available";
}

static const char *driver_dir(void)
{
	const char *dir = secure_getenv("DIVVY_DRIVER_DIR");

	return dir != NULL && dir[0] == '/' ? dir : DEFAULT_DRIVER_DIR;
}

static void refuse(struct library *library, uint32_t event, const char *path, const char *reason)
{
	if (__atomic_exchange_n(&library->claimed, 1, __ATOMIC_ACQ_REL) == 0) {
		snprintf(library->reason, sizeof(library->reason), "%s", reason);
		__atomic_store_n(&library->event, event, __ATOMIC_RELEASE);
		front_log("open the driver %s: %s", path, reason);
	}
	__atomic_store_n(&library->failed, 1, __ATOMIC_RELEASE);
}

static void open_library(struct library *library)
{
	struct front_image self, opened;
	char path[PATH_BYTES];
	dev_t device;
	ino_t inode;
	void *handle;
	void *known;

	if (snprintf(path, sizeof(path), "%s/%s", driver_dir(), library->file) >= (int)sizeof(path)) {
		refuse(library, DIVVY_EVENT_NO_DRIVER, driver_dir(), "its name is too long");
		return;
	}
	if (!front_image_find(ehdr, &self)) {
		refuse(library, DIVVY_EVENT_NO_DRIVER, path, "Divvy's own library is not known to the loader");
		return;
	}
	if (self.hasfile && front_image_file(path, &device, &inode) && device == self.device && inode == self.inode) {
		refuse(library, DIVVY_EVENT_SELF_OPEN, path, "this is Divvy's own library, not a driver");
		return;
	}
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL) {
		const char *reason = dlerror();

		refuse(library, DIVVY_EVENT_NO_DRIVER, path, reason != NULL ? reason : "unknown reason");
		return;
	}
	/* a library that is no driver stays open: closing it would run its destructors in someone's process */
	known = dlsym(handle, library->probe);
	if (known == NULL || !front_image_find(known, &opened))
		refuse(library, DIVVY_EVENT_NO_DRIVER, path, "this is no driver");
	else if (front_image_same(&opened, &self))
		refuse(library, DIVVY_EVENT_SELF_OPEN, path, "this is Divvy's own library, not a driver");
	else
		__atomic_store_n(&library->handle, handle, __ATOMIC_RELEASE);
}

static bool is_nvml(const char *name)
{
	return strncmp(name, "nvml", 4) == 0;
}

/* The opened library, or NULL; also NULL while this very thread is opening one. */
static void *library_open(struct library *library)
{
	void *handle = __atomic_load_n(&library->handle, __ATOMIC_ACQUIRE);
	uint32_t before = front_thread.inside;

	if (handle != NULL || (before & OPENING) != 0 || __atomic_load_n(&library->failed, __ATOMIC_ACQUIRE))
		return handle;
	front_thread.inside = before | OPENING;
	open_library(library);
	front_thread.inside = before;
	return __atomic_load_n(&library->handle, __ATOMIC_ACQUIRE);
}

static const char *symbol_name(unsigned symbol)
{
	if (symbol < DIVVY_SYMBOLS)
		return divvy_symbol_name(symbol);
	if (symbol < DIVVY_SYMBOLS + DIVVY_SPARES && front_spare_names[symbol - DIVVY_SYMBOLS][0] != 0)
		return front_spare_names[symbol - DIVVY_SYMBOLS];
	return NULL;
}

/* A library behind the driver may need libcuda.so.1 by name and so lead back to us. */
static void *find(void *handle, const char *name)
{
	void *address = dlsym(handle, name);

	return (const char *)address >= ehdr && (const char *)address < end ? NULL : address;
}

void *front_address(unsigned symbol)
{
	const char *name = symbol_name(symbol);
	void *handle = name == NULL ? NULL : library_open(is_nvml(name) ? &nvml : &cuda);

	return handle == NULL ? NULL : find(handle, name);
}

bool front_has(unsigned symbol)
{
	return front_address(symbol) != NULL;
}

static void report_spare(unsigned spare)
{
	if (__atomic_load_n(front_live, __ATOMIC_ACQUIRE))
		front_event(DIVVY_EVENT_UNCLASSIFIED, 0, 0, front_spare_names[spare]);
	else
		__atomic_fetch_or(&unclassified[spare / 64], 1ull << spare % 64, __ATOMIC_RELAXED);
}

void *front_resolve(unsigned symbol)
{
	const char *name = symbol_name(symbol);
	bool isnvml = name != NULL && is_nvml(name);
	bool opening = (front_thread.inside & OPENING) != 0;
	void *handle = name == NULL ? NULL : library_open(isnvml ? &nvml : &cuda);
	void *address = handle == NULL ? NULL : find(handle, name);

	if (address == NULL && symbol == SYM_nvmlErrorString)
		address = nvml_no_error_string;
	if (address == NULL && handle == NULL && name != NULL)
		address = isnvml ? nvml_unavailable : cuda_unavailable;
	if (address == NULL)
		address = isnvml ? nvml_missing : cuda_missing;
	if (!opening && symbol < DIVVY_SYMBOLS + DIVVY_SPARES)
		__atomic_store_n(&front_real[symbol], address, __ATOMIC_RELEASE);
	if (symbol >= DIVVY_SYMBOLS && handle != NULL)
		report_spare(symbol - DIVVY_SYMBOLS);
	return address;
}

/* Events that had to wait for an agent. */
static void report_late(void)
{
	for (unsigned i = 0; i < sizeof(unclassified) / sizeof(unclassified[0]); i++) {
		uint64_t late = __atomic_exchange_n(&unclassified[i], 0, __ATOMIC_RELAXED);

		for (; late != 0; late &= late - 1)
			front_event(DIVVY_EVENT_UNCLASSIFIED, 0, 0, front_spare_names[i * 64 + (unsigned)__builtin_ctzll(late)]);
	}
	if (__atomic_load_n(&cuda.event, __ATOMIC_ACQUIRE) != 0)
		front_event(cuda.event, 0, 0, cuda.reason);
}

int front_join(void)
{
	const char *socket = secure_getenv("DIVVY_SOCKET");
	struct front_image self = {.start = 0};
	int rc;

	if (__atomic_load_n(front_live, __ATOMIC_ACQUIRE))
		return 0;
	front_image_find(ehdr, &self);
	if (socket == NULL || socket[0] == 0)
		socket = access(FOLDER_SOCKET, F_OK) == 0 ? FOLDER_SOCKET : DEFAULT_SOCKET;
	rc = front_attach(socket, self.buildid);
	if (rc == 0)
		report_late();
	return rc;
}

CUresult front_ready(void)
{
	void *driver = library_open(&cuda);

	if (front_join() < 0 || driver == NULL)
		return CUDA_ERROR_SYSTEM_NOT_READY;
	return CUDA_SUCCESS;
}
