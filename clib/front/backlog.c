/* SPDX-License-Identifier: Apache-2.0 */
#include "backlog.h"

static uint64_t ahead(const struct backlog *backlog, uint64_t now)
{
	return backlog->inflight != 0 && backlog->drain > now ? backlog->drain - now : 0;
}

enum backlog_verdict backlog_admit(const struct backlog *backlog, uint64_t now, uint64_t leaseend, uint64_t most, uint64_t refill,
				   uint64_t *until)
{
	uint64_t left = ahead(backlog, now);

	if (leaseend <= now || left >= leaseend - now)
		return BACKLOG_LEASE;
	if (left >= most && backlog->inflight != 0) {
		*until = backlog->drain - refill;
		return BACKLOG_FULL;
	}
	return BACKLOG_GO;
}

uint64_t backlog_room(const struct backlog *backlog, uint64_t now, uint64_t leaseend, uint64_t all, uint64_t least, uint64_t most)
{
	uint64_t left = ahead(backlog, now);
	uint64_t room = all > left ? all - left : 0;
	uint64_t lease = leaseend > now && leaseend - now > left ? leaseend - now - left : 0;

	if (room > lease)
		room = lease;
	if (room > most)
		room = most;
	return room > least ? room : least;
}

void backlog_submit(struct backlog *backlog, uint64_t now, uint64_t ns)
{
	if (backlog->drain < now || backlog->inflight == 0)
		backlog->drain = now;
	backlog->drain += ns;
	backlog->inflight += ns;
}

void backlog_unspent(struct backlog *backlog, uint64_t ns)
{
	backlog->inflight -= ns < backlog->inflight ? ns : backlog->inflight;
	backlog->drain -= ns < backlog->drain ? ns : backlog->drain;
}

void backlog_done(struct backlog *backlog, uint64_t ns, uint64_t took)
{
	backlog->busy += took;
	backlog->inflight -= ns < backlog->inflight ? ns : backlog->inflight;
}

void backlog_look(struct backlog *backlog, uint64_t now, uint64_t oldest, uint64_t opened)
{
	uint64_t least, most;

	if (backlog->inflight == 0) {
		backlog->drain = now;
		return;
	}
	most = now + backlog->inflight;
	least = oldest < backlog->inflight ? most - oldest : now;
	backlog->drain = (backlog->lastend > opened ? backlog->lastend : opened) + backlog->inflight;
	if (backlog->drain < least)
		backlog->drain = least;
	if (backlog->drain > most)
		backlog->drain = most;
}

void lateness_note(struct lateness *lateness, uint64_t ns)
{
	uint64_t *most = lateness->most[0];

	if (lateness->count == LATENESS_WAKES) {
		lateness->most[1][0] = most[0];
		lateness->most[1][1] = most[1];
		most[0] = most[1] = 0;
		lateness->count = 0;
	}
	lateness->count++;
	if (ns > most[0]) {
		most[1] = most[0];
		most[0] = ns;
	} else if (ns > most[1]) {
		most[1] = ns;
	}
}

uint64_t lateness_of(const struct lateness *lateness)
{
	const uint64_t *one = lateness->most[0], *other = lateness->most[1];

	if (one[0] > other[0])
		return one[1] > other[0] ? one[1] : other[0];
	return other[1] > one[0] ? other[1] : one[0];
}

uint64_t cover_add(struct cover *cover, int64_t from, int64_t to)
{
	int64_t fresh = to - from;
	unsigned kept = 0;

	if (fresh <= 0)
		return 0;
	int64_t low = from, high = to;

	for (unsigned i = 0; i < cover->count; i++) {
		int64_t a = cover->span[i].from, b = cover->span[i].to;

		if (b < from || a > to) {
			cover->span[kept++] = cover->span[i];
			continue;
		}
		fresh -= (b < to ? b : to) - (a > from ? a : from);
		low = a < low ? a : low;
		high = b > high ? b : high;
	}
	if (kept == COVER_SPANS) {
		unsigned first = 0;

		for (unsigned i = 1; i < kept; i++) {
			if (cover->span[i].to < cover->span[first].to)
				first = i;
		}
		cover->span[first] = cover->span[--kept];
	}
	cover->span[kept].from = low;
	cover->span[kept].to = high;
	cover->count = kept + 1;
	return (uint64_t)fresh;
}

uint64_t bucket_admit(struct bucket *bucket, const struct backlog *backlog, uint64_t now, unsigned permyriad)
{
	uint64_t used = backlog->busy + backlog->inflight;

	if (permyriad == 0)
		permyriad = 1;
	if (bucket->since == 0) {
		bucket->since = now;
		bucket->used = used;
		bucket->balance = 0;
	}
	/* a pause of more than the debt that is possible is as good as any */
	uint64_t passed = now > bucket->since ? now - bucket->since : 0;

	if (passed > 1000000000000ull)
		passed = 1000000000000ull;
	bucket->balance += (int64_t)(passed * permyriad) - (int64_t)(used - bucket->used) * 10000;
	if (bucket->balance > BUCKET_MOST_NS * 10000)
		bucket->balance = BUCKET_MOST_NS * 10000;
	bucket->since = now;
	bucket->used = used;
	if (bucket->balance > 0)
		return 0;
	return (uint64_t)-bucket->balance / permyriad + 1;
}
