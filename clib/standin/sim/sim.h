/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h: this process's line to the simulator, for both halves of the stand-in
 * (CUDA and NVML). See divvy_sim.h for what the requests mean.
 *
 * All functions are thread-safe; requests are serialised on one connection.
 * They return 0 or a negative errno:
 *   -ENOMEM      the card is full                       CUDA_ERROR_OUT_OF_MEMORY
 *   -ENOBUFS     the host's budget is spent             CUDA_ERROR_OUT_OF_MEMORY
 *   -EINVAL      a value is out of range
 *   -ENOENT      no such card, object or handle
 *   -EALREADY    the IPC handle is this process's own
 *   -EBUSY       what is to go is in use                NVML IN_USE
 *   -ENOSPC      a MIG instance does not fit            NVML INSUFFICIENT_RESOURCES
 *   -EOPNOTSUPP  the card cannot, or not in this mode   NVML NOT_SUPPORTED
 *   -ELIBBAD     other driver generation in the simulator   (803, NVML 18)
 *   -EMFILE      a bound of the simulator was met
 *   -EPERM       not in this role (sim_open(COMPUTE) first)
 *   -ENODEV      no simulator listens there             (NO_DEVICE; NVML DRIVER_NOT_LOADED)
 *   -EIO         it answered nonsense, or is gone: the device is lost
 *   -EOWNERDEAD  this process is a fork of one that had a connection
 *
 * Fork. The child inherits the parent's descriptor, which keeps the parent's
 * memory, and never speaks on it. sim_forked() is true in a child whose parent
 * had opened the compute role: every cu* entry then answers NOT_INITIALIZED,
 * cuInit too, as the hardware driver does. For the observer role the child gets
 * a connection of its own at its next request, without asking.
 *
 * Descriptors that are handed out are close-on-exec and the caller's to close.
 */
#ifndef DIVVY_STANDIN_SIM_H
#define DIVVY_STANDIN_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "divvy_sim.h"

/* The generation this object was built for, e.g. 12020 (set by rules.mk), and
 * the version string of its driver. */
extern const int sim_generation;
extern const char sim_driver_version[];

/* Exported: marks the library as the stand-in for whoever opens it. */
extern const char divvy_standin[];

/* Opens the connection if there is none and takes the role
 * (DIVVY_SIM_ROLE_OBSERVE or _COMPUTE). The compute role is kept until the
 * process ends; the observer role counts opens and closes, and the connection
 * of a process that only observes closes with the last one. */
int sim_open(uint32_t role);
void sim_close_observer(void);
bool sim_forked(void);

/* Number of cards; negative errno without a connection. */
int sim_cards(void);

/* Card facts. sim_card_facts gives the constant part from memory (index must be
 * below sim_cards(); NULL otherwise; valid until the process ends); sim_card
 * asks, for what changes. */
const struct divvy_sim_card *sim_card_facts(uint32_t card);
int sim_card(uint32_t card, struct divvy_sim_card *out);

/* Exact, for cuMemGetInfo. */
int sim_memory(uint32_t card, uint64_t *freebytes, uint64_t *totalbytes);

/* Capacity. kind: DIVVY_SIM_KIND_*. Bytes are taken as given: round first. */
int sim_charge(uint32_t card, uint32_t kind, uint64_t bytes);
int sim_release(uint32_t card, uint32_t kind, uint64_t bytes);
int sim_adjust(uint32_t card, uint32_t kind, int64_t bytes);

/* Call before contents are written through a mapping: counts, and asks the
 * simulator each time 4 MiB have come together (or at once for more). -ENOBUFS:
 * do not write. Cheap for small sizes. */
int sim_touch(uint64_t bytes);

/* Contents. */
int sim_arena(uint32_t card, uint64_t bytes, int *fd, uint64_t *sizebytes);

struct sim_object {
	uint64_t object; /* number; the same for all who hold it */
	uint64_t bytes;
	uint64_t token;  /* the creator's word */
	uint32_t card;
	uint32_t kind;   /* DIVVY_SIM_OBJECT_* */
	int fd;          /* contents; -1 if bytes is 0 */
};
int sim_object_create(uint32_t card, uint32_t kind, uint64_t bytes, uint64_t token,
		      struct sim_object *out);
int sim_object_export(uint64_t object, int *fd);
int sim_object_import(int fd, struct sim_object *out);
int sim_object_drop(uint64_t object);

struct sim_ipc {
	uint64_t offset;  /* in the exporter's arena */
	uint64_t bytes;
	uint64_t token;   /* the exporter's word */
	uint64_t process; /* the exporter's number: tells two exporters apart */
	uint32_t card;
	uint32_t kind;    /* DIVVY_SIM_IPC_* */
	int fd;           /* the exporter's arena; -1 for events */
};
int sim_ipc_export(uint32_t card, uint32_t kind, uint64_t offset, uint64_t bytes, uint64_t token,
		   unsigned char handle[DIVVY_SIM_HANDLE_BYTES]);
int sim_ipc_open(const unsigned char handle[DIVVY_SIM_HANDLE_BYTES], struct sim_ipc *out);
int sim_ipc_revoke(uint32_t card, uint32_t kind, uint64_t offset);

/* An event that several processes hold, by its handle: see DIVVY_SIM_EVENT_*. */
int sim_event_record(const unsigned char handle[DIVVY_SIM_HANDLE_BYTES], uint64_t item);
int sim_event_look(const unsigned char handle[DIVVY_SIM_HANDLE_BYTES], bool *ends, uint64_t *atns);
int sim_event_gate(const unsigned char handle[DIVVY_SIM_HANDLE_BYTES], uint64_t gate);

/* Launches and modelled time. sim_wait answers for an item, or with all for it and
 * those before it: *ends says whether *atns is its end (which may lie ahead) or
 * the earliest moment at which asking again makes sense. */
int sim_ring(int *fd);
int sim_wait(uint64_t item, bool all, bool *ends, uint64_t *atns);
int sim_gate_done(uint64_t item, uint64_t atns);
/* What processes had of a card's time; as sim_holders. */
long sim_times(uint32_t card, struct divvy_sim_time *out, size_t room);

/* Who is on the card (NVML). Fills at most room entries, returns how many there
 * are in all, or a negative errno; *instances, unless that is NULL: how many GPU
 * instances the card has. */
long sim_holders(uint32_t card, struct divvy_sim_holder *out, size_t room, uint32_t *instances);

/* Health. The notice is a page that the simulator alone writes; NULL without a
 * connection. sim_sleep waits until a moment on CLOCK_MONOTONIC, or until the
 * word is another one than seen, or a signal comes. A word that is NULL is 0. */
const struct divvy_sim_notice *sim_notice(void);
void sim_notice_forget(void); /* another simulator may have another one */
uint32_t sim_word(const uint32_t *word);
uint32_t sim_card_flags(uint32_t card); /* DIVVY_SIM_HEALTH_* */
void sim_sleep(const uint32_t *word, uint32_t seen, uint64_t untilns);
int sim_health(uint32_t card, struct divvy_sim_health *out);
/* faults that have hit this process's contexts on the card so far, and the
 * CUresult that the last one left there */
int sim_faulted(uint32_t card, uint32_t *count, uint32_t *error);
/* a kernel of this process has faulted on the card */
int sim_fault_report(uint32_t card, uint32_t xid, uint32_t error);
/* Incidents after *cursor, which moves on; DIVVY_SIM_LAST: only the cursor. */
#define SIM_INCIDENTS ((DIVVY_SIM_PACKET_BYTES - sizeof(struct divvy_sim_header)) / sizeof(struct divvy_sim_incident))
int sim_incidents(uint64_t *cursor, struct divvy_sim_incident page[SIM_INCIDENTS], uint32_t *count);

/* MIG. The lists hold at most so many. */
#define SIM_MIG_PROFILES 32u
#define SIM_MIG_INSTANCES 16u
struct sim_mig {
	uint32_t current; /* 1: the card is divided */
	uint32_t pending; /* 1: it will be after its next reset */
	uint32_t profilecount;
	uint32_t gpucount;
	uint32_t computecount;
	struct divvy_sim_mig_profile profiles[SIM_MIG_PROFILES];
	struct divvy_sim_mig_gpu gpus[SIM_MIG_INSTANCES];
	struct divvy_sim_mig_compute computes[SIM_MIG_INSTANCES];
};
/* All of one moment. */
int sim_mig(uint32_t card, struct sim_mig *out);
/* change: DIVVY_SIM_MIG_*; value: its bytes; number: in and out; *done: its count */
int sim_mig_change(uint32_t card, uint32_t change, uint64_t value, uint64_t start, uint64_t *number, uint32_t *done);
/* opens a MIG device for this process */
int sim_mig_use(const uint8_t uuid[16], uint32_t *card);
/* Facts of a MIG device: as sim_card_facts, NULL if it is not there. */
const struct divvy_sim_card *sim_mig_facts(uint32_t card, const uint8_t uuid[16]);
/* Facts that sim_mig_facts gave out, of a device that is still there. */
bool sim_mig_current(const struct divvy_sim_card *facts);
bool sim_mig_known(const void *facts);

/* Limits of a control group by its folder; a length over what fits is -EINVAL. */
int sim_limit_set(uint32_t card, const char *group, uint64_t softbytes, uint64_t hardbytes);
int sim_limit_get(uint32_t card, const char *group, uint64_t *softbytes, uint64_t *hardbytes, uint64_t *heldbytes);
/* the most that this process may hold of a card */
int sim_cap(uint32_t card, uint64_t bytes);

/* where a card sits */
int sim_topology(uint32_t card, struct divvy_sim_topology *out);

/* One request, for what has no function above. payload is in and out;
 * *payloadbytes is its length on entry and exit, room its size. fdin -1: none;
 * fdout NULL: a descriptor in the answer is closed. */
int sim_request(struct divvy_sim_header *header, void *payload, size_t room, int fdin, int *fdout);

#endif
