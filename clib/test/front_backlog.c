/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the gate: estimates, backlogs, what intervals cover, and rates. */
#include "backlog.h"
#include "check.h"
#include "estimate.h"

#define US 1000ull
#define MS 1000000ull

static bool near(uint64_t one, uint64_t other, unsigned percent)
{
	uint64_t apart = one > other ? one - other : other - one;

	if (apart * 100 <= other * percent)
		return true;
	fprintf(stderr, "%llu is not near %llu\n", (unsigned long long)one, (unsigned long long)other);
	return false;
}

static int by_size(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;

	return (a > b) - (a < b);
}

static void learns_quantiles(void)
{
	static struct estimates all;
	uint32_t last[ESTIMATE_SAMPLES], sorted[ESTIMATE_SAMPLES];

	srandom(1);
	for (unsigned n = 1; n < 2000; n++) {
		unsigned count = n < ESTIMATE_SAMPLES ? n : ESTIMATE_SAMPLES, below = 0;
		uint32_t ns = 1000 + (uint32_t)(random() % 100000);
		const struct estimate *found;

		last[(n - 1) % ESTIMATE_SAMPLES] = ns;
		memcpy(sorted, last, sizeof(sorted));
		qsort(sorted, count, sizeof(*sorted), by_size);
		estimate_learn(&all, 77, ns);
		found = estimate_find(&all, 77);
		CHECK(found != NULL && found->typical == sorted[count == 2 ? 1 : (count - 1) / 2]);
		for (unsigned i = 0; i < count; i++)
			below += sorted[i] <= found->high;
		CHECK(below * 10 >= count * 9);
		CHECK(found->high == sorted[0] || (unsigned)(below - 1) * 10 < count * 9 || sorted[below - 2] == found->high);
	}
	estimate_learn(&all, 78, 1ull << 60);
	CHECK(estimate_find(&all, 78)->high == UINT32_MAX);
	estimate_learn(&all, 79, 0);
	CHECK(estimate_find(&all, 79)->high == ESTIMATE_LEAST_NS);
}

static void forgets_the_oldest(void)
{
	static struct estimates all;

	for (uint64_t i = 1; i <= ESTIMATE_WAYS; i++)
		estimate_learn(&all, i * ESTIMATE_SETS, 5000);
	estimate_learn(&all, 1 * ESTIMATE_SETS, 5000);
	estimate_learn(&all, 100 * ESTIMATE_SETS, 5000);
	CHECK(estimate_find(&all, 1 * ESTIMATE_SETS) != NULL && estimate_find(&all, 100 * ESTIMATE_SETS) != NULL);
	CHECK(estimate_find(&all, 2 * ESTIMATE_SETS) == NULL);
	for (uint64_t i = 1; i < 100000; i++)
		estimate_learn(&all, i, 5000);
}

static void doubts_long_ones(void)
{
	static struct estimates all;

	for (int i = 0; i < 10; i++)
		estimate_learn(&all, 5, 1 * MS);
	for (unsigned i = 0; i < ESTIMATE_DOUBTS - 1; i++)
		estimate_doubt(&all, 5, 9 * MS);
	CHECK(estimate_find(&all, 5)->high == 1 * MS);
	for (unsigned i = 0; i < 10 * ESTIMATE_DOUBTS; i++)
		estimate_doubt(&all, 5, 9 * MS);
	CHECK(estimate_find(&all, 5)->typical == 9 * MS); /* it really takes longer now */
}

static void times_again_what_is_not_sure(void)
{
	static struct firsts firsts;
	unsigned left = 0, learned = 0;

	/* the thread was stopped in the first call, not in the second */
	CHECK(firsts_note(&firsts, 7, 60 * US, 1 * MS) == 0);
	CHECK(firsts_note(&firsts, 7, 1 * MS, 2 * MS) == 0);
	CHECK(firsts_note(&firsts, 7, 900 * US, 2 * MS) == 1 * MS);
	/* nothing agrees: the least that it can have taken at most */
	for (unsigned i = 1; i < FIRST_TRIES; i++)
		CHECK(firsts_note(&firsts, 7, i % 2 * 10 * US, i * MS) == 0);
	CHECK(firsts_note(&firsts, 7, 100 * US, 9 * MS) == 1 * MS);
	/* of several side by side */
	for (uint64_t key = 1; key <= FIRSTS; key++)
		CHECK(firsts_note(&firsts, key, key * US, 1 * MS) == 0);
	for (uint64_t key = 1; key <= FIRSTS; key++)
		CHECK(firsts_note(&firsts, key, key * US, 1 * MS) == key * US);
	/* of more than there are places: none is timed for ever */
	for (uint64_t key = 1; key <= 3 * FIRSTS; key++)
		left += firsts_note(&firsts, key, key * US, 1 * MS) == 0;
	for (unsigned round = 0; round < 4; round++) {
		for (uint64_t key = 1; key <= 3 * FIRSTS; key++)
			learned += firsts_note(&firsts, key, key * US, 1 * MS) != 0;
	}
	CHECK(left == 3 * FIRSTS && learned >= 3 * FIRSTS);
	/* never more than it can have taken */
	memset(&firsts, 0, sizeof(firsts));
	CHECK(firsts_note(&firsts, 7, 900 * US, 2 * MS) == 0 && firsts_note(&firsts, 7, 500 * US, 800 * US) == 800 * US);
}

static void covers_once(void)
{
	enum { DOMAIN_NS = 4000 };
	static bool covered[DOMAIN_NS];

	srandom(2);
	for (int round = 0; round < 500; round++) {
		struct cover cover = {.count = 0};
		uint64_t sum = 0, truth = 0;
		int64_t at = 0;

		memset(covered, 0, sizeof(covered));
		while (at < DOMAIN_NS - 400) {
			/* as streams do: near the latest, in any order */
			int64_t from = at - random() % 50, to;

			from = from < 0 ? 0 : from;
			to = from + random() % 120;
			sum += cover_add(&cover, from, to);
			for (int64_t i = from; i < to; i++) {
				truth += !covered[i];
				covered[i] = true;
			}
			at += random() % 60;
		}
		CHECK(sum == truth);
	}
	CHECK(cover_add(&(struct cover){.count = 0}, 10, 10) == 0);
	CHECK(cover_add(&(struct cover){.count = 0}, 10, 5) == 0);
}

/* Of 100 to 200 wake-ups the second latest; what was before that is forgotten. */
static void knows_how_late_it_wakes(void)
{
	struct lateness lateness = {0};

	CHECK(lateness_of(&lateness) == 0);
	lateness_note(&lateness, 9 * MS);
	CHECK(lateness_of(&lateness) == 0); /* one alone is rare */
	lateness_note(&lateness, 3 * MS);
	CHECK(lateness_of(&lateness) == 3 * MS);
	for (unsigned i = 2; i < LATENESS_WAKES; i++)
		lateness_note(&lateness, i * 1000);
	lateness_note(&lateness, 4 * MS);
	CHECK(lateness_of(&lateness) == 4 * MS); /* beside 9 ms of the round before */
	lateness_note(&lateness, 10 * MS);
	CHECK(lateness_of(&lateness) == 9 * MS);
	for (unsigned i = 0; i < 2 * LATENESS_WAKES; i++)
		lateness_note(&lateness, 1 * MS);
	CHECK(lateness_of(&lateness) == 1 * MS);
}

static void admits(void)
{
	struct backlog backlog = {.busy = 0};
	uint64_t until = 0;

	CHECK(backlog_admit(&backlog, 100 * MS, 0, 5 * MS, 5 * MS / 2, &until) == BACKLOG_LEASE);
	CHECK(backlog_admit(&backlog, 100 * MS, 100 * MS, 5 * MS, 5 * MS / 2, &until) == BACKLOG_LEASE);
	CHECK(backlog_admit(&backlog, 100 * MS, 101 * MS, 5 * MS, 5 * MS / 2, &until) == BACKLOG_GO);
	backlog_submit(&backlog, 100 * MS, 20 * MS); /* one kernel may be longer than all */
	CHECK(backlog_admit(&backlog, 100 * MS, UINT64_MAX, 5 * MS, 5 * MS / 2, &until) == BACKLOG_FULL && until > 115 * MS && until < 120 * MS);
	CHECK(backlog_admit(&backlog, 100 * MS, 110 * MS, 5 * MS, 5 * MS / 2, &until) == BACKLOG_LEASE);
	CHECK(backlog_admit(&backlog, 116 * MS, 130 * MS, 5 * MS, 5 * MS / 2, &until) == BACKLOG_GO);
	backlog_unspent(&backlog, 10 * MS);
	CHECK(backlog.inflight == 10 * MS && backlog.drain == 110 * MS);
	backlog_done(&backlog, 30 * MS, 7 * MS); /* more than there was */
	CHECK(backlog.inflight == 0 && backlog.busy == 7 * MS);
	CHECK(backlog_admit(&backlog, 100 * MS, UINT64_MAX, 0, 0, &until) == BACKLOG_GO);
}

static void looks_ahead(void)
{
	struct backlog backlog = {.lastend = 100 * MS, .inflight = 3 * MS};

	backlog_look(&backlog, 100 * MS + 1, 1 * MS, 0);
	CHECK(backlog.drain == 103 * MS);
	backlog_look(&backlog, 102 * MS, 1 * MS, 0); /* the first one takes longer than was thought */
	CHECK(backlog.drain == 104 * MS);
	backlog.lastend = 200 * MS;
	backlog_look(&backlog, 102 * MS, 1 * MS, 0);
	CHECK(backlog.drain == 105 * MS);
	backlog.inflight = 0;
	backlog_look(&backlog, 106 * MS, 0, 0);
	CHECK(backlog.drain == 106 * MS);
	/* after a pause: it began when it was launched, and takes as long as was thought */
	backlog = (struct backlog){.lastend = 100 * MS, .inflight = 20 * MS};
	backlog_look(&backlog, 503 * MS, 20 * MS, 500 * MS);
	CHECK(backlog.drain == 520 * MS);
}

static void keeps_a_rate(void)
{
	struct backlog backlog = {.busy = 12345};
	struct bucket bucket = {.since = 0};
	uint64_t now = 5 * MS, start = now, before = backlog.busy;

	while (now < start + 10000 * MS) {
		uint64_t wait = bucket_admit(&bucket, &backlog, now, 3000);

		if (wait == 0) {
			backlog.busy += 1 * MS;
			now += 1 * MS;
		} else {
			CHECK(wait < 1000 * MS);
			now += wait;
		}
	}
	CHECK(near(backlog.busy - before, 3000 * MS, 1));
	now += 100000 * MS; /* what was not used is not saved */
	before = backlog.busy;
	for (int i = 0; bucket_admit(&bucket, &backlog, now, 3000) == 0 && i < 1000; i++)
		backlog.busy += 1 * MS;
	CHECK(backlog.busy - before <= 11 * MS);
}

static const struct scenario scenarios[] = {
	{"learns quantiles", learns_quantiles},
	{"forgets the oldest", forgets_the_oldest},
	{"doubts long ones", doubts_long_ones},
	{"times again what is not sure", times_again_what_is_not_sure},
	{"covers once", covers_once},
	{"admits", admits},
	{"knows how late it wakes", knows_how_late_it_wakes},
	{"looks ahead", looks_ahead},
	{"keeps a rate", keeps_a_rate},
};

RUN_SCENARIOS(scenarios)
