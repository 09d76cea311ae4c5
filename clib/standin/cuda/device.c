/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: which cards there are and what they are called. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enter.h"
#include "image/registers.h"

CUresult cuDriverGetVersion(int *driverVersion)
{
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = sd_device_generation();
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!count)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*count = (int)sd_card_count();
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!device)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (!sd_card(ordinal))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	*device = ordinal;
	return sd_leave(CUDA_SUCCESS);
}

/* The card, with the lock taken; unlocked unless it is there. */
static CUresult enter(CUdevice device, const void *out, const struct divvy_sim_card **facts)
{
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!sd_card(device))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!out)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*facts = sd_card(device)->facts;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(dev, name, &facts);

	if (result != CUDA_SUCCESS)
		return result;
	if (len < 1)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	snprintf(name, (size_t)len, "%s", facts->name);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(dev, uuid, &facts);

	if (result != CUDA_SUCCESS)
		return result;
	memcpy(uuid->bytes, facts->uuid, sizeof(uuid->bytes));
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	return cuDeviceGetUuid_v2(uuid, dev);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(dev, bytes, &facts);

	if (result != CUDA_SUCCESS)
		return result;
	*bytes = facts->usablebytes;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(dev, major, &facts);

	if (result != CUDA_SUCCESS)
		return result;
	if (!minor)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*major = (int)facts->major;
	*minor = (int)facts->minorcc;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(dev, prop, &facts);

	if (result != CUDA_SUCCESS)
		return result;
	*prop = (CUdevprop){
		.maxThreadsPerBlock = 1024,
		.maxThreadsDim = { 1024, 1024, 64 },
		.maxGridSize = { 0x7fffffff, 65535, 65535 },
		.sharedMemPerBlock = 49152,
		.totalConstantMemory = 65536,
		.SIMDWidth = 32,
		.memPitch = 0x7fffffff,
		.regsPerBlock = SD_BLOCK_REGISTERS,
		.clockRate = (int)facts->smclockmhz * 1000,
		.textureAlign = 512,
	};
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(dev, pciBusId, &facts);

	if (result != CUDA_SUCCESS)
		return result;
	if (len < 13)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	snprintf(pciBusId, (size_t)len, "%04x:%02x:%02x.0", facts->pcidomain, facts->pcibus, facts->pcidevice);
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
	unsigned int domain = 0;
	unsigned int bus = 0;
	unsigned int device = 0;
	CUresult result = sd_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!dev || !pciBusId)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &device) != 3) {
		domain = 0;
		if (sscanf(pciBusId, "%x:%x", &bus, &device) != 2)
			return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	for (unsigned int i = 0; i < sd_card_count(); i++) {
		const struct divvy_sim_card *facts = sd_card((CUdevice)i)->facts;

		if (facts->pcidomain == domain && facts->pcibus == bus && facts->pcidevice == device) {
			*dev = (CUdevice)i;
			return sd_leave(CUDA_SUCCESS);
		}
	}
	return sd_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(dev, luid, &facts);

	(void)deviceNodeMask;
	/* LUIDs are a matter of another operating system */
	return result == CUDA_SUCCESS ? sd_leave(CUDA_ERROR_NOT_SUPPORTED) : result;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, CUarray_format format, unsigned int numChannels,
					    CUdevice dev)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(dev, maxWidthInElements, &facts);

	(void)format;
	if (result != CUDA_SUCCESS)
		return result;
	if (numChannels != 1 && numChannels != 2 && numChannels != 4)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*maxWidthInElements = 1 << 28;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(dev, pi, &facts);

	if (result != CUDA_SUCCESS)
		return result;
	if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	*pi = 0; /* it takes MPS */
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(dev, canAccessPeer, &facts);

	if (result != CUDA_SUCCESS)
		return result;
	if (!sd_card(peerDev))
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	*canAccessPeer = dev != peerDev;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice)
{
	const struct divvy_sim_card *facts = NULL;
	CUresult result = enter(srcDevice, value, &facts);

	if (result != CUDA_SUCCESS)
		return result;
	if (!sd_card(dstDevice) || srcDevice == dstDevice)
		return sd_leave(CUDA_ERROR_INVALID_DEVICE);
	switch (attrib) {
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
		*value = 1;
		break;
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_ACCESS_SUPPORTED:
		*value = 0;
		break;
	default:
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return sd_leave(CUDA_SUCCESS);
}

/* Both directions of access between two cards are always possible; a context
 * has to say that it wants it, as on hardware. */
CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_context *peer = sd_context_get(peerContext);

	if (!peer || peer == context)
		return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (Flags)
		return sd_leave(CUDA_ERROR_INVALID_VALUE);
	if (peer->card == context->card)
		return sd_leave(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	uint64_t bit = 1ull << peer->card->ordinal;

	if (context->peers & bit)
		return sd_leave(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	context->peers |= bit;
	return sd_leave(CUDA_SUCCESS);
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
	struct sd_context *context = NULL;
	CUresult result = sd_enter_context(&context);

	if (result != CUDA_SUCCESS)
		return result;
	const struct sd_context *peer = sd_context_get(peerContext);

	if (!peer)
		return sd_leave(CUDA_ERROR_INVALID_CONTEXT);
	uint64_t bit = 1ull << peer->card->ordinal;

	if (!(context->peers & bit))
		return sd_leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	context->peers &= ~bit;
	return sd_leave(CUDA_SUCCESS);
}
