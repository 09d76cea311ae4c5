/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divvy_wire.h: what the front library and the agent share.
 *
 * Two pages per client and one message format. The Go view (internal/wire) is
 * generated from this file by tools/wiregen, which reads the #define lines and
 * the struct definitions below; keep to fixed-width types, one field per line
 * and plain names.
 *
 * limits page: one per share, a memfd sealed against growing, shrinking and
 *   writing (F_SEAL_FUTURE_WRITE, after the agent mapped it). Only the agent
 *   writes it.
 * client page: one per attached process, a memfd sealed against growing and
 *   shrinking. The process and the agent write it; the agent trusts nothing in
 *   it and bounds every read.
 *
 * Every 64-bit word is read and written with atomic operations. Sizes are
 * bytes, times are CLOCK_MONOTONIC nanoseconds. A writer may die at any
 * instruction: no word depends on another one being written after it.
 *
 * Time on the card of a slot, while its gated is 1:
 *   A process launches when now + its unfinished work < leaseendns, without
 *   asking. Else it reads leaseword, looks at gated and leaseendns again, sends
 *   DIVVY_LEASE_WANT (once per process and value of leaseword is enough, more do
 *   no harm) and waits on leaseword (FUTEX_WAIT, not private) for the value that
 *   it read to change. A lease is the share's: all its processes launch under
 *   it. A process that has had nothing in flight for 200 us sends
 *   DIVVY_LEASE_BACK, once, also when no lease is in force: so the agent learns
 *   that what outlasted a lease has ended. The lease ends when no process of the
 *   share has anything in flight. leaseendns may move in both directions at any
 *   time.
 *
 * Ledger of a card slot, seen from one process, is one word, memory, so that
 * whoever is killed at any instruction leaves it true. In units of
 * DIVVY_ALLOCATION_UNIT, from the lowest bit:
 *   DIVVY_MEMORY_BITS  credit: granted and not in use. The process takes from it
 *                      and puts back, by atomic operations only
 *   DIVVY_MEMORY_BITS  granted: what the agent has given this process. The agent
 *                      adds to it and takes unused credit back, from both parts
 *                      at once, by compare-and-swap
 *   1                  mark: flips with every CHARGE that the agent grants, in
 *                      the operation that adds to granted
 *   in use             granted - credit, never negative
 */
#ifndef DIVVY_WIRE_H
#define DIVVY_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define DIVVY_WIRE_VERSION 4u
#define DIVVY_PAGE_BYTES 4096u
#define DIVVY_MAX_CARDS 8u
#define DIVVY_LIMITS_MAGIC 0x3173746c79767644ull /* "Dvvylts1", little endian */
#define DIVVY_CLIENT_MAGIC 0x316c6379767644ull   /* "Dvvycl1" */
#define DIVVY_MESSAGE_MAGIC 0x79767644u          /* "Dvvy" */
#define DIVVY_TEXT_BYTES 96u
#define DIVVY_BUILD_ID_BYTES 20u
#define DIVVY_ALLOCATION_UNIT 512u /* memory is charged in these; every amount is rounded up to them */
#define DIVVY_MEMORY_BITS 31u      /* of each part of client.card[].memory: 1 TiB */

/* limits.policy */
#define DIVVY_POLICY_BEST_EFFORT 0u
#define DIVVY_POLICY_EQUAL 1u
#define DIVVY_POLICY_FIXED 2u
#define DIVVY_POLICY_WEIGHTED 3u

/* limits.card[].flags */
#define DIVVY_CARD_TIGHT 1u     /* over its limit: ask before every allocation, use no credit */
#define DIVVY_CARD_UNLIMITED 2u /* no quota of its own: free is what the card has left */

struct divvy_limits_card {
	uint8_t uuid[16];       /* CUuuid of the card */
	uint64_t limitbytes;    /* quota; the card's total for an unlimited share */
	uint64_t usedbytes;     /* in use by all processes of the share when last summed */
	uint64_t stampns;       /* when usedbytes was summed */
	uint64_t contextbytes;  /* what one context costs on this card */
	uint32_t flags;         /* DIVVY_CARD_* */
	uint32_t corespercent;  /* 1..100 of the card */
	uint64_t reserved;
	uint32_t gated;         /* 1: launches need a lease; 0: they do not wait */
	uint32_t leaseword;     /* futex: +1 and woken after gated or leaseendns has changed */
	uint64_t leaseendns;    /* until when the share may launch; 0: not now. Only while gated */
	uint64_t leasebeginns;  /* from when the share should have launched; the agent may have been late */
	uint64_t leaseturn;     /* the turn of the only process that may launch; 0: all may. leaseendns is 0 while it changes */
	uint64_t backlogns;     /* how much unfinished work, by its own estimate, a process of a gated share may keep */
	uint64_t besidetons;    /* what was launched before may have run beside work of the share that had the card before */
	uint64_t besidefromns;  /* what had not ended by then may have run beside work of the next; 0: none has come */
	uint64_t reserved2;
};

struct divvy_limits {
	uint64_t magic;      /* DIVVY_LIMITS_MAGIC */
	uint32_t version;    /* DIVVY_WIRE_VERSION */
	uint32_t sizebytes;  /* sizeof(struct divvy_limits) */
	uint32_t clients;    /* attached processes; with 1 a process's own page is the whole truth */
	uint32_t policy;     /* DIVVY_POLICY_* */
	uint32_t cards;      /* slots in use, 1..DIVVY_MAX_CARDS */
	uint32_t reserved;
	char name[64];       /* of the share, NUL-terminated */
	uint64_t reserved2[4];
	struct divvy_limits_card card[DIVVY_MAX_CARDS]; /* the slots: by the number of the card inside the share */
};

struct divvy_client_card {
	uint64_t memory;       /* both sides, by atomic operations only: credit, granted, mark */
	uint64_t contextbytes; /* process: the part of what is in use that is contexts */
	uint64_t allocations;  /* process: successful allocations so far */
	uint64_t launches;     /* process: counted in steps of at most 64 per thread */
	uint64_t peakbytes;    /* process: the most that was in use so far; 0 when it does not keep it */
	uint64_t busyns;       /* process: card time it has measured or estimated so far; never falls */
	uint64_t inflightns;   /* process: estimated card time of what it has submitted and not seen end; 0: nothing is in flight */
	uint64_t drainns;      /* process: when that will have run, by its estimate, if it has the card to itself: at a launch max(drainns, now) + the launch's */
	uint64_t waitns;       /* process: how long its launches have waited for a lease so far */
	uint64_t latens;       /* process: by how much its first launches came after leasebeginns, all leases summed */
	uint64_t lastendns;    /* process: when the last of its work that it knows of has ended */
	uint64_t spanns;       /* process: like busyns, but other shares' work beside its own included */
	uint64_t gapns;        /* process: the part of spanns in which the card may have waited for a launch */
	uint64_t kernelns;     /* process: the longest of what it has launched lately, by its estimate; 0: unknown */
};

struct divvy_client {
	uint64_t magic;     /* DIVVY_CLIENT_MAGIC; anything else means a broken client */
	uint32_t version;   /* DIVVY_WIRE_VERSION */
	uint32_t sizebytes; /* sizeof(struct divvy_client) */
	uint64_t token;     /* names this client to a restarted agent */
	uint64_t turn;      /* agent: number of this process among those that take turns; never 0 */
	uint64_t reserved[4];
	struct divvy_client_card card[DIVVY_MAX_CARDS];
};

/*
 * Messages. A SOCK_SEQPACKET unix socket carries one struct divvy_message per
 * packet, in both directions; any other length is a protocol error and ends
 * the connection. A descriptor comes with DIVVY_WELCOME and DIVVY_NAME_DESCRIPTOR only.
 * The process sends one request at a time and waits for the
 * answer with the same sequence number; DIVVY_EVENT is not answered.
 */
#define DIVVY_HELLO 1u     /* process: versions, token and in-use bytes when it re-attaches (bytes[slot]) */
#define DIVVY_WELCOME 2u   /* agent: two descriptors, limits page then client page */
#define DIVVY_REFUSED 3u   /* agent: status and text say why; the connection ends */
#define DIVVY_CHARGE 4u    /* process: wants amount bytes on slot; text: the call */
#define DIVVY_CHARGED 5u   /* agent: granted, and already in use (granted grew, credit did not) */
#define DIVVY_DENIED 6u    /* agent: no room; usedbytes is exact as of now */
/*
 * process: sum usedbytes again on slot. It may also come before HELLO, and is
 * then answered at once: so a process that re-attaches finds out whether an
 * agent is there (a listening socket outlives its agent) before it sets its
 * credit aside to report what is in use.
 */
#define DIVVY_SYNC 7u
#define DIVVY_SYNCED 8u    /* agent: done */
#define DIVVY_MEASURE 9u   /* process: what does the driver say this process holds on slot? */
#define DIVVY_MEASURED 10u /* agent: amount, or status DIVVY_STATUS_UNKNOWN */
#define DIVVY_EVENT 11u    /* process: kind and text, for the event log */
#define DIVVY_PROCESSES 12u /* process: which processes of the share use slot? amount: index of the first one wanted */
/*
 * agent: amount is how many there are in all. From the wanted index up to
 * DIVVY_PROCESSES_PER_MESSAGE of them: bytes[] holds what each uses on slot,
 * text their process ids as uint32_t, 0 after the last. An id is the one the
 * asking process sees where both live in one pid namespace, else the agent's.
 */
#define DIVVY_PROCESSED 13u
#define DIVVY_PROCESSES_PER_MESSAGE 8u
#define DIVVY_LEASE_WANT 14u /* process: its launches on slot wait for a lease; not answered */
#define DIVVY_LEASE_BACK 15u /* process: nothing is in flight on slot; not answered */
/*
 * process: amount bytes on slot, which it is charged for, can be held by others from now
 * on, who find them by a name. kind: DIVVY_NAME_*; token: the number that they have got
 * already, 0 for the first name. What has a number is charged once in each share that
 * holds it, on the page of a process that does; the agent moves it from one to another,
 * and nobody but the agent takes it off a page.
 */
#define DIVVY_NAME 16u
#define DIVVY_NAMED 17u    /* agent: token is the number; DIVVY_STATUS_BUSY: there is no place */
/*
 * process: is about to hold what has a name, once more if it does already; text from
 * DIVVY_NAME_TEXT_BYTES on: the call
 */
#define DIVVY_IMPORT 18u
#define DIVVY_IMPORTED 19u /* agent: token, amount and slot of it; token 0: nobody has named it. Or DIVVY_DENIED */
#define DIVVY_RELEASE 20u  /* process: holds number token once less */
#define DIVVY_RELEASED 21u /* agent: DIVVY_STATUS_UNKNOWN: it did not hold it */

/* message.status */
#define DIVVY_STATUS_OK 0u
#define DIVVY_STATUS_NO_ROOM 1u
#define DIVVY_STATUS_VERSION 2u  /* library and agent speak different versions */
#define DIVVY_STATUS_GONE 3u     /* the share does not exist any more */
#define DIVVY_STATUS_BUSY 4u     /* too many clients */
#define DIVVY_STATUS_PROTOCOL 5u /* the message made no sense */
#define DIVVY_STATUS_UNKNOWN 6u  /* the driver does not tell */
#define DIVVY_STATUS_NOT_YOURS 7u /* the share is for another user */

/* message.kind of DIVVY_CHARGE */
#define DIVVY_CHARGE_FINAL 1u /* when denied, so is the program: counted and told. Without it the process makes room and asks again */

/* message.kind of DIVVY_NAME and DIVVY_IMPORT */
#define DIVVY_NAME_DESCRIPTOR 1u /* a descriptor that comes with the message */
#define DIVVY_NAME_IPC 2u        /* a CUipcMemHandle, in text, as the next two */
#define DIVVY_NAME_POINTER 3u    /* a CUmemPoolPtrExportData: part of a pool, which its maker is charged for */
#define DIVVY_NAME_FABRIC 4u     /* a CUmemFabricHandle */
#define DIVVY_NAME_TEXT_BYTES 64u

/* message.kind of DIVVY_EVENT */
#define DIVVY_EVENT_UNCLASSIFIED 16u /* text: symbol that the list lacks */
#define DIVVY_EVENT_SELF_OPEN 17u    /* the driver directory holds the front itself */
#define DIVVY_EVENT_NO_DRIVER 18u    /* text: why the driver could not be opened */
#define DIVVY_EVENT_HIDDEN 20u       /* text: the share's card is not visible to this process */
#define DIVVY_EVENT_DRIVER_OOM 21u   /* the driver refused amount bytes on slot though the quota had room */
#define DIVVY_EVENT_FOREIGN 22u      /* text: the driver shows this process cards that are not the share's */

struct divvy_message {
	uint32_t magic;    /* DIVVY_MESSAGE_MAGIC */
	uint16_t type;     /* DIVVY_HELLO ... */
	uint16_t version;  /* DIVVY_WIRE_VERSION */
	uint32_t sequence; /* of the request */
	uint32_t status;   /* DIVVY_STATUS_* */
	uint32_t slot;     /* card slot, below limits.cards: any other one ends the connection */
	uint32_t kind;     /* DIVVY_CHARGE_FINAL, DIVVY_EVENT_*, DIVVY_NAME_* */
	uint64_t amount;   /* bytes */
	uint64_t token;    /* 0, or the one of the client page a process comes back with; or a number (DIVVY_NAME) */
	uint32_t pid;      /* as the process sees it: a label, never an identity */
	uint32_t reserved;
	uint8_t buildid[DIVVY_BUILD_ID_BYTES]; /* of the front library; zero if it has none */
	uint32_t reserved2;
	uint64_t bytes[DIVVY_MAX_CARDS]; /* DIVVY_HELLO: in use per slot when it re-attaches */
	char text[DIVVY_TEXT_BYTES];     /* NUL-terminated */
};

_Static_assert(sizeof(struct divvy_limits_card) == 128, "limits card");
_Static_assert(offsetof(struct divvy_limits_card, limitbytes) == 16, "limits card limit");
_Static_assert(offsetof(struct divvy_limits_card, flags) == 48, "limits card flags");
_Static_assert(offsetof(struct divvy_limits_card, gated) == 64, "limits card gated");
_Static_assert(offsetof(struct divvy_limits_card, leaseword) == 68, "limits card lease word");
_Static_assert(offsetof(struct divvy_limits_card, leaseendns) == 72, "limits card lease");
_Static_assert(offsetof(struct divvy_limits_card, backlogns) == 96, "limits card backlog");
_Static_assert(sizeof(struct divvy_limits) == 128 + 8 * 128, "limits");
_Static_assert(offsetof(struct divvy_limits, name) == 32, "limits name");
_Static_assert(offsetof(struct divvy_limits, card) == 128, "limits card");
_Static_assert(sizeof(struct divvy_client_card) == 112, "client card");
_Static_assert(offsetof(struct divvy_client_card, busyns) == 40, "client card busy");
_Static_assert(offsetof(struct divvy_client_card, latens) == 72, "client card late");
_Static_assert(sizeof(struct divvy_client) == 64 + 8 * 112, "client");
_Static_assert(offsetof(struct divvy_client, card) == 64, "client card");
_Static_assert(sizeof(struct divvy_message) == 232, "message");
_Static_assert(offsetof(struct divvy_message, bytes) == 72, "message bytes");
_Static_assert(offsetof(struct divvy_message, text) == 136, "message text");
_Static_assert(sizeof(struct divvy_limits) <= DIVVY_PAGE_BYTES, "limits fit a page");
_Static_assert(sizeof(struct divvy_client) <= DIVVY_PAGE_BYTES, "client fits a page");

#endif
