/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.c: how cards are connected with each other and with processors.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "nvml.h"

static nvmlReturn_t seat(nvmlDevice_t device, const struct divvy_sim_card **card, struct divvy_sim_topology *out)
{
	nvmlReturn_t result = nvml_card(device, card);

	return result ? result : nvml_error(sim_topology((*card)->parent, out));
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuTopologyLevel_t *pathInfo)
{
	const struct divvy_sim_card *a;
	const struct divvy_sim_card *b;
	struct divvy_sim_topology topology;
	nvmlReturn_t result = seat(device1, &a, &topology);

	if (!result)
		result = nvml_card(device2, &b);
	if (result)
		return result;
	if (!pathInfo || a->parent == b->parent)
		return NVML_ERROR_INVALID_ARGUMENT;
	*pathInfo = (nvmlGpuTopologyLevel_t)topology.ancestors[b->parent];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level, unsigned int *count,
					      nvmlDevice_t *deviceArray)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_topology topology;
	nvmlReturn_t result = seat(device, &card, &topology);
	unsigned int found = 0;

	if (result)
		return result;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < (uint32_t)sim_cards() && i < sizeof(topology.ancestors); i++) {
		if (i == card->parent || topology.ancestors[i] != (uint8_t)level)
			continue;
		if (deviceArray && found < *count)
			deviceArray[found].handle = (void *)sim_card_facts(i);
		found++;
	}
	if (!deviceArray || found < *count)
		*count = found;
	return NVML_SUCCESS;
}

/* Links to the same switch, or to each other. */
static bool linked(const struct divvy_sim_topology *topology, uint32_t to)
{
	for (uint32_t i = 0; i < topology->links; i++)
		if (topology->peers[i] == to || topology->peers[i] == DIVVY_SIM_LINK_SWITCH)
			return true;
	return false;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuP2PCapsIndex_t p2pIndex,
				    nvmlGpuP2PStatus_t *p2pStatus)
{
	const struct divvy_sim_card *a;
	const struct divvy_sim_card *b;
	struct divvy_sim_topology topology;
	nvmlReturn_t result = seat(device1, &a, &topology);

	if (!result)
		result = nvml_card(device2, &b);
	if (result)
		return result;
	if (!p2pStatus || a->parent == b->parent || p2pIndex >= NVML_P2P_CAPS_INDEX_UNKNOWN)
		return NVML_ERROR_INVALID_ARGUMENT;
	/* over PCIe, as cuDeviceCanAccessPeer says; atomics take NVLink */
	bool needslink = p2pIndex == NVML_P2P_CAPS_INDEX_NVLINK || p2pIndex == NVML_P2P_CAPS_INDEX_ATOMICS;

	*p2pStatus = needslink && !linked(&topology, b->parent) ? NVML_P2P_STATUS_NOT_SUPPORTED : NVML_P2P_STATUS_OK;
	return NVML_SUCCESS;
}

/* Cards whose links are not connected have none, as far as NVML says. */
static nvmlReturn_t find_link(nvmlDevice_t device, unsigned int link, struct divvy_sim_topology *topology)
{
	const struct divvy_sim_card *card;
	nvmlReturn_t result = seat(device, &card, topology);

	if (result)
		return result;
	if (link >= NVML_NVLINK_MAX_LINKS)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (topology->links == 0 || nvml_is_device(card))
		return NVML_ERROR_NOT_SUPPORTED;
	return link < topology->links ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *isActive)
{
	struct divvy_sim_topology topology;
	nvmlReturn_t result = find_link(device, link, &topology);

	if (result)
		return result;
	if (!isActive)
		return NVML_ERROR_INVALID_ARGUMENT;
	*isActive = NVML_FEATURE_ENABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
	struct divvy_sim_topology topology;
	nvmlReturn_t result = find_link(device, link, &topology);

	if (result)
		return result;
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = topology.linkversion;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, nvmlNvLinkCapability_t capability,
					   unsigned int *capResult)
{
	struct divvy_sim_topology topology;
	nvmlReturn_t result = find_link(device, link, &topology);

	if (result)
		return result;
	if (!capResult || capability >= NVML_NVLINK_CAP_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*capResult = capability == NVML_NVLINK_CAP_P2P_SUPPORTED || capability == NVML_NVLINK_CAP_P2P_ATOMICS ||
		     capability == NVML_NVLINK_CAP_VALID;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *pNvLinkDeviceType)
{
	struct divvy_sim_topology topology;
	nvmlReturn_t result = find_link(device, link, &topology);

	if (result)
		return result;
	if (!pNvLinkDeviceType)
		return NVML_ERROR_INVALID_ARGUMENT;
	*pNvLinkDeviceType = topology.peers[link] == DIVVY_SIM_LINK_SWITCH ? NVML_NVLINK_DEVICE_TYPE_SWITCH :
									       NVML_NVLINK_DEVICE_TYPE_GPU;
	return NVML_SUCCESS;
}

/* The links lead to four switches in turn, on a bus that no card is on. */
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
	struct divvy_sim_topology topology;
	nvmlReturn_t result = find_link(device, link, &topology);

	if (result)
		return result;
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (topology.peers[link] != DIVVY_SIM_LINK_SWITCH)
		return nvmlDeviceGetPciInfo_v3((nvmlDevice_t){.handle = (void *)sim_card_facts(topology.peers[link])}, pci);
	memset(pci, 0, sizeof(*pci));
	pci->bus = 3 + link % 4;
	pci->pciDeviceId = 0x22a3u << 16 | 0x10deu;
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", pci->bus & 0xff);
	snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus & 0xff);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
	nvmlPciInfo_t whole;
	nvmlReturn_t result = nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &whole);

	if (result)
		return result;
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	memcpy(pci, &whole, offsetof(nvmlPciInfo_t, busId));
	return NVML_SUCCESS;
}

static void set_bit(unsigned long *set, unsigned int words, unsigned int bit)
{
	if (bit / (8 * sizeof(*set)) < words)
		set[bit / (8 * sizeof(*set))] |= 1ul << bit % (8 * sizeof(*set));
}

/* The processors of the card's node; without nodes, all that this process may use. */
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize, unsigned long *cpuSet)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_topology topology;
	nvmlReturn_t result = seat(device, &card, &topology);
	cpu_set_t all;

	if (result)
		return result;
	if (!cpuSet || !cpuSetSize)
		return NVML_ERROR_INVALID_ARGUMENT;
	CPU_ZERO(&all);
	if (!topology.cpus && sched_getaffinity(0, sizeof(all), &all) != 0)
		return NVML_ERROR_UNKNOWN;
	memset(cpuSet, 0, cpuSetSize * sizeof(*cpuSet));
	for (unsigned int i = 0; !topology.cpus && i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all))
			set_bit(cpuSet, cpuSetSize, i);
	for (unsigned int i = 0; i < topology.cpus; i++)
		set_bit(cpuSet, cpuSetSize, topology.firstcpu + i);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int cpuSetSize, unsigned long *cpuSet,
						 nvmlAffinityScope_t scope)
{
	if (scope > NVML_AFFINITY_SCOPE_SOCKET)
		return nvml_ready() ? NVML_ERROR_UNINITIALIZED : NVML_ERROR_INVALID_ARGUMENT;
	return nvmlDeviceGetCpuAffinity(device, cpuSetSize, cpuSet);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int nodeSetSize, unsigned long *nodeSet,
					 nvmlAffinityScope_t scope)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_topology topology;
	nvmlReturn_t result = seat(device, &card, &topology);

	if (result)
		return result;
	if (!nodeSet || !nodeSetSize || scope > NVML_AFFINITY_SCOPE_SOCKET)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(nodeSet, 0, nodeSetSize * sizeof(*nodeSet));
	set_bit(nodeSet, nodeSetSize, topology.node);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
	const struct divvy_sim_card *card;
	struct divvy_sim_topology topology;
	nvmlReturn_t result = seat(device, &card, &topology);

	(void)node;
	/* a node of the card's own memory: only coherent ones have that */
	return result ? result : NVML_ERROR_NOT_SUPPORTED;
}
