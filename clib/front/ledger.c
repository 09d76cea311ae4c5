/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attach.h"
#include "clock.h"
#include "thread.h"

#define OLD_PAGES 64
#define AWAY_NS (3 * 1000000000ull)        /* how long a charge waits for an agent that has gone */
#define ANSWER_MS 3000                     /* how long for one that is there */
#define SILENCE_MS 1000                    /* without an answer for so long it may be stopped, and is asked */
#define SIGN_MS 500                        /* whether it is, for so long */
#define FIRST_ANSWER_MS 10000              /* of a new process: an agent may be starting */
#define PROBE_MS 50                        /* at most this long at a time with the mutex held */
#define WATCH_MS 1000                      /* a program that closed our descriptor is found after this */
#define FIRST_PROBES 20                    /* so many before the first charge, which uses credit of before */
#define SHORTEST_PAUSE_NS 1000000ull
#define LONGEST_PAUSE_NS 100000000ull
#define REFUSED_PAUSE_NS 2000000000ull

/* Wiped in a forked child, mutexes and all: zeros are an unlocked mutex. */
struct process {
	uint32_t live;
	uint32_t watched;      /* the monitor thread has been started */
	pthread_mutex_t start; /* attaching, and whatever happens once per process */
	pthread_mutex_t mutex; /* the ledger below; taken after start */
};

struct ledger {
	struct front_agent agent;
	bool probing;          /* connected and asked, and no answer yet */
	bool refused;          /* the agent is there and does not want us */
	uint64_t awaysince;    /* when the connection was found broken; 0: it is not */
	uint64_t pause;        /* between two tries to attach */
	uint64_t token;
	struct {
		uint64_t bytes; /* of a CHARGE without an answer, which its agent may still grant; 0: none */
		unsigned slot;
		bool mark;      /* of the page then: another one says that it has */
	} owed;
	unsigned olds;         /* pages left behind, oldest first */
	struct front_pages *old[OLD_PAGES];
};

static struct process cold;
static struct process *process = &cold;
static struct ledger ledger;
static bool complained;
static bool aside; /* credit is set aside to report what is in use */

_Static_assert(sizeof(struct process) <= DIVVY_PAGE_BYTES, "fits its page");

uint32_t *front_live = &cold.live;
struct front_pages *front_pages_now;
void (*front_yield)(void);

static const uint32_t ungated;
const uint32_t front_several = 1;
const uint32_t *front_gated = &ungated;

static struct front_pages *pages_now(void)
{
	return __atomic_load_n(&front_pages_now, __ATOMIC_ACQUIRE);
}

/* Who waits for a lease on a page that is not served any more looks again. */
static void wake_waiting(const struct front_pages *pages)
{
	for (unsigned slot = 0; pages != NULL && slot < DIVVY_MAX_CARDS; slot++)
		clock_wake(&pages->limits.card[slot].leaseword, INT32_MAX, true);
}

static void use_pages(struct front_pages *pages)
{
	const uint32_t *gated = &ungated;

	if (pages != NULL)
		gated = pages->limits.cards > 1 ? &front_several : &pages->limits.card[0].gated;
	__atomic_store_n(&front_pages_now, pages, __ATOMIC_RELEASE);
	__atomic_store_n(&front_gated, gated, __ATOMIC_RELEASE);
}

static void sweep_locked(void)
{
	for (unsigned i = 0; i < ledger.olds; i++)
		front_credit_sweep(ledger.old[i], pages_now());
}

static void count(uint64_t *word, uint64_t by)
{
	__atomic_fetch_add(word, by, __ATOMIC_RELAXED);
}

/*
 * The most that was in use, after a take. Not while the credit is set aside;
 * what the agent grants itself it sees itself.
 */
static void keep_peak(struct front_pages *pages, unsigned slot, uint64_t used)
{
	if (!__atomic_load_n(&aside, __ATOMIC_ACQUIRE) && pages == pages_now())
		front_peak_raise(&pages->client.card[slot].peakbytes, used);
}

/* -- attaching ------------------------------------------------------------ */

static void leave_behind_locked(struct front_pages *pages)
{
	if (ledger.olds == OLD_PAGES) {
		/* a thread that slept through 64 restarts of the agent may lose a free: a charge too much, never too little */
		memmove(ledger.old, ledger.old + 1, sizeof(ledger.old) - sizeof(ledger.old[0]));
		ledger.olds--;
	}
	ledger.old[ledger.olds++] = pages;
}

static void broken_locked(void)
{
	front_agent_drop(&ledger.agent);
	ledger.probing = false;
	if (ledger.awaysince == 0) {
		ledger.awaysince = clock_now();
		ledger.pause = SHORTEST_PAUSE_NS;
		wake_waiting(pages_now());
	}
}

static bool attached_locked(void)
{
	if (ledger.probing)
		return false;
	if (front_agent_connected(&ledger.agent))
		return true;
	broken_locked();
	return false;
}

/*
 * A request and its answer. An agent that leaves it open is asked on another connection
 * whether it is there: for one that is stopped nobody waits any longer.
 */
static int exchange_locked(struct divvy_message *message, int fd)
{
	uint64_t begun = clock_now();
	int rc = front_agent_ask(&ledger.agent, message, fd, SILENCE_MS);

	if (rc != -ETIMEDOUT)
		return rc;
	if (front_agent_answers(&ledger.agent, SIGN_MS))
		return front_agent_receive(&ledger.agent, message, ANSWER_MS - SILENCE_MS);
	broken_locked();
	ledger.awaysince = begun;
	return rc;
}

/* Is an agent there? A listening socket outlives its agent, so a connection alone proves nothing. */
static int probe_locked(void)
{
	struct divvy_message message = {.type = DIVVY_SYNC};
	int rc;

	if (!ledger.probing) {
		rc = front_agent_connect(&ledger.agent);
		if (rc == 0)
			rc = front_agent_send(&ledger.agent, &message);
		if (rc < 0)
			goto fail;
		ledger.probing = true;
	}
	rc = front_agent_receive(&ledger.agent, &message, PROBE_MS);
	if (rc == -ETIMEDOUT)
		return rc;
	if (rc < 0)
		goto fail;
	ledger.probing = false;
	return 0;
fail:
	broken_locked();
	return rc;
}

static bool same_cards(const struct divvy_limits *one, const struct divvy_limits *other)
{
	if (one->cards != other->cards)
		return false;
	for (uint32_t slot = 0; slot < one->cards; slot++) {
		if (memcmp(one->card[slot].uuid, other->card[slot].uuid, sizeof(one->card[slot].uuid)) != 0)
			return false;
	}
	return true;
}

static int attach_again_locked(void)
{
	struct front_pages *old = pages_now();
	struct front_pages *fresh = NULL;
	struct divvy_message answer;
	uint64_t credit[DIVVY_MAX_CARDS];
	uint64_t bytes[DIVVY_MAX_CARDS];
	int rc = probe_locked();

	if (rc < 0)
		return rc;
	sweep_locked();
	__atomic_store_n(&aside, true, __ATOMIC_RELEASE);
	for (unsigned slot = 0; slot < DIVVY_MAX_CARDS; slot++) {
		bool mark;

		credit[slot] = front_credit_set_aside(&old->client.card[slot], &bytes[slot], &mark);
		if (ledger.owed.bytes != 0 && ledger.owed.slot == slot && ledger.owed.mark != mark)
			bytes[slot] -= ledger.owed.bytes; /* it was granted when nobody waited for it any more */
	}
	rc = front_agent_hello(&ledger.agent, ledger.token, bytes, ANSWER_MS, &answer, &fresh);
	if (rc == 0 && !same_cards(&old->limits, &fresh->limits)) {
		front_pages_unmap(fresh);
		rc = -EPROTO;
	}
	if (rc < 0) {
		for (unsigned slot = 0; slot < DIVVY_MAX_CARDS; slot++)
			front_credit_put(&old->client.card[slot], credit[slot]);
		__atomic_store_n(&aside, false, __ATOMIC_RELEASE);
		if ((rc == -ECONNREFUSED || rc == -EPROTO) && !ledger.refused) {
			ledger.refused = true;
			front_log("the agent does not take this process back (%s): it gets no more memory",
				  rc == -EPROTO ? "its answer makes no sense" : answer.text);
		}
		broken_locked();
		return rc;
	}
	ledger.token = fresh->client.token;
	ledger.owed.bytes = 0;
	leave_behind_locked(old);
	front_time_carry(old, fresh);
	use_pages(fresh);
	wake_waiting(old);
	__atomic_store_n(&aside, false, __ATOMIC_RELEASE);
	sweep_locked();
	ledger.awaysince = 0;
	ledger.refused = false;
	return 0;
}

/*
 * Owns nothing but the habit of looking: every second, and at once when the
 * agent hangs up.
 */
static void *watch(void *unused)
{
	(void)unused;
	for (;;) {
		struct pollfd hangup = {.fd = -1};
		uint64_t pause = 0;

		pthread_mutex_lock(&process->mutex);
		if (attached_locked()) {
			sweep_locked();
		} else if (attach_again_locked() < 0) {
			pause = ledger.refused ? REFUSED_PAUSE_NS : ledger.pause;
			if (ledger.pause < LONGEST_PAUSE_NS)
				ledger.pause *= 2;
		}
		hangup.fd = ledger.agent.fd;
		pthread_mutex_unlock(&process->mutex);
		if (pause != 0)
			clock_pause(pause);
		else
			poll(&hangup, 1, WATCH_MS);
	}
	return NULL;
}

/*
 * The monitor comes with the first charge or question: programs that do no more
 * than start need none, and start faster. What happened until then it has
 * missed: if the agent was restarted, the credit of before is not to be used
 * without asking. If there can be no thread, a broken connection is found by
 * the next question.
 */
static void watch_begin_locked(void)
{
	if (process->watched)
		return;
	for (int i = 0; i < FIRST_PROBES && !attached_locked(); i++) {
		if (attach_again_locked() != -ETIMEDOUT)
			break;
	}
	__atomic_store_n(&process->watched, 1, __ATOMIC_RELEASE);
	guest_thread_start(watch, NULL);
}

static struct process *process_page(void)
{
	struct process *page = __atomic_load_n(&process, __ATOMIC_ACQUIRE);
	struct process *expected = &cold;

	if (page != &cold)
		return page;
	page = mmap(NULL, DIVVY_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return NULL;
	if (madvise(page, DIVVY_PAGE_BYTES, 18 /* MADV_WIPEONFORK, newer than some libcs */) < 0) {
		munmap(page, DIVVY_PAGE_BYTES);
		return NULL;
	}
	if (!__atomic_compare_exchange_n(&process, &expected, page, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		munmap(page, DIVVY_PAGE_BYTES);
		return expected;
	}
	__atomic_store_n(&front_live, &page->live, __ATOMIC_RELEASE);
	return page;
}

bool front_forked(void)
{
	return pages_now() != NULL && __atomic_load_n(front_live, __ATOMIC_RELAXED) == 0;
}

static void complain(const char *path, int rc, const struct divvy_message *answer)
{
	if (!complained)
		front_log_detached(path, rc, answer);
	complained = true;
}

/*
 * Connect and say HELLO. An agent that dies takes the connections with it that
 * it had accepted, and its successor knows nothing of them; one that is killed
 * whole leaves a socket at which nobody listens until it is started again. Then
 * ask again, for as long as a charge would wait.
 */
static int greet(struct divvy_message *answer, struct front_pages **fresh)
{
	uint64_t begun = clock_now();
	uint64_t pause = SHORTEST_PAUSE_NS;
	int rc;

	for (;;) {
		bool killed;

		rc = front_agent_connect(&ledger.agent);
		killed = rc == -ECONNREFUSED;
		if (rc == 0) {
			rc = front_agent_hello(&ledger.agent, 0, NULL, FIRST_ANSWER_MS, answer, fresh);
			killed = rc == -EPIPE;
		}
		if (rc == 0)
			return 0;
		front_agent_drop(&ledger.agent);
		if (!killed || clock_now() - begun > AWAY_NS)
			return rc;
		clock_pause(pause);
		if (pause < LONGEST_PAUSE_NS)
			pause *= 2;
	}
}

/* With the start mutex held. */
static int attach_first(const char *path, const uint8_t *buildid)
{
	struct divvy_message answer = {.type = 0};
	struct front_pages *fresh = NULL;
	int rc;

	if (pages_now() != NULL) {
		/* forked: close our copy of the parent's socket and forget the rest, which stays mapped */
		front_agent_drop(&ledger.agent);
		memset(&ledger, 0, sizeof(ledger));
		use_pages(NULL);
		__atomic_store_n(&aside, false, __ATOMIC_RELEASE);
		complained = false;
	}
	rc = front_agent_init(&ledger.agent, path, buildid);
	if (rc == 0)
		rc = greet(&answer, &fresh);
	if (rc < 0) {
		complain(path, rc, &answer);
		return rc;
	}
	ledger.token = fresh->client.token;
	use_pages(fresh);
	return 0;
}

int front_attach(const char *path, const uint8_t *buildid)
{
	struct process *mine = process_page();
	int rc = 0;

	if (mine == NULL) {
		complain(path, -ENOMEM, &(struct divvy_message){.type = 0});
		return -ENOMEM;
	}
	if (__atomic_load_n(&mine->live, __ATOMIC_ACQUIRE))
		return 0;
	pthread_mutex_lock(&mine->start);
	if (!mine->live) {
		rc = attach_first(path, buildid);
		if (rc == 0)
			__atomic_store_n(&mine->live, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&mine->start);
	return rc;
}

void front_watch(void)
{
	if (__atomic_load_n(&process->watched, __ATOMIC_RELAXED) || !__atomic_load_n(front_live, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&process->mutex);
	watch_begin_locked();
	pthread_mutex_unlock(&process->mutex);
}

void front_start_lock(void)
{
	pthread_mutex_lock(&process->start);
}

void front_start_unlock(void)
{
	pthread_mutex_unlock(&process->start);
}

/* -- charging ----------------------------------------------------------- */

static bool tight(const struct front_pages *pages, unsigned slot)
{
	return (__atomic_load_n(&pages->limits.card[slot].flags, __ATOMIC_RELAXED) & DIVVY_CARD_TIGHT) != 0;
}

/*
 * One request and its answer. When the connection breaks it attaches again,
 * for as long as the agent may be away; the mutex is let go between tries.
 * -ENOTCONN: no agent. -EINPROGRESS: there is no answer, but the CHARGE is paid:
 * the agent had granted it before it went, or a free has made room meanwhile.
 */
static int ask_locked(struct divvy_message *message, int fd, bool patient)
{
	const struct divvy_message request = *message;
	const bool charge = request.type == DIVVY_CHARGE;
	const unsigned slot = charge ? request.slot : 0; /* only that of a charge has been looked at */
	uint64_t used;

	for (;;) {
		/* whoever cannot wait leaves attaching again to the monitor */
		int rc = attached_locked() ? 0 : patient ? attach_again_locked() : -ENOTCONN;

		if (rc == 0) {
			const struct divvy_client_card *card = &pages_now()->client.card[slot];
			bool mark = front_credit_mark(card);

			*message = request;
			rc = exchange_locked(message, fd);
			if (rc == 0 || rc == -EBADF)
				return rc;
			broken_locked();
			if (charge && front_credit_mark(card) != mark)
				return -EINPROGRESS;
			if (charge) {
				ledger.owed.bytes = divvy_memory_units(request.amount) * DIVVY_ALLOCATION_UNIT;
				ledger.owed.slot = slot;
				ledger.owed.mark = mark;
			}
		}
		if (!patient || ledger.refused || clock_now() - ledger.awaysince > AWAY_NS)
			return -ENOTCONN;
		pthread_mutex_unlock(&process->mutex);
		clock_pause(SHORTEST_PAUSE_NS * 5);
		pthread_mutex_lock(&process->mutex);
		if (charge && !tight(pages_now(), slot) &&
		    front_credit_take(&pages_now()->client.card[slot], request.amount, &used))
			return -EINPROGRESS;
	}
}

static bool take(struct front_pages *pages, unsigned slot, uint64_t bytes)
{
	uint64_t used;

	if (tight(pages, slot) || !front_credit_take(&pages->client.card[slot], bytes, &used))
		return false;
	count(&pages->client.card[slot].allocations, 1);
	keep_peak(pages, slot, used);
	return true;
}

static void text_set(struct divvy_message *message, const char *text)
{
	strncpy(message->text, text, sizeof(message->text) - 1);
}

/*
 * An event is not answered, and a program that it tells of often ends at once:
 * the question after it makes sure that the agent has read it.
 */
static void event_locked(unsigned kind, int slot, uint64_t amount, const char *text)
{
	struct divvy_message message = {.type = DIVVY_EVENT, .kind = kind, .slot = (uint32_t)slot, .amount = amount};
	struct divvy_message question = {.type = DIVVY_SYNC, .slot = (uint32_t)slot};

	int rc;

	text_set(&message, text);
	if (!attached_locked())
		return;
	rc = front_agent_send(&ledger.agent, &message);
	if (rc == 0)
		rc = exchange_locked(&question, -1);
	if (rc < 0 && rc != -EAGAIN)
		broken_locked();
}

/* From credit that has come meanwhile, or from the agent. */
static bool try_locked(int slot, uint64_t bytes, bool final, const char *call)
{
	struct divvy_message message = {.type = DIVVY_CHARGE, .slot = (uint32_t)slot, .amount = bytes};

	message.kind = final ? DIVVY_CHARGE_FINAL : 0;
	int rc;

	text_set(&message, call);
	sweep_locked();
	if (take(pages_now(), (unsigned)slot, bytes))
		return true;
	rc = ask_locked(&message, -1, true);
	if (rc != -EINPROGRESS && (rc != 0 || message.type != DIVVY_CHARGED))
		return false;
	count(&pages_now()->client.card[slot].allocations, 1);
	return true;
}

__attribute__((noinline)) static int charge_slowly(int slot, uint64_t bytes, const char *call)
{
	void (*yield)(void) = __atomic_load_n(&front_yield, __ATOMIC_ACQUIRE);
	bool charged;

	pthread_mutex_lock(&process->mutex);
	watch_begin_locked();
	charged = try_locked(slot, bytes, yield == NULL, call);
	if (!charged && yield != NULL) {
		pthread_mutex_unlock(&process->mutex);
		yield();
		pthread_mutex_lock(&process->mutex);
		charged = try_locked(slot, bytes, true, call);
	}
	pthread_mutex_unlock(&process->mutex);
	return charged ? 0 : -ENOMEM;
}

int front_charge(int slot, uint64_t bytes, const char *call)
{
	struct front_pages *pages = pages_now();

	if ((unsigned)slot >= DIVVY_MAX_CARDS || bytes == 0)
		return 0;
	if (pages == NULL)
		return -ENOMEM;
	if (__atomic_load_n(&process->watched, __ATOMIC_RELAXED) && take(pages, (unsigned)slot, bytes))
		return 0;
	return charge_slowly(slot, bytes, call);
}

void front_refund(int slot, uint64_t bytes)
{
	struct front_pages *pages = pages_now();

	if ((unsigned)slot < DIVVY_MAX_CARDS && pages != NULL)
		front_credit_put(&pages->client.card[slot], bytes);
}

void front_uncharge(int slot, uint64_t bytes)
{
	struct front_pages *pages = pages_now();

	if ((unsigned)slot >= DIVVY_MAX_CARDS || bytes == 0 || pages == NULL)
		return;
	front_credit_put(&pages->client.card[slot], bytes);
	count(&pages->client.card[slot].allocations, (uint64_t)-1);
}

/* -- telling and asking --------------------------------------------------- */

void front_event(unsigned kind, int slot, uint64_t amount, const char *text)
{
	if (!__atomic_load_n(front_live, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&process->mutex);
	event_locked(kind, slot < 0 ? 0 : slot, amount, text);
	pthread_mutex_unlock(&process->mutex);
}

void front_driver_oom(int slot, uint64_t bytes, const char *call)
{
	front_event(DIVVY_EVENT_DRIVER_OOM, slot, bytes, call);
}

int front_ask(struct divvy_message *message)
{
	int rc;

	if (!__atomic_load_n(front_live, __ATOMIC_ACQUIRE))
		return -ENOTCONN;
	pthread_mutex_lock(&process->mutex);
	rc = ask_locked(message, -1, false);
	pthread_mutex_unlock(&process->mutex);
	return rc;
}

int front_ask_surely(struct divvy_message *message, int fd)
{
	int rc;

	if (!__atomic_load_n(front_live, __ATOMIC_ACQUIRE))
		return -ENOTCONN;
	pthread_mutex_lock(&process->mutex);
	watch_begin_locked();
	rc = ask_locked(message, fd, true);
	pthread_mutex_unlock(&process->mutex);
	return rc;
}

int front_tell(struct divvy_message *message)
{
	int rc = -ENOTCONN;

	if (!__atomic_load_n(front_live, __ATOMIC_ACQUIRE))
		return rc;
	pthread_mutex_lock(&process->mutex);
	if (attached_locked())
		rc = front_agent_send(&ledger.agent, message);
	if (rc < 0 && rc != -EAGAIN) {
		broken_locked();
		rc = -ENOTCONN;
	}
	pthread_mutex_unlock(&process->mutex);
	return rc;
}

bool front_there(void)
{
	struct front_pages *pages = pages_now();

	if (!__atomic_load_n(front_live, __ATOMIC_ACQUIRE) || front_agent_answers(&ledger.agent, SIGN_MS))
		return true;
	pthread_mutex_lock(&process->mutex);
	if (pages == pages_now())
		broken_locked();
	pthread_mutex_unlock(&process->mutex);
	return false;
}
