/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate.h"

#include <stddef.h>

static struct estimate *place(struct estimates *all, uint64_t key)
{
	struct estimate *set = all->entry[key % ESTIMATE_SETS];
	struct estimate *oldest = &set[0];

	for (unsigned i = 0; i < ESTIMATE_WAYS; i++) {
		if (set[i].key == key)
			return &set[i];
		if (set[i].key == 0 || (oldest->key != 0 && all->lessons - set[i].used > all->lessons - oldest->used))
			oldest = &set[i];
	}
	oldest->samples = oldest->next = 0;
	oldest->doubted = 0;
	return oldest;
}

void estimate_learn(struct estimates *all, uint64_t key, uint64_t ns)
{
	struct estimate *estimate = place(all, key);
	uint32_t sorted[ESTIMATE_SAMPLES];
	unsigned count;

	if (ns < ESTIMATE_LEAST_NS)
		ns = ESTIMATE_LEAST_NS;
	estimate->sample[estimate->next] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
	estimate->next = (uint8_t)((estimate->next + 1u) % ESTIMATE_SAMPLES);
	if (estimate->samples < ESTIMATE_SAMPLES)
		estimate->samples++;
	count = estimate->samples;
	for (unsigned i = 0; i < count; i++) {
		unsigned at = i;

		for (; at > 0 && sorted[at - 1] > estimate->sample[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = estimate->sample[i];
	}
	estimate->doubted = 0;
	estimate->used = ++all->lessons;
	__atomic_store_n(&estimate->high, sorted[(9 * count + 9) / 10 - 1], __ATOMIC_RELAXED);
	/* of two it is not known which is the odd one */
	__atomic_store_n(&estimate->typical, sorted[count == 2 ? 1 : (count - 1) / 2], __ATOMIC_RELAXED);
	__atomic_store_n(&estimate->key, key, __ATOMIC_RELAXED);
}

void estimate_doubt(struct estimates *all, uint64_t key, uint64_t ns)
{
	struct estimate *estimate = (struct estimate *)(uintptr_t)estimate_find(all, key);

	if (estimate == NULL || ns <= estimate->typical || ++estimate->doubted >= ESTIMATE_DOUBTS)
		estimate_learn(all, key, ns);
}

uint64_t firsts_note(struct firsts *firsts, uint64_t key, uint64_t likely, uint64_t most)
{
	unsigned index = key % FIRSTS;
	uint64_t said = firsts->one[index].said;

	if (firsts->one[index].key != key) {
		firsts->one[index].key = key;
		firsts->one[index].most = most;
		said = 0;
	}
	if (most < firsts->one[index].most)
		firsts->one[index].most = most;
	most = firsts->one[index].most;
	firsts->one[index].said = likely;
	if (said != 0 && likely != 0 && said <= 2 * likely && likely <= 2 * said) {
		likely = said > likely ? said : likely;
		most = likely < most ? likely : most;
	} else if (++firsts->one[index].tries < FIRST_TRIES) {
		return 0;
	}
	firsts->one[index].key = 0;
	firsts->one[index].tries = 0;
	return most;
}

#define LONGEST_NS 1000000000u

void longest_note(struct longest *longest, uint64_t now, uint32_t ns)
{
	if (now - longest->since > LONGEST_NS) {
		__atomic_store_n(&longest->before, longest->now, __ATOMIC_RELAXED);
		__atomic_store_n(&longest->now, 0, __ATOMIC_RELAXED);
		longest->since = now;
	}
	if (ns > longest->now)
		__atomic_store_n(&longest->now, ns, __ATOMIC_RELAXED);
}
