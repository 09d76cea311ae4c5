/* SPDX-License-Identifier: Apache-2.0 */
/* version.c: which PTX a driver reads, and which a card runs. */
#include "image.h"

unsigned int sd_ptx_read_by(int generation)
{
	/* 12.6 brought none, so that the versions of 12 are one behind from there on */
	unsigned int major = (unsigned int)generation / 1000;
	unsigned int minor = (unsigned int)generation % 1000 / 10;

	return (major - 4) * 10 + minor - (major == 12 && minor >= 6);
}

bool sd_ptx_fits(unsigned int target, char only, unsigned int capability)
{
	switch (only) {
	case 'a':
		return target == capability;
	case 'f':
		return target / 10 == capability / 10 && target <= capability;
	default:
		return target <= capability;
	}
}
