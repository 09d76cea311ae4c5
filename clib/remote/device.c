/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c: cuInit, and the questions about a GPU that the facts answer. What
 * CUDA_VISIBLE_DEVICES hides is hidden here: the worker has a variable of its own.
 */
#include "remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { MOST_DIGITS = 9 };

static unsigned int visible; /* how many of the run's GPUs the program sees: all, or none */

static void uuid_text(const uint8_t uuid[16], char text[41])
{
	char *at = text + sprintf(text, "GPU-");

	for (int i = 0; i < 16; i++)
		at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
}

/* Does an entry of the list name the run's GPU? */
static bool names(const char *entry, size_t length)
{
	char text[41];
	unsigned long index = 0;

	uuid_text(remote_facts.device[0].uuid, text);
	if (length >= 4 && length < sizeof(text) && strncasecmp(entry, text, length) == 0)
		return true;
	for (size_t i = 0; i < length; i++) {
		if (entry[i] < '0' || entry[i] > '9' || i == MOST_DIGITS)
			return false;
		index = 10 * index + (unsigned long)(entry[i] - '0');
	}
	return length && index < remote_facts.devices;
}

/* A run has one GPU: the list names it first, or hides it. */
static unsigned int count_visible(const char *list)
{
	if (!list || !remote_facts.devices)
		return remote_facts.devices;
	while (*list == ' ')
		list++;
	return names(list, strcspn(list, ", ")) ? remote_facts.devices : 0;
}

EXPORT CUresult cuInit(unsigned int Flags)
{
	static uint32_t chosen;

	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = remote_open();

	if (result != CUDA_SUCCESS)
		return result;
	if (!__atomic_load_n(&chosen, __ATOMIC_ACQUIRE)) { /* the list is read once */
		visible = count_visible(getenv("CUDA_VISIBLE_DEVICES"));
		__atomic_store_n(&chosen, 1, __ATOMIC_RELEASE);
	}
	if (!visible)
		return CUDA_ERROR_NO_DEVICE;
	remote_initialized();
	return CUDA_SUCCESS;
}

static CUresult device_of(CUdevice dev, const struct remote_device **device)
{
	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (dev < 0 || (unsigned int)dev >= visible)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = &remote_facts.device[dev];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *driverVersion)
{
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = remote_open();

	*driverVersion = remote_facts.version;
	return result;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)visible;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (ordinal < 0 || (unsigned int)ordinal >= visible)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	const struct remote_device *device = NULL;
	CUresult result = device_of(dev, &device);

	if (result != CUDA_SUCCESS)
		return result;
	if (!name || len < 1)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)len, "%s", device->name);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	const struct remote_device *device = NULL;
	CUresult result = device_of(dev, &device);

	if (result != CUDA_SUCCESS)
		return result;
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(uuid, device->uuid, sizeof(device->uuid));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	return cuDeviceGetUuid(uuid, dev);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	const struct remote_device *device = NULL;
	CUresult result = device_of(dev, &device);

	if (result != CUDA_SUCCESS)
		return result;
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = device->memory;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	size_t all = 0;
	CUresult result = cuDeviceTotalMem_v2(&all, dev);

	if (result == CUDA_SUCCESS && !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*bytes = all > UINT32_MAX ? UINT32_MAX : (unsigned int)all;
	return result;
}

EXPORT CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	const struct remote_device *device = NULL;
	CUresult result = device_of(dev, &device);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pi || attrib < 1 || (unsigned int)attrib >= REMOTE_ATTRIBUTES || device->attribute[attrib] == INT32_MIN)
		return CUDA_ERROR_INVALID_VALUE;
	*pi = device->attribute[attrib];
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);

	return result ? result : cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
}

EXPORT CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
	const struct remote_device *device = NULL;
	CUresult result = device_of(dev, &device);

	if (result != CUDA_SUCCESS)
		return result;
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	const int *attribute = device->attribute;

	*prop = (CUdevprop){
		.maxThreadsPerBlock = attribute[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
		.maxThreadsDim = { attribute[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X], attribute[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y],
				   attribute[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z] },
		.maxGridSize = { attribute[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X], attribute[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y],
				 attribute[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z] },
		.sharedMemPerBlock = attribute[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK],
		.totalConstantMemory = attribute[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY],
		.SIMDWidth = attribute[CU_DEVICE_ATTRIBUTE_WARP_SIZE],
		.memPitch = attribute[CU_DEVICE_ATTRIBUTE_MAX_PITCH],
		.regsPerBlock = attribute[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK],
		.clockRate = attribute[CU_DEVICE_ATTRIBUTE_CLOCK_RATE],
		.textureAlign = attribute[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT],
	};
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	const struct remote_device *device = NULL;
	CUresult result = device_of(dev, &device);

	if (result != CUDA_SUCCESS)
		return result;
	if (!pciBusId || len < 1)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(pciBusId, (size_t)len, "%s", device->pci);
	return CUDA_SUCCESS;
}

/* "0000:81:00.0", also without the domain or the function. False: it is no such place. */
static bool read_pci(const char *text, unsigned int place[4])
{
	unsigned int numbers[4] = { 0 }, count = 0, colons = 0, digits = 0;

	for (;; text++) {
		int digit = *text >= '0' && *text <= '9' ? *text - '0' : (*text | 32) >= 'a' && (*text | 32) <= 'f' ? (*text | 32) - 'a' + 10 : -1;

		if (digit >= 0 && digits < 8) {
			numbers[count] = numbers[count] << 4 | (unsigned int)digit;
			digits++;
			continue;
		}
		if (!digits || (*text != ':' && *text != '.' && *text != '\0'))
			return false;
		colons += *text == ':';
		digits = 0;
		if (*text == '\0')
			break;
		if (++count == 4)
			return false;
	}
	if (colons < 1 || colons > 2)
		return false;
	unsigned int shift = 2 - colons; /* without a domain */

	memset(place, 0, 4 * sizeof(*place));
	for (unsigned int i = 0; i <= count && i + shift < 4; i++)
		place[i + shift] = numbers[i];
	return true;
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
	unsigned int want[4], have[4];

	if (!remote_is_open())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!dev || !pciBusId || !read_pci(pciBusId, want))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < visible; i++) {
		if (read_pci(remote_facts.device[i].pci, have) && memcmp(want, have, sizeof(have)) == 0) {
			*dev = (CUdevice)i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}
