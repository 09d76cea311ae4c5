/* SPDX-License-Identifier: Apache-2.0 */
#include "registers.h"

enum {
	WARP = 32,
	UNIT = 256,            /* of a warp's registers */
	PARTS = 4,             /* of a multiprocessor, each with its own registers */
	MOST = 255,            /* of a thread */
	LEAST = 24,            /* that a limit can ask for */
	RESIDENT_WARPS = 64,   /* of a multiprocessor, at most */
};

static uint32_t up(uint32_t count, uint32_t unit)
{
	return (count + unit - 1) / unit * unit;
}

uint32_t sd_registers_warps(uint32_t registers, uint32_t perthread)
{
	uint32_t each = up(perthread ? perthread * WARP : 1, UNIT);

	return registers / PARTS / each * PARTS;
}

uint32_t sd_registers_threads(uint32_t perthread)
{
	uint32_t threads = sd_registers_warps(SD_BLOCK_REGISTERS, perthread) * WARP;

	return threads < SD_BLOCK_THREADS ? threads : SD_BLOCK_THREADS;
}

/* Most registers of a thread with which so many warps fit. */
static uint32_t most_for(uint32_t warps)
{
	uint32_t most = SD_BLOCK_REGISTERS / up(warps, PARTS) / UNIT * (UNIT / WARP);

	return most < MOST ? most : MOST;
}

static uint32_t warps_of(uint64_t threads)
{
	return (uint32_t)((threads < SD_BLOCK_THREADS ? threads : SD_BLOCK_THREADS) + WARP - 1) / WARP;
}

uint32_t sd_registers_given(const struct ptx_function *kernel, uint32_t needed, const struct sd_register_wish *wish)
{
	const uint32_t *block = kernel->reqntid[0] ? kernel->reqntid : kernel->maxntid;
	uint32_t warps = warps_of((uint64_t)block[0] * block[1] * block[2]);
	uint32_t most = MOST;

	if (warps) {
		/* more blocks than can be there at once are no promise */
		bool several = kernel->minctas && kernel->minctas <= RESIDENT_WARPS / warps;

		most = most_for(several ? warps * kernel->minctas : warps);
	}
	if (kernel->maxregisters && kernel->maxregisters < most)
		most = kernel->maxregisters;
	if (!warps && !kernel->maxregisters) {
		most = wish->threads ? most_for(warps_of(wish->threads)) : most;
		most = wish->most && wish->most < most ? wish->most : most;
	}
	most = most < LEAST ? LEAST : most;
	return needed < most ? needed : most;
}
