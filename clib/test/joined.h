/* SPDX-License-Identifier: Apache-2.0 */
/* joined.h: a share of one card at an agent of the test's own, and charges to it. */
#ifndef DIVVY_TEST_JOINED_H
#define DIVVY_TEST_JOINED_H

#include "agent.h"
#include "check.h"
#include "ledger.h"

#define MIB (1ull << 20)
#define LIMIT (64 * MIB)

static char path[100];
static const uint8_t buildid[DIVVY_BUILD_ID_BYTES];

static inline void unlink_path(void)
{
	unlink(path);
}

static inline struct agent_share share_of(uint64_t limitbytes)
{
	const char *dir = getenv("TMPDIR");

	if (path[0] == 0)
		atexit(unlink_path);
	snprintf(path, sizeof(path), "%s/divvy-ledger-%d.sock", dir != NULL ? dir : "/tmp", (int)getpid());
	unlink_path(); /* of a process that had our number and failed */
	return (struct agent_share){.path = path, .limitbytes = limitbytes, .contextbytes = 4 * MIB};
}

static inline struct agent *agent_of(uint64_t limitbytes)
{
	struct agent_share share = share_of(limitbytes);

	return agent_start(&share);
}

static inline int charge(uint64_t bytes)
{
	return front_charge(0, bytes, "cuMemAlloc");
}

static inline uint64_t counter(struct agent *agent, size_t offset)
{
	return agent_counter(agent, 0, offset);
}

#define COUNTER(agent, name) counter(agent, offsetof(struct divvy_client_card, name))

#endif
