/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that answers what the package asks, with fixed figures: two cards,
 * the first with processes of each kind. FAKE_NVML_BREAK in the environment
 * names a question that it fails to answer; with FAKE_NVML_UNIFIED the second
 * card's memory is the host's. Waiting for events ends at once:
 * FAKE_NVML_EVENTS says with which result, and of which type the event is. Each time
 * that samples of processes are asked for there is one more, up to FAKE_NVML_SAMPLES.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int result;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process;
typedef struct {
	char legacy[16];
	unsigned domain, bus, device, pcidevice, pcisubsystem;
	char address[32];
} pci;

typedef struct { void *device; unsigned long long type, data; unsigned instance, compute; } event;

typedef struct { unsigned pid; unsigned long long time; unsigned sm, memory, encoder, decoder; } sample;

static int cards[2];

static result broken(const char *question)
{
	const char *name = getenv("FAKE_NVML_BREAK");

	return name != NULL && strcmp(name, question) == 0 ? 999 : 0;
}

result nvmlInit_v2(void) { return broken("init"); }
result nvmlShutdown(void) { return 0; }

result nvmlSystemGetDriverVersion(char *text, unsigned size)
{
	snprintf(text, size, "535.104.05");
	return broken("version");
}

result nvmlDeviceGetCount_v2(unsigned *count)
{
	*count = 2;
	return 0;
}

result nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = &cards[index];
	return 0;
}

result nvmlDeviceGetProcessUtilization(void *device, sample *samples, unsigned *count, unsigned long long since)
{
	static unsigned there = 1;
	const char *most = getenv("FAKE_NVML_SAMPLES");
	unsigned room = *count;

	(void)device;
	if (samples != NULL && most != NULL && there < (unsigned)atoi(most))
		there++;
	*count = there;
	if (samples == NULL || room < there)
		return 7; /* insufficient size */
	for (unsigned i = 0; i < there; i++)
		samples[i] = (sample){ .pid = 100 + i, .time = since + 1, .sm = 10 };
	return 0;
}

result nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{
	snprintf(text, size, "GPU-00010203-0405-0607-0809-0a0b0c0d0e%02x", device == &cards[0] ? 15 : 16);
	return 0;
}

result nvmlDeviceGetName(void *device, char *text, unsigned size)
{
	snprintf(text, size, device == &cards[0] ? "H100" : "L4 (simulated)");
	return 0;
}

result nvmlDeviceGetArchitecture(void *device, unsigned *architecture)
{
	*architecture = device == &cards[0] ? 9 : 8;
	return 0;
}

result nvmlDeviceGetMemoryAffinity(void *device, unsigned words, unsigned long *nodes, unsigned scope)
{
	if (device != &cards[0] || scope != 0)
		return 3; /* not supported */
	memset(nodes, 0, words * sizeof(*nodes));
	nodes[1] = 1;
	return 0;
}

result nvmlDeviceGetPciInfo_v3(void *device, pci *info)
{
	memset(info, 0, sizeof(*info));
	info->bus = device == &cards[0] ? 0x3b : 0x5e;
	return 0;
}

result nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *info)
{
	if (device != &cards[0])
		return 3; /* not supported: an older driver */
	info->total = 1000;
	info->reserved = 100;
	info->used = 700;
	return broken("memory");
}

result nvmlDeviceGetMemoryInfo(void *device, memory *info)
{
	if (device == &cards[1] && getenv("FAKE_NVML_UNIFIED"))
		return 3; /* its memory is the host's */
	info->total = 500;
	info->used = 20;
	return broken("memory");
}

result nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *list)
{
	if (broken("processes"))
		return broken("processes");
	if (device != &cards[0]) {
		*count = 0;
		return 0;
	}
	if (*count < 2) {
		*count = 2;
		return 7; /* insufficient size */
	}
	*count = 2;
	list[0] = (process){.pid = 10, .used = 300};
	list[1] = (process){.pid = 11, .used = ~0ull};
	return 0;
}

result nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, process *list)
{
	if (device != &cards[0])
		return 3;
	if (*count < 2) {
		*count = 2;
		return 7;
	}
	*count = 2;
	list[0] = (process){.pid = 10, .used = 300};
	list[1] = (process){.pid = 12, .used = 50};
	return 0;
}

/* What a card tells of itself: the first is hot and has MIG on, the second's driver is old. */

typedef struct { unsigned gpu, memory; } rates;

result nvmlDeviceGetUtilizationRates(void *device, rates *answer)
{
	answer->gpu = 75;
	return device == &cards[0] ? 0 : 3;
}

result nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
	*milliwatts = 312500;
	return device == &cards[0] ? 0 : 3;
}

result nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees)
{
	(void)sensor;
	*degrees = 81;
	return device == &cards[0] ? 0 : 3;
}

result nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count)
{
	(void)counter;
	*count = kind == 0 ? 4 : 0;
	return device == &cards[0] ? 0 : 3;
}

result nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
	*reasons = device == &cards[0] ? 64 | 4 : 0;
	return 0;
}

result nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
	*current = *pending = 1;
	return device == &cards[0] ? 0 : 3;
}

result nvmlDeviceGetComputeMode(void *device, int *mode)
{
	*mode = device == &cards[0] ? 0 : 3; /* the second is for one process */
	return 0;
}

result nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count)
{
	(void)device;
	*count = 7;
	return 0;
}

result nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance)
{
	*instance = &cards[1]; /* one instance; it answers as the second card does */
	return device == &cards[0] && index == 2 ? 0 : 6;
}

result nvmlDeviceGetGpuInstanceId(void *instance, unsigned *id)
{
	*id = 3;
	return instance == &cards[1] ? 0 : 2;
}

result nvmlDeviceGetComputeInstanceId(void *instance, unsigned *id)
{
	*id = 1;
	return instance == &cards[1] ? 0 : 2;
}

/* Two lanes lead from card to card, a third to what is no card. */
result nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
	(void)device;
	*active = link < 3;
	return link < 4 ? 0 : 2;
}

result nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, pci *info)
{
	memset(info, 0, sizeof(*info));
	info->bus = link == 2 ? 0x99 : device == &cards[0] ? 0x5e : 0x3b;
	return 0;
}

result nvmlDeviceGetNvLinkRemotePciInfo(void *device, unsigned link, pci *info)
{
	return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, info);
}

result nvmlEventSetCreate(void **set)
{
	*set = cards;
	return 0;
}

result nvmlEventSetFree(void *set)
{
	(void)set;
	return 0;
}

result nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
	(void)device, (void)types, (void)set;
	return 0;
}

result nvmlEventSetWait_v2(void *set, event *told, unsigned milliseconds)
{
	const char *answer = getenv("FAKE_NVML_EVENTS");
	int with = 999;

	(void)set, (void)milliseconds;
	*told = (event){.device = &cards[0], .data = 79};
	if (answer != NULL)
		sscanf(answer, "%d %llu", &with, &told->type);
	return with;
}

result nvmlEventSetWait(void *set, event *told, unsigned milliseconds)
{
	return nvmlEventSetWait_v2(set, told, milliseconds);
}
