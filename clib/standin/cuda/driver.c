/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.c: the cards, the lock, the thread's record, the window of device
 * addresses.
 */
#include "driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/visible.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	unsigned int count;
	struct sd_card card[SD_MAX_CARDS];
	uint64_t window;
	uint64_t windowbytes;
	uint64_t arenabytes; /* of each card */
	uint64_t delta; /* alias - device address */
	struct sd_space space;
} driver;

static pthread_once_t keyonce = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int keyerror;
static __thread struct sd_thread *current __attribute__((tls_model("initial-exec")));

void sd_lock(void)
{
	pthread_mutex_lock(&lock);
}

void sd_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void sd_wait(pthread_cond_t *condition)
{
	pthread_cond_wait(condition, &lock);
}

void sd_wait_until(pthread_cond_t *condition, const struct timespec *until)
{
	(void)pthread_cond_timedwait(condition, &lock, until);
}

CUresult sd_error(int error)
{
	switch (error) {
	case 0:
		return CUDA_SUCCESS;
	case -ENOMEM:
	case -ENOBUFS:
	case -ENOSPC:
	case -EMFILE:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case -ENODEV:
		return CUDA_ERROR_NO_DEVICE;
	case -ELIBBAD:
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	case -EOWNERDEAD:
		return CUDA_ERROR_NOT_INITIALIZED;
	case -EIO:
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	case -ENOENT:
	case -EINVAL:
	case -EEXIST:
	case -EALREADY:
		return CUDA_ERROR_INVALID_VALUE;
	case -EBADF:
		return CUDA_ERROR_INVALID_HANDLE;
	case -EOPNOTSUPP:
		return CUDA_ERROR_NOT_SUPPORTED;
	case -EPERM:
	case -EACCES:
		return CUDA_ERROR_NOT_PERMITTED;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

/* One reservation without access for the addresses, one of the same layout for
 * the driver's own view of them. A process with little room for addresses (a
 * limit, a sanitizer) gets by with less. */
static int open_window(unsigned int cards)
{
	uint64_t arena = SD_ARENA_BYTES;
	uint64_t virtual = SD_VIRTUAL_BYTES;
	uint64_t bytes = 0;
	char *both = MAP_FAILED;

	for (; both == MAP_FAILED && arena >= SD_ARENA_LEAST; arena /= 2, virtual /= 4) {
		bytes = cards * arena + virtual;
		driver.arenabytes = arena;
		both = mmap(NULL, bytes * 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	}
	if (both == MAP_FAILED)
		return -ENOMEM;
	madvise(both, bytes * 2, MADV_DONTDUMP);
	/* the device half at 2 MiB boundaries, so that alignments of offsets are
	 * alignments of addresses; the reservation's last step stays unused */
	uint64_t start = ((uint64_t)(uintptr_t)both + SD_STEP - 1) & ~(SD_STEP - 1);
	uint64_t rest = start + cards * driver.arenabytes;

	driver.window = start;
	driver.windowbytes = bytes - SD_STEP;
	driver.delta = driver.windowbytes;
	for (unsigned int i = 0; i < cards; i++)
		driver.card[i].arena = start + i * driver.arenabytes;
	int result = sd_space_open(&driver.space, rest, driver.windowbytes - (rest - start));

	if (result < 0)
		munmap(both, bytes * 2);
	return result;
}

/* of a card, or of a MIG device, which this process has open and so stays what it is */
static const struct divvy_sim_card *facts_of(uint32_t index, unsigned int cards)
{
	struct divvy_sim_card now;

	if (index < cards)
		return sim_card_facts(index);
	return sim_card(index, &now) == 0 ? sim_mig_facts(index, now.uuid) : NULL;
}

CUresult sd_driver_open(void)
{
	int result = sim_open(DIVVY_SIM_ROLE_COMPUTE);

	if (result < 0)
		return sd_error(result);
	int cards = sim_cards();

	if (cards < 0)
		return sd_error(cards);
	driver.count = 0;
	uint32_t visible[SD_MAX_CARDS];
	unsigned int count = sd_visible((unsigned int)cards, visible, SD_MAX_CARDS);

	for (unsigned int i = 0; i < count; i++) {
		struct sd_card *card = &driver.card[driver.count];

		*card = (struct sd_card){ .index = visible[i], .ordinal = (CUdevice)driver.count };
		card->facts = facts_of(visible[i], (unsigned int)cards);
		if (card->facts)
			driver.count++;
	}
	if (!driver.count)
		return CUDA_ERROR_NO_DEVICE;
	result = open_window(driver.count);
	if (result < 0)
		return sd_error(result);
	return CUDA_SUCCESS;
}

static void thread_ends(void *record)
{
	struct sd_thread *thread = record;

	free(thread->stack);
	free(thread->streamof);
	free(thread->streams);
	free(thread);
	current = NULL;
}

static void make_key(void)
{
	keyerror = pthread_key_create(&key, thread_ends);
}

bool sd_worker(void)
{
	return current && current->worker;
}

struct sd_thread *sd_thread(void)
{
	if (current)
		return current;
	pthread_once(&keyonce, make_key);
	struct sd_thread *thread = calloc(1, sizeof(*thread));

	if (!thread)
		return NULL;
	/* without a key the record stays when the thread ends: a leak, no harm */
	if (keyerror == 0)
		pthread_setspecific(key, thread);
	current = thread;
	return thread;
}

unsigned int sd_card_count(void)
{
	return driver.count;
}

struct sd_card *sd_card(CUdevice ordinal)
{
	return ordinal >= 0 && (unsigned int)ordinal < driver.count ? &driver.card[ordinal] : NULL;
}

struct sd_card *sd_card_by_index(uint32_t index)
{
	for (unsigned int i = 0; i < driver.count; i++) {
		if (driver.card[i].index == index)
			return &driver.card[i];
	}
	return NULL;
}

int sd_card_arena(struct sd_card *card)
{
	uint64_t bytes = 0;
	int fd = -1;

	if (card->arenaopen)
		return 0;
	int result = sim_arena(card->index, driver.arenabytes, &fd, &bytes);

	if (result < 0)
		return result;
	if (bytes > driver.arenabytes)
		bytes = driver.arenabytes;
	void *view = mmap(sd_alias(card->arena), bytes, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0);

	if (view == MAP_FAILED)
		result = -errno;
	else
		result = sd_space_open(&card->space, card->arena, bytes);
	close(fd);
	if (result < 0)
		return result;
	madvise(view, bytes, MADV_DONTDUMP);
	card->arenaopen = true;
	return 0;
}

int sd_map_again(uint64_t from, uint64_t bytes, void *place)
{
	/* a length of 0 leaves the old mapping of shared memory where it is */
	void *mapped = mremap(sd_alias(from), 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);

	return mapped == MAP_FAILED ? -errno : 0;
}

void sd_unmap(void *place, uint64_t bytes)
{
	mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

int sd_punch(uint64_t address, uint64_t bytes)
{
	return madvise(sd_alias(address), bytes, MADV_REMOVE) < 0 ? -errno : 0;
}

int sd_device_generation(void)
{
	return sim_generation;
}

bool sd_in_window(uint64_t address)
{
	return address - driver.window < driver.windowbytes;
}

unsigned char *sd_alias(uint64_t address)
{
	return (unsigned char *)(uintptr_t)(address + driver.delta);
}

struct sd_space *sd_virtual_space(void)
{
	return &driver.space;
}

CUresult sd_charge(struct sd_card *card, uint32_t kind, uint64_t bytes)
{
	return sd_error(sim_charge(card->index, kind, bytes));
}

void sd_release(struct sd_card *card, uint32_t kind, uint64_t bytes)
{
	/* a simulator that is gone has freed it already */
	(void)sim_release(card->index, kind, bytes);
}

CUresult sd_adjust(struct sd_card *card, uint32_t kind, int64_t bytes)
{
	return bytes ? sd_error(sim_adjust(card->index, kind, bytes)) : CUDA_SUCCESS;
}
