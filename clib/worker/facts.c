/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c: what a program's library need not ask again. */
#include "facts.h"
#include "worker.h"

#include <stdio.h>

enum { ATTRIBUTES = 160, RESULTS = 1000, NVML_KNOWN = 40 };

static void add(struct worker_lane *lane, uint32_t fact, uint32_t device, uint32_t key, const void *bytes, size_t length)
{
	const struct call_fact_header header = { .fact = fact, .device = device, .key = key, .length = (uint32_t)length };
	uint8_t both[sizeof(header) + FACT_BYTES + 8];

	if (length > FACT_BYTES)
		return;
	memset(both, 0, sizeof(both));
	memcpy(both, &header, sizeof(header));
	memcpy(both + sizeof(header), bytes, length);
	/* facts have lengths of their own: the reply's is overwritten by them */
	size_t start = lane->reply.length;
	uint8_t *at = worker_add_room(lane, sizeof(header) + call_padded(length) - sizeof(uint64_t));

	if (at) {
		memcpy(lane->reply.at + start, both, sizeof(header) + call_padded(length));
		lane->reply.length = start + sizeof(header) + call_padded(length);
	}
}

static void add_word(struct worker_lane *lane, uint32_t fact, uint32_t device, uint32_t key, uint64_t word)
{
	add(lane, fact, device, key, &word, sizeof(word));
}

static void add_text(struct worker_lane *lane, uint32_t fact, uint32_t device, uint32_t key, const char *text)
{
	size_t length = strlen(text);

	add(lane, fact, device, key, text, length < FACT_BYTES ? length : FACT_BYTES);
}

static void add_device(struct worker_lane *lane, CUdevice device)
{
	uint32_t index = (uint32_t)device;
	char text[256] = "";
	CUuuid uuid;
	size_t memory = 0;

	if (DRIVER(cuDeviceGetName)(text, sizeof(text), device) == CUDA_SUCCESS)
		add_text(lane, FACT_NAME, index, 0, text);
	if (DRIVER(cuDeviceGetUuid)(&uuid, device) == CUDA_SUCCESS)
		add(lane, FACT_UUID, index, 0, &uuid, sizeof(uuid));
	if (DRIVER(cuDeviceGetPCIBusId)(text, sizeof(text), device) == CUDA_SUCCESS)
		add_text(lane, FACT_PCI, index, 0, text);
	if (DRIVER(cuDeviceTotalMem_v2)(&memory, device) == CUDA_SUCCESS)
		add_word(lane, FACT_MEMORY, index, 0, memory);
	for (int i = 1; i < ATTRIBUTES; i++) {
		int value = 0;
		CUresult result = DRIVER(cuDeviceGetAttribute)(&value, (CUdevice_attribute)i, device);

		/* the least integer says that there is no such attribute */
		add_word(lane, FACT_ATTRIBUTE, index, (uint32_t)i, (uint32_t)(result == CUDA_SUCCESS ? value : INT32_MIN));
	}
}

void worker_facts(struct worker_lane *lane)
{
	int version = 0, devices = 0;
	const char *text;

	DRIVER(cuDriverGetVersion)(&version);
	DRIVER(cuDeviceGetCount)(&devices);
	const struct divvy_remote_welcome welcome = {
		.magic = DIVVY_REMOTE_MAGIC,
		.version = DIVVY_REMOTE_VERSION,
		.driverversion = (uint32_t)version,
		.operations = CALL_NUMBERS,
		.devices = (uint32_t)devices,
	};

	worker_begin(lane, 0);
	lane->reply.length -= sizeof(uint64_t); /* no result */
	size_t start = lane->reply.length;

	worker_add_room(lane, sizeof(welcome));
	memcpy(lane->reply.at + start, &welcome, sizeof(welcome));
	lane->reply.length = start + sizeof(welcome);
	for (CUdevice device = 0; device < devices; device++)
		add_device(lane, device);
	for (unsigned int i = 0; i < RESULTS; i++) {
		if (DRIVER(cuGetErrorName)((CUresult)i, &text) == CUDA_SUCCESS && text)
			add_text(lane, FACT_ERROR_NAME, 0, i, text);
		if (DRIVER(cuGetErrorString)((CUresult)i, &text) == CUDA_SUCCESS && text)
			add_text(lane, FACT_ERROR_TEXT, 0, i, text);
		bool known = i <= NVML_KNOWN || i == NVML_ERROR_UNKNOWN; /* the others have its text */

		text = known && DRIVER(nvmlErrorString) ? DRIVER(nvmlErrorString)((nvmlReturn_t)i) : NULL;
		if (text)
			add_text(lane, FACT_NVML_ERROR, 0, i, text);
	}
}
