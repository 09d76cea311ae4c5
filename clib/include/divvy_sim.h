/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divvy_sim.h: what the stand-in driver library and the simulator share.
 *
 * `divvy simulate` plays the silicon and the kernel driver: it owns the cards,
 * their capacity and who holds how much of it. The stand-in library
 * (clib/standin) plays libcuda and libnvidia-ml inside each process. They speak
 * over a SOCK_SEQPACKET unix socket: one packet is one struct divvy_sim_header
 * followed by exactly header.payloadbytes bytes, at most DIVVY_SIM_PACKET_BYTES
 * in all. Any other length, magic or version ends that connection and nothing
 * else. The process sends one request and waits for the answer with the same
 * type and sequence; requests on one connection are not pipelined. Descriptors
 * travel by SCM_RIGHTS, at most one per packet.
 *
 * Who is who. One connection per process. The simulator takes the process id
 * from the socket's peer credentials, never from a message.
 *
 * Life and death. A compute process gets a page (a sealed memfd) with the
 * answer to HELLO and maps it writable and shared. Everything the process holds
 * is freed at once when the last descriptor of the connection is closed AND the
 * page is mapped by nobody. A forked child that inherits the descriptor or the
 * mapping keeps the memory alive, and a program that closes all its descriptors
 * lives on and keeps its memory, as with a hardware driver; exec and death free
 * it. Such a program comes back by HELLO with the process and token words of
 * its first answer.
 *
 * Capacity and contents are two things. Capacity is counted here: CHARGE and
 * RELEASE, or by objects. Contents live in sparse memfds that the simulator
 * creates, hands out and keeps a descriptor of (to sum what is really touched,
 * and to pass on to other processes):
 *   arena   one per process and card, for everything with no handle of its own
 *           (linear memory, arrays, pools, module globals). Its size is virtual:
 *           ask for several times the card, so that no layout runs out of
 *           offsets before the card is full. The library places blocks in it and
 *           punches holes where blocks were freed.
 *   object  one memfd each, for memory that can be shared by handle
 *           (cuMemCreate), or without contents (0 bytes) as the identity of
 *           something shared (a memory pool). It lives while a process holds it
 *           or an exported descriptor of it is open anywhere; its bytes are
 *           shown at the process that created it while that lives, then at the
 *           oldest other holder.
 *
 * Host memory. The simulator has a budget of host memory for all contents. A
 * request that would pass it is answered DIVVY_SIM_HOST, with an event that says
 * host, so that nobody mistakes it for a full card or for a quota.
 */
#ifndef DIVVY_SIM_H
#define DIVVY_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "divvy_sim_limit.h"
#include "divvy_sim_mig.h"

#define DIVVY_SIM_MAGIC 0x6d697344u /* "Dsim", little endian */
#define DIVVY_SIM_VERSION 1u
#define DIVVY_SIM_PACKET_BYTES 4096u
#define DIVVY_SIM_PAGE_BYTES 4096u
#define DIVVY_SIM_HANDLE_BYTES 64u
#define DIVVY_SIM_ALL_CARDS 0xffffffffu
#define DIVVY_SIM_MAX_CARDS 32u
#define DIVVY_SIM_CONTEXT_BYTES 67108864u /* what one context takes of a card */

/*
 * Requests. In: the words a request reads; out: the words its answer sets.
 * Words that are not named are zero.
 */
/* kind: DIVVY_SIM_ROLE_*; bytes: the library's driver generation (12020), 0 if
 * it does not care; process, token: to come back, else 0. May be sent again on
 * the same connection to become a compute process.
 * out: count: cards; bytes: generation of the simulator; process, token;
 * descriptor: the page (compute role only). */
#define DIVVY_SIM_HELLO 1u
/* card. out: payload: struct divvy_sim_card */
#define DIVVY_SIM_CARD 2u
/* card. out: bytes: free now; offset: total usable; object: used by all */
#define DIVVY_SIM_MEMORY 3u
/* card or DIVVY_SIM_ALL_CARDS; cursor: 0, then what the answer before gave;
 * kind: 0 for live, 1 for dead ones (control role).
 * out: count, payload: struct divvy_sim_process[count]; cursor: 0 at the end */
#define DIVVY_SIM_PROCESSES 4u
/* Orderly end: frees everything at once, before the connection closes. */
#define DIVVY_SIM_BYE 5u
/* card, cursor: as PROCESSES, of live ones what a driver tells, often and of thousands.
 * out: count, payload: struct divvy_sim_holder[count]; cursor: 0 at the end; kind: how
 * many GPU instances the card is divided into, or the one that a MIG device is of */
#define DIVVY_SIM_HOLDERS 6u

/* card, bytes, kind: DIVVY_SIM_KIND_*. Counts as one allocation.
 * out: bytes: free afterwards (or now, when refused) */
#define DIVVY_SIM_CHARGE 8u
/* card, bytes, kind: give back; one allocation less. */
#define DIVVY_SIM_RELEASE 9u
/* card, bytes, kind: change an existing charge by bytes (signed, two's
 * complement) without counting an allocation: pools that grow and shrink */
#define DIVVY_SIM_ADJUST 10u
/* bytes: about to be written to contents. Answered OK or HOST. */
#define DIVVY_SIM_PRESSURE 11u

/* card, bytes: virtual size, rounded up to pages; the same arena comes again
 * when there is one. out: bytes: its size; descriptor */
#define DIVVY_SIM_ARENA 16u
/* card, bytes (0: identity only), kind: DIVVY_SIM_OBJECT_*; token: any word,
 * kept for importers. out: object; descriptor unless bytes is 0 */
#define DIVVY_SIM_OBJECT_CREATE 17u
/* object: that this process holds. out: descriptor to give to other processes:
 * opaque, and it keeps the object alive while any copy of it is open */
#define DIVVY_SIM_OBJECT_EXPORT 18u
/* descriptor: from OBJECT_EXPORT. This process now holds the object (once more).
 * out: object, card, bytes, kind, token; descriptor of the contents unless bytes
 * is 0 */
#define DIVVY_SIM_OBJECT_IMPORT 19u
/* object: undo one CREATE or IMPORT; send it when the handle is released and
 * the last mapping in this process is gone */
#define DIVVY_SIM_OBJECT_DROP 20u

/* card, offset and bytes in this process's arena, kind: DIVVY_SIM_IPC_*; token:
 * any word, kept for the opener. out: payload: DIVVY_SIM_HANDLE_BYTES bytes, the
 * same ones for the same kind, card and offset */
#define DIVVY_SIM_IPC_EXPORT 24u
/* payload: the handle. out: card, offset, bytes, kind, token, process (of the
 * exporter); descriptor: the exporter's arena (not for DIVVY_SIM_IPC_EVENT).
 * Its own handle is answered DIVVY_SIM_OWN. Contents stay readable while they
 * are mapped; the exporter pays. */
#define DIVVY_SIM_IPC_OPEN 25u
/* card, offset, kind: the handle is no more (the memory was freed) */
#define DIVVY_SIM_IPC_REVOKE 26u

/* Control role: ground truth for tests, benches and the demo. */
/* every peak becomes what is held now; dead processes and releases are forgotten */
#define DIVVY_SIM_RESET 32u
/* cursor: 0 or the last answer's. out: count, payload: struct divvy_sim_event[count];
 * cursor: where to go on. count 0: nothing new. */
#define DIVVY_SIM_EVENTS 33u
/* the same with struct divvy_sim_release */
#define DIVVY_SIM_RELEASES 34u

/* Launches (compute role). out: descriptor: struct divvy_sim_ring; count:
 * entries. The same ring comes again when there is one. */
#define DIVVY_SIM_RING 40u
/* object: number of an item; kind: DIVVY_SIM_WAIT_*. out: kind: DIVVY_SIM_ENDS and
 * offset: when, which may lie ahead; or DIVVY_SIM_NOT_BEFORE and offset: the
 * earliest moment at which asking again makes sense */
#define DIVVY_SIM_WAIT 41u
/* object: number of a gate; offset: when it ended */
#define DIVVY_SIM_GATE_DONE 42u

/* Events between processes (compute role); payload: a handle of an event, of the
 * exporter or of one who opened it. RECORD: object: the caller's item whose end is
 * the event's from now on (0: it has ended). LOOK: out: kind and offset as for WAIT.
 * GATE: object: a gate of the caller's, which ends when the event does instead of by
 * GATE_DONE. */
#define DIVVY_SIM_EVENT_RECORD 43u
#define DIVVY_SIM_EVENT_LOOK 44u
#define DIVVY_SIM_EVENT_GATE 45u

/* Modelled time: who had how much of a card. card or DIVVY_SIM_ALL_CARDS; cursor:
 * 0, then what the answer before gave; kind: 0 for live processes, 1 for dead ones
 * (control role).
 * out: offset: the moment it is true for; bytes: how long the card was busy until
 * then (one card only); count, payload: struct divvy_sim_time[count]; cursor: 0 at
 * the end */
#define DIVVY_SIM_TIMES 48u
/* control role. Who had a card when, from a moment on. card; cursor: the moment.
 * out: offset: the moment until which this is all; bytes: since when it is known,
 * which begins with the first question; count, payload: struct divvy_sim_run[count] */
#define DIVVY_SIM_RUNS 49u

/* Health and faults. What they do stands in docs/simulated-faults.md. */
/* any role. out: descriptor: struct divvy_sim_notice, read-only */
#define DIVVY_SIM_NOTICE 56u
/* any role; card. out: payload: struct divvy_sim_health */
#define DIVVY_SIM_HEALTH 57u
/* compute role; card. out: count: faults that have hit this process's contexts
 * there so far; kind: the CUresult that the last one left behind */
#define DIVVY_SIM_FAULTED 58u
/* any role; cursor: 0 or the last answer's, or DIVVY_SIM_LAST for the number of
 * the last one alone. out: count, payload: struct divvy_sim_incident[count];
 * cursor: where to go on. count 0: nothing new. */
#define DIVVY_SIM_INCIDENTS 59u
/* control role, of root or the simulator's own user. card; kind:
 * DIVVY_SIM_FAULT_*; bytes: the XID, for that kind; count: how often (0: once);
 * process: process id of the victim, 0: the only one there is, or nobody.
 * out: object: number of the fault; count: processes hit */
#define DIVVY_SIM_FAULT_INJECT 60u
/* the same role; card or DIVVY_SIM_ALL_CARDS: as a reset of the card.
 * out: count: faults that were in force */
#define DIVVY_SIM_FAULT_CLEAR 61u
/* control role; cursor as for EVENTS. out: count, payload: struct
 * divvy_sim_fault[count]; cursor */
#define DIVVY_SIM_FAULT_LIST 62u
/* compute role; card; bytes: an XID that a program causes: a kernel of this process
 * has faulted, and its context is at its end. kind: the CUresult */
#define DIVVY_SIM_FAULT_REPORT 63u

/* 64..67: MIG and topology, in divvy_sim_mig.h; 68..70: bounds, in divvy_sim_limit.h */

/*
 * Kept for what comes later, answered DIVVY_SIM_UNKNOWN until then:
 *   46..47 launches
 *   50..55 modelled time
 */

/* header.status */
#define DIVVY_SIM_OK 0u
#define DIVVY_SIM_NO_ROOM 1u   /* the card is full */
#define DIVVY_SIM_HOST 2u      /* the host's budget is spent; the card is not full */
#define DIVVY_SIM_INVALID 3u   /* a word is out of range, or gives back more than is held */
#define DIVVY_SIM_NOT_FOUND 4u /* no such card, object or handle */
#define DIVVY_SIM_OWN 5u       /* the handle is the caller's own */
#define DIVVY_SIM_MISMATCH 6u  /* library and simulator play different driver generations */
#define DIVVY_SIM_LIMIT 7u     /* too many processes, objects or handles */
#define DIVVY_SIM_DENIED 8u    /* not in this role */
#define DIVVY_SIM_UNKNOWN 9u   /* no such request */
#define DIVVY_SIM_IN_USE 10u   /* processes, or instances, are in what is to go */
#define DIVVY_SIM_RESOURCES 11u /* the instance does not fit */
#define DIVVY_SIM_UNSUPPORTED 12u /* the card cannot, or not in this mode */

/* kind of HELLO */
#define DIVVY_SIM_ROLE_OBSERVE 1u /* NVML: sees, is not shown */
#define DIVVY_SIM_ROLE_COMPUTE 2u /* CUDA */
#define DIVVY_SIM_ROLE_CONTROL 3u /* ground truth */

/* kind of CHARGE, RELEASE, ADJUST; index of process.kindbytes */
#define DIVVY_SIM_KIND_LINEAR 0u
#define DIVVY_SIM_KIND_ARRAY 1u
#define DIVVY_SIM_KIND_POOL 2u
#define DIVVY_SIM_KIND_MANAGED 3u
#define DIVVY_SIM_KIND_CONTEXT 4u
#define DIVVY_SIM_KIND_MODULE 5u
#define DIVVY_SIM_KIND_GRAPH 6u
#define DIVVY_SIM_KIND_OBJECT 7u /* set by the simulator for objects, never asked for */
#define DIVVY_SIM_KINDS 8u

/* kind of OBJECT_CREATE */
#define DIVVY_SIM_OBJECT_MEMORY 1u
#define DIVVY_SIM_OBJECT_POOL 2u

/* kind of IPC_EXPORT */
#define DIVVY_SIM_IPC_MEMORY 1u
#define DIVVY_SIM_IPC_EVENT 2u
#define DIVVY_SIM_IPC_POINTER 3u /* cuMemPoolExportPointer */

/* kind of WAIT, and of its answer */
#define DIVVY_SIM_WAIT_ONE 0u /* that item */
#define DIVVY_SIM_WAIT_ALL 1u /* it and all before it */
#define DIVVY_SIM_NOT_BEFORE 0u
#define DIVVY_SIM_ENDS 1u

/* item.kind */
#define DIVVY_SIM_ITEM_KERNEL 1u /* fills the card for its duration */
#define DIVVY_SIM_ITEM_MARKER 2u /* takes no time */
#define DIVVY_SIM_ITEM_GATE 3u   /* ends by GATE_DONE: a host function */

/* process.flags */
#define DIVVY_SIM_PROCESS_COMPUTE 1u  /* said so at HELLO */
#define DIVVY_SIM_PROCESS_ALIVE 2u    /* the process id still runs */
#define DIVVY_SIM_PROCESS_DETACHED 4u /* no descriptor of the connection is left, the page is still mapped */
#define DIVVY_SIM_PROCESS_DEAD 8u     /* freed; the figures are what it held at most */

/* event.kind */
#define DIVVY_SIM_EVENT_HOST 1u    /* the host budget refused bytes */
#define DIVVY_SIM_EVENT_GARBAGE 2u /* a connection was closed for nonsense */
#define DIVVY_SIM_EVENT_LIMIT 3u   /* a bound was met: processes, objects, handles */
#define DIVVY_SIM_EVENT_DETACHED 4u/* a live process closed its connection and keeps bytes */
#define DIVVY_SIM_EVENT_NO_ROOM 5u /* a card was full */
#define DIVVY_SIM_EVENT_FAULT 6u   /* a fault was injected, or cleared */

/* cursor of INCIDENTS */
#define DIVVY_SIM_LAST 0xffffffffffffffffu

/* kind of FAULT_INJECT */
#define DIVVY_SIM_FAULT_XID 1u
#define DIVVY_SIM_FAULT_ECC_SINGLE 2u
#define DIVVY_SIM_FAULT_ECC_DOUBLE 3u
#define DIVVY_SIM_FAULT_THERMAL 4u
#define DIVVY_SIM_FAULT_POWER 5u
#define DIVVY_SIM_FAULT_CARD_LOST 6u

/* flags of a card's health, in health.flags and notice.flags */
#define DIVVY_SIM_HEALTH_LOST 1u  /* has fallen off the bus */
#define DIVVY_SIM_HEALTH_RESET 2u /* needs a reset before anything can use it */

/* fault.flags */
#define DIVVY_SIM_FAULT_ACTIVE 1u /* until it is cleared */
#define DIVVY_SIM_FAULT_REPORTED 2u /* not injected: the process's own kernel did it */

/* index of health.ecc: its halves are volatile and aggregate */
#define DIVVY_SIM_ECC_COUNTERS 4u /* corrected volatile, corrected aggregate, uncorrected ... */

struct divvy_sim_header {
	uint32_t magic;        /* DIVVY_SIM_MAGIC */
	uint16_t type;         /* the request; the answer repeats it */
	uint16_t version;      /* DIVVY_SIM_VERSION */
	uint32_t sequence;     /* chosen by the caller; the answer repeats it */
	uint32_t status;       /* DIVVY_SIM_OK ...; 0 in requests */
	uint32_t card;         /* index */
	uint32_t kind;         /* see the request */
	uint32_t count;        /* entries in the payload, or cards */
	uint32_t payloadbytes; /* that follow this header */
	uint64_t bytes;        /* an amount */
	uint64_t offset;       /* a place */
	uint64_t object;       /* an object's number */
	uint64_t process;      /* the simulator's number of a process, never used again */
	uint64_t token;        /* see the request */
	uint64_t cursor;       /* see the request */
	uint64_t reserved[2];
};

/* What a card is. Constant but for the last block. */
struct divvy_sim_card {
	char name[96];          /* NUL-terminated */
	char serial[32];        /* NUL-terminated digits */
	uint8_t uuid[16];
	uint64_t totalbytes;    /* as NVML reports it */
	uint64_t reservedbytes; /* the driver's own part of it */
	uint64_t usablebytes;   /* totalbytes - reservedbytes: what cuDeviceTotalMem says */
	uint64_t bar1bytes;
	uint64_t l2bytes;
	uint32_t index;
	uint32_t minor;         /* of /dev/nvidiaN */
	uint32_t pcidomain;
	uint32_t pcibus;
	uint32_t pcidevice;
	uint32_t pciid;         /* device << 16 | vendor */
	uint32_t pcisubsystem;  /* subsystem << 16 | vendor */
	uint32_t major;         /* compute capability */
	uint32_t minorcc;
	uint32_t multiprocessors;
	uint32_t corespermultiprocessor;
	uint32_t threadspermultiprocessor;
	uint32_t blockspermultiprocessor;
	uint32_t registerspermultiprocessor;
	uint32_t sharedpermultiprocessor; /* bytes */
	uint32_t sharedperblockoptin;     /* bytes */
	uint32_t smclockmhz;              /* highest */
	uint32_t memoryclockmhz;          /* highest */
	uint32_t baseclockmhz;            /* when nothing runs */
	uint32_t buswidthbits;
	uint32_t pciegeneration;
	uint32_t pciewidth;
	uint32_t powerlimitmw;
	uint32_t idlepowermw;
	uint32_t temperature;             /* idle, degrees Celsius */
	uint32_t slowdowntemperature;
	uint32_t shutdowntemperature;
	uint32_t brand;                   /* nvmlBrandType_t */
	uint32_t architecture;            /* NVML_DEVICE_ARCH_* */
	uint32_t flags;                   /* DIVVY_SIM_CARD_* */
	uint32_t copyengines;
	uint32_t parent; /* of a MIG device: index of its card; of a card: its own */
	uint64_t reserved2[8];
	/* as of now */
	uint64_t usedbytes;     /* by processes, without reservedbytes */
	uint32_t processes;     /* that hold something */
	uint32_t gpupercent;    /* utilisation in the last half second */
	uint32_t memorypercent;
	uint32_t powermw;
	uint64_t peakusedbytes; /* most of usedbytes since the last RESET */
	uint64_t reserved3[3];
};
#define DIVVY_SIM_CARD_ECC 1u /* has it, and it is on */
#define DIVVY_SIM_CARD_MIG 2u /* can be divided */
#define DIVVY_SIM_CARD_DEVICE 4u /* is a MIG device: a part of one */
#define DIVVY_SIM_CARD_UNIFIED 8u /* its memory is the host's: NVML tells nothing of it */

/* One process on one card (or, with card DIVVY_SIM_ALL_CARDS, a compute
 * process that holds nothing anywhere). */
struct divvy_sim_process {
	uint64_t process;     /* the simulator's number */
	uint32_t pid;         /* in the simulator's pid namespace */
	uint32_t card;
	uint32_t flags;       /* DIVVY_SIM_PROCESS_* */
	uint32_t contexts;    /* live ones */
	uint64_t bytes;       /* held now */
	uint64_t peakbytes;   /* most ever held since the last RESET */
	uint64_t allocations; /* so far */
	uint64_t live;        /* allocations not given back */
	uint64_t denials;     /* refused for want of room */
	uint64_t kindbytes[DIVVY_SIM_KINDS];
};

/* One process that holds something on a card. */
struct divvy_sim_holder {
	uint64_t bytes; /* now */
	uint32_t pid;   /* in the simulator's pid namespace */
	uint32_t card;
};

struct divvy_sim_event {
	uint64_t number;    /* 1, 2, ... */
	uint64_t timens;    /* CLOCK_MONOTONIC */
	uint64_t process;
	uint64_t bytes;
	uint32_t kind;      /* DIVVY_SIM_EVENT_* */
	uint32_t pid;
	uint32_t card;
	uint32_t reserved;
	char text[80];      /* NUL-terminated */
};

/* A process's memory came free as a whole. */
struct divvy_sim_release {
	uint64_t number;  /* 1, 2, ... */
	uint64_t timens;  /* CLOCK_MONOTONIC, when the last byte was free */
	uint64_t process;
	uint64_t bytes;   /* on all cards */
	uint32_t pid;
	uint32_t reserved;
};

/* What a process had of a card. */
struct divvy_sim_time {
	uint64_t process;
	uint32_t pid;
	uint32_t card;
	uint32_t flags;   /* DIVVY_SIM_PROCESS_DEAD */
	uint32_t percent; /* of the last half second */
	uint64_t busyns;
	uint64_t kernels; /* that have ended, or will within the slice that runs */
	uint64_t queued;  /* kernels that have not */
	uint64_t instructions; /* of all threads of those that have ended */
};

/* A time for which a process had a card without a break. */
struct divvy_sim_run {
	uint64_t process;
	uint64_t fromns;
	uint64_t tons;
};

/* How a card is, as of now. */
struct divvy_sim_health {
	uint64_t energymj;      /* since the simulator started */
	uint64_t reasons;       /* why clocks are not at their highest, as NVML numbers them */
	uint64_t ecc[4];        /* DIVVY_SIM_ECC_COUNTERS: corrected volatile and aggregate, uncorrected volatile and aggregate */
	uint64_t lastincident;  /* number of it */
	uint32_t flags;         /* DIVVY_SIM_HEALTH_* */
	uint32_t gpupercent;
	uint32_t memorypercent;
	uint32_t temperature;   /* degrees Celsius */
	uint32_t memorytemperature;
	uint32_t powermw;
	uint32_t smclockmhz;
	uint32_t memoryclockmhz;
	uint32_t performance;   /* P-state */
	uint32_t fanpercent;
	uint32_t retiredsingle; /* pages */
	uint32_t retireddouble;
	uint32_t retiredpending;
	uint32_t remappedcorrectable; /* rows */
	uint32_t remappeduncorrectable;
	uint32_t remappending;
	uint32_t remapfailed;
	uint32_t slowpercent;   /* what a kernel takes, 100: what it should */
	uint32_t pciereplays;
	uint32_t reserved;
};

/* What NVML tells of as an event. */
struct divvy_sim_incident {
	uint64_t number; /* 1, 2, ... */
	uint64_t timens; /* CLOCK_MONOTONIC */
	uint64_t data;   /* the XID */
	uint32_t type;   /* as NVML numbers event types */
	uint32_t card;
	uint32_t pid;    /* of the process it is about; 0: none */
	uint32_t reserved;
};

/* One fault that was injected. */
struct divvy_sim_fault {
	uint64_t number;  /* 1, 2, ... */
	uint64_t timens;  /* CLOCK_MONOTONIC */
	uint64_t process; /* the victim's number; 0: none in particular */
	uint32_t kind;    /* DIVVY_SIM_FAULT_* */
	uint32_t xid;     /* that it raised first; 0: none */
	uint32_t card;
	uint32_t pid;
	uint32_t hit;     /* processes whose contexts it ended */
	uint32_t error;   /* the CUresult it left there */
	uint32_t flags;   /* DIVVY_SIM_FAULT_ACTIVE */
	uint32_t reserved;
};

/* One page for all processes, written by the simulator alone. Who sleeps for
 * something that a fault may change waits on a number as a futex. */
struct divvy_sim_notice {
	uint32_t sequence;  /* changes with every fault, and when what a process waits for by EVENT_GATE dies */
	uint32_t incidents; /* changes with every incident, and with every fault */
	uint32_t unused[14];
	uint32_t flags[32]; /* DIVVY_SIM_HEALTH_* of each card */
};

/*
 * The ring. Items are numbered 1, 2, ...; item n stands in entries[(n - 1) %
 * DIVVY_SIM_RING_ENTRIES] and its end in the slot of the same place. The process
 * writes items and head; the simulator reads them whenever it needs to know the
 * time, which is at a request, not at a launch. Item n may be written once the
 * item a ring's length before it has ended. The stamps make up for the delay: the
 * schedule is the one that a simulator which never sleeps would have come to.
 */
#define DIVVY_SIM_RING_ENTRIES 1024u /* a hardware driver blocks at about as many launches */
#define DIVVY_SIM_RING_BYTES 86016u

struct divvy_sim_item {
	uint64_t after[4];   /* numbers of items it comes after; 0: none */
	uint64_t durationns; /* of kernels */
	uint64_t stampns;    /* CLOCK_MONOTONIC, when it was submitted */
	uint32_t kind;       /* DIVVY_SIM_ITEM_* */
	uint32_t card;
	uint64_t instructions; /* that all threads of a kernel did; 0: it only took time */
};

struct divvy_sim_slot {
	uint64_t item;  /* whose end this is; written last */
	uint64_t endns; /* CLOCK_MONOTONIC; may lie ahead, and will not change */
};

struct divvy_sim_ring {
	uint64_t head;      /* items submitted; written by the process */
	uint64_t unused1[7];
	uint64_t floor;     /* the ends of all items up to it are known; written last */
	uint64_t latestns;  /* the latest of all known ends */
	uint64_t unused2[502];
	struct divvy_sim_item entries[DIVVY_SIM_RING_ENTRIES];
	struct divvy_sim_slot slots[DIVVY_SIM_RING_ENTRIES];
};

_Static_assert(sizeof(struct divvy_sim_health) == 136, "health");
_Static_assert(sizeof(struct divvy_sim_incident) == 40, "incident");
_Static_assert(sizeof(struct divvy_sim_fault) == 56, "fault");
_Static_assert(sizeof(struct divvy_sim_notice) == 192, "notice");
_Static_assert(offsetof(struct divvy_sim_notice, flags) == 64, "notice flags");
_Static_assert(sizeof(struct divvy_sim_time) == 56, "time");
_Static_assert(sizeof(struct divvy_sim_run) == 24, "run");
_Static_assert(sizeof(struct divvy_sim_item) == 64, "item");
_Static_assert(sizeof(struct divvy_sim_slot) == 16, "slot");
_Static_assert(offsetof(struct divvy_sim_ring, floor) == 64, "ring floor");
_Static_assert(offsetof(struct divvy_sim_ring, entries) == 4096, "ring entries");
_Static_assert(offsetof(struct divvy_sim_ring, slots) == 69632, "ring slots");
_Static_assert(sizeof(struct divvy_sim_ring) == DIVVY_SIM_RING_BYTES, "ring");
_Static_assert(sizeof(struct divvy_sim_header) == 96, "header");
_Static_assert(offsetof(struct divvy_sim_header, payloadbytes) == 28, "header payload");
_Static_assert(offsetof(struct divvy_sim_header, cursor) == 72, "header cursor");
_Static_assert(sizeof(struct divvy_sim_card) == 432, "card");
_Static_assert(offsetof(struct divvy_sim_card, totalbytes) == 144, "card total");
_Static_assert(offsetof(struct divvy_sim_card, copyengines) == 304, "card engines");
_Static_assert(offsetof(struct divvy_sim_card, usedbytes) == 376, "card used");
_Static_assert(sizeof(struct divvy_sim_process) == 128, "process");
_Static_assert(offsetof(struct divvy_sim_process, kindbytes) == 64, "process kinds");
_Static_assert(sizeof(struct divvy_sim_holder) == 16, "holder");
_Static_assert(sizeof(struct divvy_sim_event) == 128, "event");
_Static_assert(offsetof(struct divvy_sim_event, text) == 48, "event text");
_Static_assert(sizeof(struct divvy_sim_release) == 40, "release");

#endif
