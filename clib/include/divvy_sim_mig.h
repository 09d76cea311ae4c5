/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divvy_sim_mig.h: the part of divvy_sim.h that is about dividing cards, and about
 * how they are connected.
 */
#ifndef DIVVY_SIM_MIG_H
#define DIVVY_SIM_MIG_H

#include <stdint.h>

/* MIG. Compute instances are devices of their own: CARD, MEMORY, PROCESSES, CHARGE
 * and all else that names a card takes them by indices above the cards'. A divided
 * card itself has no room for processes. A card without MIG is UNSUPPORTED. */
/* any role; card. out: payload: struct divvy_sim_mig_profile[count] (none while the
 * driver does not tell), divvy_sim_mig_gpu[kind] and divvy_sim_mig_compute[cursor];
 * bytes: 1 if it is divided; offset: 1 if it will be after its next reset */
#define DIVVY_SIM_MIG_LIST 64u
/* any role, of root or the simulator's own user; card; kind: DIVVY_SIM_MIG_*.
 * SET_MODE: bytes: 1 to divide it, 0 not to. out: count: 1 if that is in force, 0 if
 * the card is in use and will change with its next reset.
 * CREATE_GPU: bytes: the profile's id; offset: where it starts, or
 * DIVVY_SIM_MIG_ANYWHERE. out: object: its number.
 * CREATE_COMPUTE: object: number of the GPU instance; bytes: the profile; offset as
 * above. out: object: its number.
 * DESTROY_GPU, DESTROY_COMPUTE: object: its number. */
#define DIVVY_SIM_MIG_CHANGE 65u
/* compute role; payload: 16 bytes, the UUID of a compute instance, which this process
 * has open from now on. out: card: its index */
#define DIVVY_SIM_MIG_USE 66u

/* any role; card, or a MIG device. out: payload: struct divvy_sim_topology */
#define DIVVY_SIM_TOPOLOGY 67u

/* kind of MIG_CHANGE */
#define DIVVY_SIM_MIG_SET_MODE 0u
#define DIVVY_SIM_MIG_CREATE_GPU 1u
#define DIVVY_SIM_MIG_DESTROY_GPU 2u
#define DIVVY_SIM_MIG_CREATE_COMPUTE 3u
#define DIVVY_SIM_MIG_DESTROY_COMPUTE 4u
#define DIVVY_SIM_MIG_ANYWHERE 0xffffffffffffffffu

/* A kind of GPU instance. */
struct divvy_sim_mig_profile {
	char name[32];            /* NUL-terminated, 1g.10gb+me */
	uint32_t id;
	uint32_t nvml;            /* NVML_GPU_INSTANCE_PROFILE_* */
	uint32_t slices;          /* compute slices */
	uint32_t memorymib;
	uint32_t multiprocessors;
	uint32_t most;            /* instances of it on an empty card */
	uint32_t size;            /* in placement units */
	uint32_t starts;          /* a bit for each unit it may start at */
	uint32_t remaining;       /* that still fit */
	uint32_t copyengines;
	uint32_t decoders;
	uint32_t encoders;
	uint32_t jpegs;
	uint32_t ofas;
};

/* A GPU instance. */
struct divvy_sim_mig_gpu {
	uint64_t number;   /* never used again */
	uint32_t id;
	uint32_t profile;  /* id of it */
	uint32_t start;
	uint32_t computes; /* compute instances in it */
};

/* A compute instance, which is a device. */
struct divvy_sim_mig_compute {
	uint8_t uuid[16];
	uint64_t number;          /* never used again */
	uint64_t gpunumber;       /* of its GPU instance */
	uint32_t gpu;             /* id of that */
	uint32_t id;
	uint32_t profile;         /* NVML_COMPUTE_INSTANCE_PROFILE_* */
	uint32_t start;           /* in slices of the GPU instance */
	uint32_t slices;
	uint32_t card;            /* its index */
};

/* Where a card sits. */
struct divvy_sim_topology {
	uint32_t node;          /* NUMA */
	uint32_t firstcpu;
	uint32_t cpus;          /* of the node; 0: those of the host */
	uint32_t links;         /* NVLinks that are up */
	uint32_t linkversion;   /* NVML_NVLINK_VERSION_* */
	uint32_t reserved;
	uint8_t ancestors[32];  /* NVML_TOPOLOGY_*, for each card */
	uint8_t peers[40];      /* for each link the card at its other end, or */
};
#define DIVVY_SIM_LINK_SWITCH 255u /* an NVLink switch */

_Static_assert(sizeof(struct divvy_sim_topology) == 96, "topology");
_Static_assert(sizeof(struct divvy_sim_mig_profile) == 88, "MIG profile");
_Static_assert(sizeof(struct divvy_sim_mig_gpu) == 24, "GPU instance");
_Static_assert(sizeof(struct divvy_sim_mig_compute) == 56, "compute instance");

#endif
