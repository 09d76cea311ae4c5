/* SPDX-License-Identifier: Apache-2.0 */
#include "fakecard.h"

#include "fakeclock.h"
#include "gate.h"

#define EVENTS 1024

/* What calls take their threads. */
#define LAUNCH_NS 2000
#define CREATE_NS 1000
#define RECORD_NS 700
#define ASK_NS 300

struct fakecard fakecard = {.mutex = PTHREAD_MUTEX_INITIALIZER};
__thread unsigned fakecard_current;

static bool destroyed[FAKECARD_STREAMS], capturing[FAKECARD_STREAMS];
static struct {
	bool live;
	bool recorded;
	unsigned card;
	uint64_t at;
} event[EVENTS];

static uint64_t word(const uint64_t *at)
{
	uint64_t value;

	pthread_mutex_lock(&fakecard.mutex);
	value = *at;
	pthread_mutex_unlock(&fakecard.mutex);
	return value;
}

uint64_t fakecard_end(void)
{
	return word(&fakecard.end);
}

uint64_t fakecard_busy(void)
{
	return word(&fakecard.busy);
}

uint64_t fakecard_kernels(void)
{
	return word(&fakecard.kernels);
}

uint64_t fakecard_second_busy(void)
{
	return word(&fakecard.second.busy);
}

uint64_t fakecard_second_kernels(void)
{
	return word(&fakecard.second.kernels);
}

/* Whose stream it is, for the calling thread. */
static unsigned card_of(unsigned stream)
{
	return !fakecard.two || stream < FAKECARD_NAMELESS ? fakecard_current : stream >= FAKECARD_SECOND;
}

/* When a call of so much work is done. */
static uint64_t worked(uint64_t ns)
{
	fakeclock_work(ns);
	return clock_now();
}

static unsigned index_of(CUstream stream)
{
	CHECK((uintptr_t)stream < FAKECARD_STREAMS);
	return (unsigned)(uintptr_t)stream;
}

static CUresult fake_launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			    unsigned shared, CUstream stream, void **parameters, void **extra)
{
	unsigned at = index_of(stream);
	uint64_t now = worked(LAUNCH_NS + fakeclock_launch()), ns = fakecard.fixed ? fakecard.fixed : (uintptr_t)function;
	CUresult result = CUDA_SUCCESS;

	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)parameters, (void)extra;
	pthread_mutex_lock(&fakecard.mutex);
	if (fakecard.refusing) {
		fakecard.refused++;
		result = CUDA_ERROR_INVALID_VALUE;
	} else if (!capturing[at] && card_of(at) == 1) {
		CHECK(fakecard_current == 1);
		fakecard.second.end = (fakecard.second.end > now ? fakecard.second.end : now) + ns;
		fakecard.streamend[card_of(at)][at] = fakecard.second.end;
		fakecard.second.busy += ns;
		fakecard.second.kernels++;
	} else if (!capturing[at]) {
		CHECK(fakecard_current == 0);
		fakecard.end = (fakecard.end > now ? fakecard.end : now) + ns;
		fakecard.streamend[card_of(at)][at] = fakecard.end;
		fakecard.busy += ns;
		fakecard.kernels++;
	}
	pthread_mutex_unlock(&fakecard.mutex);
	fakeclock_work(fakecard.lag);
	return result;
}

static CUresult fake_create(CUevent *made, unsigned flags)
{
	CHECK(flags == 0);
	fakeclock_work(CREATE_NS);
	pthread_mutex_lock(&fakecard.mutex);
	for (unsigned i = 1; i < EVENTS; i++) {
		if (!event[i].live) {
			event[i].live = true;
			event[i].recorded = false;
			event[i].card = fakecard_current;
			*made = (CUevent)(uintptr_t)i;
			fakecard.events++;
			fakecard.eventsmade++;
			break;
		}
	}
	pthread_mutex_unlock(&fakecard.mutex);
	CHECK(*made != NULL);
	return CUDA_SUCCESS;
}

static CUresult fake_destroy(CUevent gone)
{
	pthread_mutex_lock(&fakecard.mutex);
	CHECK(event[(uintptr_t)gone].live);
	event[(uintptr_t)gone].live = false;
	fakecard.events--;
	pthread_mutex_unlock(&fakecard.mutex);
	return CUDA_SUCCESS;
}

static CUresult fake_record(CUevent which, CUstream stream)
{
	unsigned at = index_of(stream);
	uint64_t now = worked(RECORD_NS + fakecard.marklag);

	pthread_mutex_lock(&fakecard.mutex);
	CHECK(event[(uintptr_t)which].live && !destroyed[at] && !capturing[at]);
	if (event[(uintptr_t)which].card != card_of(at)) {
		fakecard.misplaced++;
		pthread_mutex_unlock(&fakecard.mutex);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	event[(uintptr_t)which].recorded = true;
	event[(uintptr_t)which].at = fakecard.streamend[card_of(at)][at] > now ? fakecard.streamend[card_of(at)][at] : now;
	pthread_mutex_unlock(&fakecard.mutex);
	return CUDA_SUCCESS;
}

static CUresult fake_query(CUevent which)
{
	uint64_t now = worked(ASK_NS + fakecard.asklag);
	bool ended;

	pthread_mutex_lock(&fakecard.mutex);
	CHECK(event[(uintptr_t)which].live && event[(uintptr_t)which].recorded);
	for (unsigned i = 0; i < FAKECARD_STREAMS; i++)
		CHECK(!capturing[i]);
	ended = event[(uintptr_t)which].at <= now;
	pthread_mutex_unlock(&fakecard.mutex);
	return ended ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_elapsed(float *ms, CUevent from, CUevent to)
{
	fakeclock_work(ASK_NS);
	pthread_mutex_lock(&fakecard.mutex);
	CHECK(event[(uintptr_t)from].live && event[(uintptr_t)to].live);
	*ms = (float)((double)(int64_t)(event[(uintptr_t)to].at - event[(uintptr_t)from].at) / 1e6);
	pthread_mutex_unlock(&fakecard.mutex);
	return CUDA_SUCCESS;
}

static CUresult fake_current(CUcontext *context)
{
	*context = (CUcontext)(uintptr_t)(0x1000 + fakecard_current);
	return CUDA_SUCCESS;
}

static CUresult fake_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
	pthread_mutex_lock(&fakecard.mutex);
	*status = capturing[index_of(stream)] ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	pthread_mutex_unlock(&fakecard.mutex);
	return CUDA_SUCCESS;
}

static CUresult set(bool *flag, bool value)
{
	pthread_mutex_lock(&fakecard.mutex);
	*flag = value;
	pthread_mutex_unlock(&fakecard.mutex);
	return CUDA_SUCCESS;
}

static CUresult fake_begin(CUstream stream, CUstreamCaptureMode mode)
{
	(void)mode;
	return set(&capturing[index_of(stream)], true);
}

static CUresult fake_end(CUstream stream, CUgraph *graph)
{
	(void)graph;
	return set(&capturing[index_of(stream)], false);
}

static CUresult fake_stream_destroy(CUstream stream)
{
	return set(&destroyed[index_of(stream)], true);
}

void *front_real[DIVVY_SYMBOLS + DIVVY_SPARES] = {
	[SYM_cuLaunchKernel] = fake_launch,
	[SYM_cuEventCreate] = fake_create,
	[SYM_cuEventDestroy_v2] = fake_destroy,
	[SYM_cuEventRecord] = fake_record,
	[SYM_cuEventQuery] = fake_query,
	[SYM_cuEventElapsedTime] = fake_elapsed,
	[SYM_cuCtxGetCurrent] = fake_current,
	[SYM_cuStreamIsCapturing] = fake_is_capturing,
	[SYM_cuStreamBeginCapture_v2] = fake_begin,
	[SYM_cuStreamEndCapture] = fake_end,
	[SYM_cuStreamDestroy_v2] = fake_stream_destroy,
};
