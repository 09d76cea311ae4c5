/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c: bounds on what processes may hold; see divvy_sim_limit.h.
 */
#include <errno.h>
#include <string.h>

#include "sim.h"

static int about_group(struct divvy_sim_header *header, const char *group)
{
	char path[DIVVY_SIM_PACKET_BYTES - sizeof(*header)];
	size_t length = strnlen(group, sizeof(path));

	if (length == 0 || length == sizeof(path))
		return -EINVAL;
	memcpy(path, group, length);
	header->payloadbytes = (uint32_t)length;
	return sim_request(header, path, sizeof(path), -1, NULL);
}

int sim_limit_set(uint32_t card, const char *group, uint64_t softbytes, uint64_t hardbytes)
{
	struct divvy_sim_header header = {
		.type = DIVVY_SIM_LIMIT_SET, .card = card, .bytes = hardbytes, .offset = softbytes,
	};

	return about_group(&header, group);
}

int sim_limit_get(uint32_t card, const char *group, uint64_t *softbytes, uint64_t *hardbytes, uint64_t *heldbytes)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_LIMIT_GET, .card = card};
	int result = about_group(&header, group);

	if (result == 0) {
		*softbytes = header.offset;
		*hardbytes = header.bytes;
		*heldbytes = header.object;
	}
	return result;
}

int sim_cap(uint32_t card, uint64_t bytes)
{
	struct divvy_sim_header header = {.type = DIVVY_SIM_CAP, .card = card, .bytes = bytes};

	return sim_request(&header, NULL, 0, -1, NULL);
}
