/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages the front takes, and which it leaves alone. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "check.h"
#include "page.h"

#define SEAL_FUTURE_WRITE 0x0010
#define CLIENT_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
#define LIMITS_SEALS (CLIENT_SEALS | SEAL_FUTURE_WRITE)

static const struct divvy_limits good_limits = {
	.magic = DIVVY_LIMITS_MAGIC,
	.version = DIVVY_WIRE_VERSION,
	.sizebytes = sizeof(struct divvy_limits),
	.cards = 1,
	.name = "share",
	.card = {{.limitbytes = 1}},
};

static const struct divvy_client good_client = {
	.magic = DIVVY_CLIENT_MAGIC,
	.version = DIVVY_WIRE_VERSION,
	.sizebytes = sizeof(struct divvy_client),
};

static int page(const void *content, size_t bytes, off_t length, int seals)
{
	int fd = (int)syscall(SYS_memfd_create, "page", 1u | 2u);

	CHECK(fd >= 0 && ftruncate(fd, length) == 0);
	CHECK(pwrite(fd, content, bytes, 0) == (ssize_t)bytes);
	CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static int map(off_t limitslength, int limitsseals, off_t clientlength, int clientseals)
{
	struct front_pages *pages = NULL;
	int limits = page(&good_limits, sizeof(good_limits), limitslength, limitsseals);
	int client = page(&good_client, sizeof(good_client), clientlength, clientseals);
	int rc = front_pages_map(limits, client, &pages);

	close(limits);
	close(client);
	if (rc == 0) {
		CHECK(pages->limits.cards == 1);
		pages->client.card[0].launches = 7; /* may be written */
		front_pages_unmap(pages);
	}
	return rc;
}

static void takes_what_the_agent_makes(void)
{
	CHECK(map(DIVVY_PAGE_BYTES, LIMITS_SEALS, DIVVY_PAGE_BYTES, CLIENT_SEALS) == 0);
}

static void wants_seals_and_sizes(void)
{
	CHECK(map(DIVVY_PAGE_BYTES, CLIENT_SEALS, DIVVY_PAGE_BYTES, CLIENT_SEALS) == -EPROTO);
	CHECK(map(DIVVY_PAGE_BYTES, LIMITS_SEALS & ~F_SEAL_SHRINK, DIVVY_PAGE_BYTES, CLIENT_SEALS) == -EPROTO);
	CHECK(map(DIVVY_PAGE_BYTES, LIMITS_SEALS, DIVVY_PAGE_BYTES, F_SEAL_SEAL) == -EPROTO);
	CHECK(map(DIVVY_PAGE_BYTES, LIMITS_SEALS, DIVVY_PAGE_BYTES * 2, CLIENT_SEALS) == -EPROTO);
	CHECK(map(2000, LIMITS_SEALS, DIVVY_PAGE_BYTES, CLIENT_SEALS) == -EPROTO);
}

static void wants_memory_and_not_other_files(void)
{
	struct front_pages *pages = NULL;
	int client = page(&good_client, sizeof(good_client), DIVVY_PAGE_BYTES, CLIENT_SEALS);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	CHECK(front_pages_map(null, client, &pages) == -EPROTO);
	CHECK(front_pages_map(-1, client, &pages) == -EBADF);
	CHECK(pages == NULL);
}

static void reads_limits(void)
{
	struct divvy_limits limits = good_limits;

	CHECK(front_limits_check(&limits) == 0);
	limits.magic++;
	CHECK(front_limits_check(&limits) == -EPROTO);
	limits = good_limits;
	limits.version++;
	CHECK(front_limits_check(&limits) == -EPROTO);
	limits = good_limits;
	limits.sizebytes--;
	CHECK(front_limits_check(&limits) == -EPROTO);
	limits = good_limits;
	limits.cards = 0;
	CHECK(front_limits_check(&limits) == -EPROTO);
	limits.cards = DIVVY_MAX_CARDS + 1;
	CHECK(front_limits_check(&limits) == -EPROTO);
	limits = good_limits;
	limits.card[0].limitbytes = 0;
	CHECK(front_limits_check(&limits) == -EPROTO);
	limits = good_limits;
	memset(limits.name, 'x', sizeof(limits.name));
	CHECK(front_limits_check(&limits) == -EPROTO);
}

static void reads_client(void)
{
	struct divvy_client client = good_client;

	CHECK(front_client_check(&client) == 0);
	client.magic = 0; /* a page with a hole punched in it */
	CHECK(front_client_check(&client) == -EPROTO);
	client = good_client;
	client.version = 0;
	CHECK(front_client_check(&client) == -EPROTO);
	client = good_client;
	client.sizebytes++;
	CHECK(front_client_check(&client) == -EPROTO);
}

/* Whatever bytes stand there: what is taken keeps what the front relies on. */
static void takes_no_noise(void)
{
	unsigned taken = 0;

	srandom(1);
	for (int round = 0; round < 200000; round++) {
		struct divvy_limits limits = good_limits;
		struct divvy_client client = good_client;

		for (long flips = random() % 3; flips-- > 0;) {
			((uint8_t *)&limits)[random() % 192] ^= (uint8_t)(1 << random() % 8);
			((uint8_t *)&client)[random() % 64] ^= (uint8_t)(1 << random() % 8);
		}
		if (front_limits_check(&limits) == 0) {
			taken++;
			CHECK(limits.magic == DIVVY_LIMITS_MAGIC && limits.version == DIVVY_WIRE_VERSION);
			CHECK(limits.cards >= 1 && limits.cards <= DIVVY_MAX_CARDS);
			CHECK(strnlen(limits.name, sizeof(limits.name)) < sizeof(limits.name));
			for (unsigned slot = 0; slot < limits.cards; slot++)
				CHECK(limits.card[slot].limitbytes != 0);
		}
		if (front_client_check(&client) == 0)
			CHECK(client.magic == DIVVY_CLIENT_MAGIC && client.version == DIVVY_WIRE_VERSION);
	}
	CHECK(taken > 1000 && taken < 199000);
}

static const struct scenario scenarios[] = {
	{"takes what the agent makes", takes_what_the_agent_makes},
	{"wants seals and sizes", wants_seals_and_sizes},
	{"wants memory and not other files", wants_memory_and_not_other_files},
	{"reads limits", reads_limits},
	{"reads client", reads_client},
	{"takes no noise", takes_no_noise},
};

RUN_SCENARIOS(scenarios)
