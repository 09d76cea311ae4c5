/* SPDX-License-Identifier: Apache-2.0 */
#include "page.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* from linux/fcntl.h, which clashes with fcntl.h, and newer than some libcs */
#define SEAL_SEAL 0x0001
#define SEAL_SHRINK 0x0002
#define SEAL_GROW 0x0004
#define SEAL_FUTURE_WRITE 0x0010
#define GET_SEALS (1024 + 10)

#define LIMITS_SEALS (SEAL_SEAL | SEAL_SHRINK | SEAL_GROW | SEAL_FUTURE_WRITE)
#define CLIENT_SEALS (SEAL_SEAL | SEAL_SHRINK | SEAL_GROW)

int front_limits_check(const struct divvy_limits *limits)
{
	uint32_t cards = __atomic_load_n(&limits->cards, __ATOMIC_RELAXED);

	if (limits->magic != DIVVY_LIMITS_MAGIC || limits->version != DIVVY_WIRE_VERSION ||
	    limits->sizebytes != sizeof(*limits))
		return -EPROTO;
	if (cards == 0 || cards > DIVVY_MAX_CARDS || memchr(limits->name, 0, sizeof(limits->name)) == NULL)
		return -EPROTO;
	for (uint32_t slot = 0; slot < cards; slot++) {
		if (limits->card[slot].limitbytes == 0)
			return -EPROTO;
	}
	return 0;
}

int front_client_check(const struct divvy_client *client)
{
	if (client->magic != DIVVY_CLIENT_MAGIC || client->version != DIVVY_WIRE_VERSION ||
	    client->sizebytes != sizeof(*client))
		return -EPROTO;
	return 0;
}

/*
 * A page that can shrink would kill us by SIGBUS, one that others can write
 * would not bind anybody. fstat itself is GLIBC_2.33 in newer libraries.
 */
static int descriptor_check(int fd, int seals)
{
	struct stat status;
	int have = fcntl(fd, GET_SEALS);

	if (have < 0)
		return errno == EINVAL ? -EPROTO : -errno;
	if ((have & seals) != seals)
		return -EPROTO;
	if (syscall(SYS_fstat, fd, &status) < 0)
		return -errno;
	return status.st_size == DIVVY_PAGE_BYTES ? 0 : -EPROTO;
}

int front_pages_map(int limitsfd, int clientfd, struct front_pages **pages)
{
	struct front_pages *mapped;
	int rc = descriptor_check(limitsfd, LIMITS_SEALS);

	if (rc == 0)
		rc = descriptor_check(clientfd, CLIENT_SEALS);
	if (rc < 0)
		return rc;
	mapped = mmap(NULL, sizeof(*mapped), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	if (mmap(&mapped->limits, DIVVY_PAGE_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, limitsfd, 0) == MAP_FAILED ||
	    mmap(&mapped->client, DIVVY_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, clientfd, 0) ==
		    MAP_FAILED) {
		rc = -errno;
		goto unmap;
	}
	rc = front_limits_check(&mapped->limits);
	if (rc == 0)
		rc = front_client_check(&mapped->client);
	if (rc < 0)
		goto unmap;
	*pages = mapped;
	return 0;
unmap:
	front_pages_unmap(mapped);
	return rc;
}

void front_pages_unmap(struct front_pages *pages)
{
	munmap(pages, sizeof(*pages));
}
