/* SPDX-License-Identifier: Apache-2.0 */
/*
 * system.c: start and end, versions, names of errors and processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned int started; /* changes under lock */

nvmlReturn_t nvml_ready(void)
{
	return atomic_load_explicit(&started, memory_order_acquire) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvml_error(long error)
{
	switch (-error) {
	case 0:
		return NVML_SUCCESS;
	case ENOMEM:
		return NVML_ERROR_MEMORY;
	case EINVAL:
		return NVML_ERROR_INVALID_ARGUMENT;
	case ENOENT:
		return NVML_ERROR_NOT_FOUND;
	case ELIBBAD:
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	case EMFILE:
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	case EPERM:
		return NVML_ERROR_UNINITIALIZED;
	case EBUSY:
		return NVML_ERROR_IN_USE;
	case ENOSPC:
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	case EOPNOTSUPP:
		return NVML_ERROR_NOT_SUPPORTED;
	case ENODEV:
		return NVML_ERROR_DRIVER_NOT_LOADED;
	case EIO:
		return NVML_ERROR_GPU_IS_LOST;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

nvmlReturn_t nvml_text(char *buffer, unsigned int room, const char *text)
{
	size_t length = strlen(text);

	if (!buffer)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (length >= room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(buffer, text, length + 1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	int result = 0;

	if (flags & ~(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH | NVML_INIT_FLAG_FORCE_INIT))
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	if (atomic_load(&started) == 0)
		result = sim_open(DIVVY_SIM_ROLE_OBSERVE);
	if (result == 0)
		atomic_fetch_add_explicit(&started, 1, memory_order_release);
	pthread_mutex_unlock(&lock);
	return nvml_error(result);
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t result = NVML_SUCCESS;

	pthread_mutex_lock(&lock);
	if (atomic_load(&started) == 0)
		result = NVML_ERROR_UNINITIALIZED;
	else if (atomic_fetch_sub_explicit(&started, 1, memory_order_release) == 1)
		sim_close_observer();
	pthread_mutex_unlock(&lock);
	return result;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	static const struct {
		nvmlReturn_t result;
		const char *text;
	} known[] = {
		{NVML_SUCCESS, "Success"},
		{NVML_ERROR_UNINITIALIZED, "Uninitialized"},
		{NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
		{NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
		{NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
		{NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized"},
		{NVML_ERROR_NOT_FOUND, "Not Found"},
		{NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
		{NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power"},
		{NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
		{NVML_ERROR_TIMEOUT, "Timeout"},
		{NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue"},
		{NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
		{NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
		{NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM"},
		{NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
		{NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
		{NVML_ERROR_OPERATING_SYSTEM, "The operating system has blocked the request"},
		{NVML_ERROR_LIB_RM_VERSION_MISMATCH, "RM has detected an NVML/RM version mismatch"},
		{NVML_ERROR_IN_USE, "In use by another client"},
		{NVML_ERROR_MEMORY, "Insufficient Memory"},
		{NVML_ERROR_NO_DATA, "No data"},
		{NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, "vGPU is not available because ECC is enabled"},
		{NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient Resources"},
		{NVML_ERROR_FREQ_NOT_SUPPORTED, "Frequency Not Supported"},
		{NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
		{NVML_ERROR_DEPRECATED, "The requested functionality has been deprecated"},
		{NVML_ERROR_NOT_READY, "The system is not ready for the request"},
		{NVML_ERROR_GPU_NOT_FOUND, "No GPUs were found"},
		{NVML_ERROR_INVALID_STATE, "Resource is not in a valid state"},
		{NVML_ERROR_RESET_TYPE_NOT_SUPPORTED, "Reset type not supported"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].result == result)
			return known[i].text;
	return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	nvmlReturn_t result = nvml_ready();

	return result ? result : nvml_text(version, length, sim_driver_version);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	char text[64];

	snprintf(text, sizeof(text), "%d.%s", sim_generation / 1000, sim_driver_version);
	return nvml_text(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
	if (!cudaDriverVersion)
		return NVML_ERROR_INVALID_ARGUMENT;
	*cudaDriverVersion = sim_generation;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
	return nvmlSystemGetCudaDriverVersion(cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *branchInfo, unsigned int length)
{
	nvmlReturn_t result = nvml_ready();
	char text[16];

	if (result)
		return result;
	if (!branchInfo)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (branchInfo->version != nvmlSystemDriverBranchInfo_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	snprintf(text, sizeof(text), "r%.3s_00", sim_driver_version);
	if (length > sizeof(branchInfo->branch))
		length = sizeof(branchInfo->branch);
	return nvml_text(branchInfo->branch, length, text);
}

/* The program's first argument as /proc tells it, or its short name. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	static const char *const files[] = {"cmdline", "comm"};
	nvmlReturn_t result = nvml_ready();
	char path[64];
	char text[4096];

	if (result)
		return result;
	if (!name || length == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), "/proc/%u/%s", pid, files[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return errno == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_NOT_FOUND;
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
		if (n < 0)
			return NVML_ERROR_NOT_FOUND;
		text[n] = 0;
		text[strcspn(text, "\n")] = 0;
		if (text[0])
			break;
	}
	snprintf(name, length, "%s", text);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *unitCount)
{
	nvmlReturn_t result = nvml_ready();

	if (result)
		return result;
	if (!unitCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	*unitCount = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *hwbcCount, nvmlHwbcEntry_t *hwbcEntries)
{
	(void)hwbcEntries;
	return nvmlUnitGetCount(hwbcCount);
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *deviceCount)
{
	if (!deviceCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	*deviceCount = 0;
	return NVML_SUCCESS;
}
