/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visible LIBRARY: the UUIDs of the GPUs that a CUDA program sees which has this
 * program's environment, one per line. Only the driver knows: the variable counts
 * in an order that is the driver's own, and leaves out what a control group bars.
 */
#include <stdio.h>

#include "driver.h"

int main(int argc, char **argv)
{
	struct driver driver;
	int count = 0, result;

	if (argc != 2) {
		fprintf(stderr, "usage: visible LIBRARY\n");
		return 2;
	}
	if (driver_open(&driver, argv[1]) < 0)
		return 1;
	result = (int)driver.init(0);
	if (result == CUDA_ERROR_NO_DEVICE)
		return 0;
	if (driver_check((CUresult)result, "cuInit") < 0 || driver_check(driver.device_count(&count), "cuDeviceGetCount") < 0)
		return 1;
	for (int i = 0; i < count; i++) {
		CUdevice device;
		CUuuid uuid;

		if (driver_check(driver.device_get(&device, i), "cuDeviceGet") < 0 ||
		    driver_check(driver.device_uuid(&uuid, device), "cuDeviceGetUuid") < 0)
			return 1;
		printf("GPU");
		for (int b = 0; b < 16; b++)
			printf(b == 0 || b == 4 || b == 6 || b == 8 || b == 10 ? "-%02x" : "%02x", (unsigned char)uuid.bytes[b]);
		printf("\n");
	}
	return 0;
}
