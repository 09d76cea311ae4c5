/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"
#include "divvy_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MOST_CLIENTS 600
#define EVENT_KINDS 32
#define SEAL_FUTURE_WRITE 0x0010

struct client {
	int fd;
	uint32_t pid;
	bool welcome;
	struct divvy_client *page;
};

struct agent {
	struct agent_share share;
	int listener;
	int stop;
	pthread_t thread;
	pthread_mutex_t mutex; /* guards what follows */
	bool paused;
	struct divvy_limits *limits;
	int limitsfd;
	unsigned clients;
	unsigned attached;
	uint64_t charges;
	unsigned denials; /* that were final */
	struct divvy_message denied; /* the last of these */
	unsigned events[EVENT_KINDS];
	struct divvy_message last[EVENT_KINDS];
	struct client client[MOST_CLIENTS];
};

static void must(bool good, const char *what)
{
	if (!good) {
		fprintf(stderr, "test agent: %s: %s\n", what, strerror(errno));
		abort();
	}
}

static void *page_new(const char *name, int *fd)
{
	void *page;

	*fd = (int)syscall(SYS_memfd_create, name, 1u | 2u /* MFD_CLOEXEC | MFD_ALLOW_SEALING */);
	must(*fd >= 0 && ftruncate(*fd, DIVVY_PAGE_BYTES) == 0, "memfd");
	page = mmap(NULL, DIVVY_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	must(page != MAP_FAILED, "mmap");
	return page;
}

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint64_t in_use(const struct divvy_client *page, unsigned slot)
{
	return divvy_memory_used(load(&page->card[slot].memory));
}

static uint64_t granted_all(struct agent *agent, unsigned slot)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < agent->clients; i++) {
		if (agent->client[i].welcome)
			sum += divvy_memory_granted(load(&agent->client[i].page->card[slot].memory));
	}
	return sum;
}

static uint64_t used_all(struct agent *agent, unsigned slot)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < agent->clients; i++) {
		if (agent->client[i].welcome)
			sum += in_use(agent->client[i].page, slot);
	}
	return sum;
}

static void stamp(struct agent *agent, unsigned slot)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	__atomic_store_n(&agent->limits->card[slot].usedbytes, used_all(agent, slot), __ATOMIC_RELAXED);
	__atomic_store_n(&agent->limits->card[slot].stampns, (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec,
			 __ATOMIC_RELEASE);
}

/* Takes up to bytes of unused credit from a page, and from what it was granted. */
static uint64_t recall(struct divvy_client *page, unsigned slot, uint64_t bytes)
{
	uint64_t word = load(&page->card[slot].memory);
	uint64_t units;

	do {
		units = word & DIVVY_MEMORY_CREDIT;
		if (units > divvy_memory_units(bytes))
			units = divvy_memory_units(bytes);
	} while (!__atomic_compare_exchange_n(&page->card[slot].memory, &word, word - units - (units << DIVVY_MEMORY_BITS), false,
					      __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	return units * DIVVY_ALLOCATION_UNIT;
}

/* All or nothing: own credit, then what nobody has, then the others' credit. */
static bool grant(struct agent *agent, struct client *client, unsigned slot, uint64_t bytes)
{
	uint64_t limit = agent->limits->card[slot].limitbytes;
	uint64_t *word = &client->page->card[slot].memory;
	uint64_t have = recall(client->page, slot, bytes);
	uint64_t given = granted_all(agent, slot) + have;
	uint64_t pool = limit > given ? limit - given : 0;
	uint64_t flip;

	have += pool < bytes - have ? pool : bytes - have;
	for (unsigned i = 0; i < agent->clients && have < bytes; i++) {
		if (agent->client[i].welcome)
			have += recall(agent->client[i].page, slot, bytes - have);
	}
	if (have < bytes || used_all(agent, slot) + bytes > limit)
		return false; /* what was recalled is in the pool now */
	/* in one step with the mark, which only we flip */
	flip = (load(word) & DIVVY_MEMORY_MARK) != 0 ? -DIVVY_MEMORY_MARK : DIVVY_MEMORY_MARK;
	__atomic_fetch_add(word, divvy_memory_granted_units(bytes) + flip, __ATOMIC_ACQ_REL);
	return true;
}

static void answer(const struct client *client, struct divvy_message *message, const int *fds)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec body = {.iov_base = message, .iov_len = sizeof(*message)};
	struct msghdr packet = {.msg_iov = &body, .msg_iovlen = 1};

	message->magic = DIVVY_MESSAGE_MAGIC;
	message->version = DIVVY_WIRE_VERSION;
	if (fds != NULL) {
		packet.msg_control = &control;
		packet.msg_controllen = sizeof(control);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(2 * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, 2 * sizeof(int));
	}
	if (sendmsg(client->fd, &packet, MSG_NOSIGNAL) < 0)
		return; /* it has gone, and poll will say so */
}

static void welcome(struct agent *agent, struct client *client, struct divvy_message *message)
{
	int fds[2];

	client->page = page_new("divvy client", &fds[1]);
	must(fcntl(fds[1], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0, "seal");
	client->page->magic = DIVVY_CLIENT_MAGIC;
	client->page->version = DIVVY_WIRE_VERSION;
	client->page->sizebytes = sizeof(*client->page);
	client->page->token = ++agent->attached;
	for (unsigned slot = 0; slot < agent->limits->cards; slot++) {
		uint64_t limit = agent->limits->card[slot].limitbytes;
		uint64_t given = granted_all(agent, slot);
		uint64_t left = limit > given ? limit - given : 0;
		uint64_t credit = agent->share.firstcredit != 0 ? agent->share.firstcredit : agent->clients == 1 ? left : 0;

		if (message->token != 0) {
			client->page->card[slot].memory = divvy_memory_granted_units(message->bytes[slot]);
			credit = 0;
		}
		credit = credit < left ? credit : left;
		client->page->card[slot].memory += divvy_memory_granted_units(credit) + divvy_memory_units(credit);
	}
	client->pid = message->pid;
	client->welcome = true;
	__atomic_fetch_add(&agent->limits->clients, 1, __ATOMIC_RELEASE);
	message->type = DIVVY_WELCOME;
	fds[0] = agent->limitsfd;
	answer(client, message, fds);
	close(fds[1]);
}

static void processes(struct agent *agent, struct divvy_message *message)
{
	uint32_t pids[DIVVY_PROCESSES_PER_MESSAGE] = {0};
	uint64_t first = message->amount;
	unsigned seen = 0, put = 0;

	memset(message->bytes, 0, sizeof(message->bytes));
	for (unsigned i = 0; i < agent->clients; i++) {
		if (!agent->client[i].welcome)
			continue;
		if (seen++ < first || put == DIVVY_PROCESSES_PER_MESSAGE)
			continue;
		pids[put] = agent->client[i].pid;
		message->bytes[put++] = in_use(agent->client[i].page, message->slot);
	}
	memset(message->text, 0, sizeof(message->text));
	memcpy(message->text, pids, sizeof(pids));
	message->amount = seen;
	message->type = DIVVY_PROCESSED;
}

/* False: hang up. */
static bool serve(struct agent *agent, struct client *client, struct divvy_message *message)
{
	unsigned slot = message->slot;

	if (slot >= agent->limits->cards)
		return false;
	message->status = DIVVY_STATUS_OK;
	switch (message->type) {
	case DIVVY_HELLO:
		if (agent->share.dieonhello != 0) {
			agent->share.dieonhello--;
			return false;
		}
		if (agent->share.refuse != 0) {
			message->type = DIVVY_REFUSED;
			message->status = agent->share.refuse;
			snprintf(message->text, sizeof(message->text), "refused by the test");
			break;
		}
		welcome(agent, client, message);
		return true;
	case DIVVY_CHARGE:
		agent->charges++;
		if (!client->welcome)
			return false;
		if (grant(agent, client, slot, message->amount)) {
			message->type = DIVVY_CHARGED;
			if (agent->share.halfway)
				return false;
		} else {
			if (message->kind == DIVVY_CHARGE_FINAL) {
				agent->denials++;
				agent->denied = *message;
			}
			message->type = DIVVY_DENIED;
			message->status = DIVVY_STATUS_NO_ROOM;
		}
		stamp(agent, slot);
		break;
	case DIVVY_SYNC:
		stamp(agent, slot);
		message->type = DIVVY_SYNCED;
		break;
	case DIVVY_MEASURE:
		message->type = DIVVY_MEASURED;
		message->amount = agent->share.measured;
		message->status = agent->share.measured != 0 ? DIVVY_STATUS_OK : DIVVY_STATUS_UNKNOWN;
		break;
	case DIVVY_PROCESSES:
		processes(agent, message);
		break;
	case DIVVY_EVENT:
		if (message->kind < EVENT_KINDS) {
			agent->events[message->kind]++;
			agent->last[message->kind] = *message;
		}
		return true;
	default:
		return false;
	}
	answer(client, message, NULL);
	return true;
}

static void forget(struct agent *agent, unsigned i)
{
	struct client *client = &agent->client[i];

	close(client->fd);
	if (client->welcome) {
		munmap(client->page, DIVVY_PAGE_BYTES);
		__atomic_fetch_sub(&agent->limits->clients, 1, __ATOMIC_RELEASE);
	}
	agent->client[i] = agent->client[--agent->clients];
}

static void *run(void *argument)
{
	struct agent *agent = argument;
	struct pollfd poller[MOST_CLIENTS + 2];

	for (;;) {
		unsigned clients = agent->clients;

		poller[0] = (struct pollfd){.fd = agent->stop, .events = POLLIN};
		poller[1] = (struct pollfd){.fd = agent->listener, .events = POLLIN};
		for (unsigned i = 0; i < clients; i++)
			poller[2 + i] = (struct pollfd){.fd = agent->client[i].fd, .events = POLLIN};
		must(poll(poller, clients + 2, -1) > 0 || errno == EINTR, "poll");
		if (poller[0].revents != 0)
			return NULL;
		pthread_mutex_lock(&agent->mutex);
		while (agent->paused) {
			struct timespec nap = {.tv_nsec = 1000000};

			pthread_mutex_unlock(&agent->mutex);
			nanosleep(&nap, NULL);
			pthread_mutex_lock(&agent->mutex);
		}
		for (unsigned i = clients; i-- > 0;) {
			struct divvy_message message;

			if (poller[2 + i].revents == 0)
				continue;
			if (recv(agent->client[i].fd, &message, sizeof(message), MSG_DONTWAIT) != sizeof(message)) {
				forget(agent, i);
				continue;
			}
			if (!agent->share.mute && !serve(agent, &agent->client[i], &message))
				forget(agent, i);
		}
		if (poller[1].revents != 0 && agent->clients < MOST_CLIENTS) {
			int fd = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC);

			if (fd >= 0)
				agent->client[agent->clients++] = (struct client){.fd = fd};
		}
		pthread_mutex_unlock(&agent->mutex);
	}
}

struct agent *agent_start(const struct agent_share *share)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct agent *agent = calloc(1, sizeof(*agent));

	must(agent != NULL, "calloc");
	agent->share = *share;
	pthread_mutex_init(&agent->mutex, NULL);
	agent->limits = page_new("divvy limits", &agent->limitsfd);
	must(fcntl(agent->limitsfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | SEAL_FUTURE_WRITE) == 0 &&
		     fcntl(agent->limitsfd, F_ADD_SEALS, F_SEAL_SEAL) == 0,
	     "seal");
	agent->limits->magic = DIVVY_LIMITS_MAGIC;
	agent->limits->version = DIVVY_WIRE_VERSION;
	agent->limits->sizebytes = sizeof(*agent->limits);
	agent->limits->cards = share->cards != 0 ? share->cards : 1;
	snprintf(agent->limits->name, sizeof(agent->limits->name), "test");
	for (unsigned slot = 0; slot < agent->limits->cards; slot++) {
		struct divvy_limits_card *card = &agent->limits->card[slot];

		memcpy(card->uuid, share->uuid[slot], sizeof(card->uuid));
		for (unsigned i = 0; i < sizeof(card->uuid) && share->uuid[0][0] == 0 && share->uuid[0][1] == 0; i++)
			card->uuid[i] = (uint8_t)(i + 16 * slot);
		card->limitbytes = share->limitbytes;
		card->contextbytes = share->contextbytes;
		card->flags = share->unlimited ? DIVVY_CARD_UNLIMITED : 0;
		card->corespercent = 100;
		stamp(agent, slot);
	}
	agent->stop = eventfd(0, EFD_CLOEXEC);
	agent->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	must(agent->stop >= 0 && agent->listener >= 0 && strlen(share->path) < sizeof(address.sun_path), "socket");
	strcpy(address.sun_path, share->path);
	unlink(share->path);
	must(bind(agent->listener, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(agent->listener, 1024) == 0,
	     "listen");
	must(pthread_create(&agent->thread, NULL, run, agent) == 0, "thread");
	return agent;
}

void agent_stop(struct agent *agent)
{
	uint64_t one = 1;

	must(write(agent->stop, &one, sizeof(one)) == sizeof(one), "stop");
	pthread_join(agent->thread, NULL);
	unlink(agent->share.path);
	close(agent->listener);
	while (agent->clients > 0)
		forget(agent, agent->clients - 1);
	close(agent->stop);
	close(agent->limitsfd);
	munmap(agent->limits, DIVVY_PAGE_BYTES);
	pthread_mutex_destroy(&agent->mutex);
	free(agent);
}

uint64_t agent_in_use(struct agent *agent, unsigned slot)
{
	uint64_t used;

	pthread_mutex_lock(&agent->mutex);
	used = used_all(agent, slot);
	pthread_mutex_unlock(&agent->mutex);
	return used;
}

unsigned agent_clients(struct agent *agent)
{
	return __atomic_load_n(&agent->limits->clients, __ATOMIC_ACQUIRE);
}

unsigned agent_attached(struct agent *agent)
{
	unsigned attached;

	pthread_mutex_lock(&agent->mutex);
	attached = agent->attached;
	pthread_mutex_unlock(&agent->mutex);
	return attached;
}

uint64_t agent_counter(struct agent *agent, unsigned slot, size_t offset)
{
	uint64_t sum = 0;

	pthread_mutex_lock(&agent->mutex);
	for (unsigned i = 0; i < agent->clients; i++) {
		if (agent->client[i].welcome)
			sum += load((const uint64_t *)((const char *)&agent->client[i].page->card[slot] + offset));
	}
	pthread_mutex_unlock(&agent->mutex);
	return sum;
}

unsigned agent_events(struct agent *agent, unsigned kind, struct divvy_message *last)
{
	unsigned events;

	pthread_mutex_lock(&agent->mutex);
	events = agent->events[kind];
	if (last != NULL)
		*last = agent->last[kind];
	pthread_mutex_unlock(&agent->mutex);
	return events;
}

void agent_set_tight(struct agent *agent, bool tight)
{
	for (unsigned slot = 0; slot < agent->limits->cards; slot++)
		__atomic_store_n(&agent->limits->card[slot].flags, tight ? DIVVY_CARD_TIGHT : 0, __ATOMIC_RELEASE);
}

void agent_set_limit(struct agent *agent, uint64_t limitbytes)
{
	pthread_mutex_lock(&agent->mutex);
	for (unsigned slot = 0; slot < agent->limits->cards; slot++)
		__atomic_store_n(&agent->limits->card[slot].limitbytes, limitbytes, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&agent->mutex);
}

unsigned agent_denials(struct agent *agent, struct divvy_message *last)
{
	unsigned denials;

	pthread_mutex_lock(&agent->mutex);
	denials = agent->denials;
	*last = agent->denied;
	pthread_mutex_unlock(&agent->mutex);
	return denials;
}

uint64_t agent_charges(struct agent *agent)
{
	uint64_t charges;

	pthread_mutex_lock(&agent->mutex);
	charges = agent->charges;
	pthread_mutex_unlock(&agent->mutex);
	return charges;
}

static void set_paused(struct agent *agent, bool paused)
{
	pthread_mutex_lock(&agent->mutex);
	agent->paused = paused;
	pthread_mutex_unlock(&agent->mutex);
}

void agent_pause(struct agent *agent)
{
	set_paused(agent, true);
}

void agent_resume(struct agent *agent)
{
	set_paused(agent, false);
}
