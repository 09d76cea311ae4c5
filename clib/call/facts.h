/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.h: what a worker tells of driver and GPUs in its WELCOME, behind the structure:
 * facts one after another, each with bytes that are padded to words. Unknown ones are
 * passed over.
 */
#ifndef CALL_FACTS_H
#define CALL_FACTS_H

#include <stdint.h>

enum call_fact {
	FACT_NAME = 1,   /* of a device: text, not terminated */
	FACT_UUID,       /* 16 bytes */
	FACT_PCI,        /* text: 0000:81:00.0 */
	FACT_MEMORY,     /* u64: what cuDeviceTotalMem_v2 says, in bytes */
	FACT_ATTRIBUTE,  /* key: CU_DEVICE_ATTRIBUTE_*; u64 */
	FACT_ERROR_NAME, /* key: a CUresult; text */
	FACT_ERROR_TEXT,
	FACT_NVML_ERROR, /* key: an nvmlReturn_t; text */
};

struct call_fact_header {
	uint32_t fact;
	uint32_t device;
	uint32_t key;
	uint32_t length; /* of the bytes that follow, at most FACT_BYTES */
};

#define FACT_BYTES 1024u

#endif
