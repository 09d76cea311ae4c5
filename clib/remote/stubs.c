/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stubs.c: the functions that their row in data/remote.tsv describes whole, and the twins
 * of the per-thread default stream of those that other files hold.
 */
#include "remote.h"

#define REMOTE_STUB(result, name, number, twin, parameters, ...) \
	EXPORT result name parameters \
	{ \
		const uint64_t words_[] = { __VA_ARGS__ }; \
\
		return (result)remote_call(number, twin, words_); \
	}

static void be_twin(uint32_t twin)
{
	struct remote_lane *lane = remote_lane();

	if (lane)
		lane->twin = twin;
}

#define REMOTE_TWIN(result, name, plain, parameters, arguments) \
	EXPORT result name parameters \
	{ \
		be_twin(1); \
		result answer = plain arguments; \
		be_twin(0); \
		return answer; \
	}

#define REMOTE_REFUSED(name)

#include "remote_stubs.inc"
