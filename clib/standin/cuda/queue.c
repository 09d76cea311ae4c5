/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fault.h"
#include "order.h"
#include "outlook.h"

enum {
	MOST = 1024,       /* steps that are not done: a hardware driver blocks at about as many */
	KERNELS = 128,     /* that run at the same time, as on hardware */
	THREADS = KERNELS + 16,
	STACK = 1 << 20,
	LOOK_NS = 1000000, /* for room on a card, while a kernel waits for it */
	FAULTS_NS = 50000000, /* for faults that are injected, while a thread waits */
};

/* Steps that can begin, oldest first, and the threads for them. */
struct line {
	struct sd_step *first;
	struct sd_step **last;
	pthread_cond_t ready;
	unsigned int count; /* steps */
	unsigned int threads;
	unsigned int most;
	unsigned int idle;
	bool looked; /* a thread looks whether they can begin by now */
};

/* An object that is freed when all steps up to a number have ended. */
struct leaving {
	struct leaving *next;
	struct sd_object *object;
	enum sd_kind kind;
	uint64_t id;
	uint64_t number;
};

static struct {
	struct line work;
	struct line hosts;
	struct sd_step *oldest; /* that is not done */
	struct sd_step *newest;
	struct sd_step *running; /* kernels */
	uint64_t numbers;
	unsigned int count;
	unsigned int waiters;
	pthread_cond_t changed;
	struct leaving *leaving; /* oldest first */
	struct leaving **lastleaving;
} queue = {
	.work = { .ready = PTHREAD_COND_INITIALIZER, .most = THREADS },
	.hosts = { .ready = PTHREAD_COND_INITIALIZER, .most = 1 },
	.changed = PTHREAD_COND_INITIALIZER,
	.lastleaving = &queue.leaving,
};

/* The lines that this thread takes steps from, if it is one of the driver's. */
static __thread struct line *own __attribute__((tls_model("initial-exec")));

static bool pending(const struct sd_step *step)
{
	return step && !step->done;
}

/* Calls for each step that the stream's next work comes after, until one says so. */
static bool any_before(const struct sd_stream *stream, bool (*is)(struct sd_step *step, void *who), void *who)
{
	const struct sd_context *context = stream->context;

	if (!queue.count)
		return false;
	if (pending(stream->step) && is(stream->step, who))
		return true;
	if (stream->flags & CU_STREAM_NON_BLOCKING)
		return false;
	if (!stream->legacy)
		return context->legacy && pending(context->legacy->step) && is(context->legacy->step, who);
	if (!context->blockingsteps)
		return false;
	for (struct sd_object *object = context->object.first; object; object = object->next) {
		const struct sd_stream *other = (struct sd_stream *)object;

		if (object->kind == SD_STREAM && other != stream && !(other->flags & CU_STREAM_NON_BLOCKING) &&
		    pending(other->step) && is(other->step, who))
			return true;
	}
	return false;
}

static bool yes(struct sd_step *step, void *who)
{
	(void)step;
	(void)who;
	return true;
}

static bool unplaced(struct sd_step *step, void *who)
{
	(void)who;
	return !step->placed;
}

bool sd_stream_busy(const struct sd_stream *stream)
{
	return any_before(stream, yes, NULL);
}

bool sd_stream_open(const struct sd_stream *stream)
{
	return any_before(stream, unplaced, NULL);
}

struct sd_step *sd_step_keep(struct sd_step *step)
{
	if (step)
		step->refs++;
	return step;
}

void sd_step_drop(struct sd_step *step)
{
	if (!step || --step->refs)
		return;
	free(step->after);
	free(step->later);
	free(step);
}

/* Without memory for the list it comes after everything. */
static void add_item(struct sd_step *step, uint64_t item)
{
	if (!item)
		return;
	uint64_t *after = realloc(step->after, (step->aftercount + 1) * sizeof(*after));

	if (!after) {
		step->everything = true;
		return;
	}
	step->after = after;
	after[step->aftercount++] = item;
}

void sd_step_after(struct sd_step *step, struct sd_step *other, uint64_t item)
{
	add_item(step, item);
	if (!pending(other))
		return;
	struct sd_step **later = realloc(other->later, (other->latercount + 1) * sizeof(*later));

	if (!later) { /* rather late than early */
		sd_step_wait(other);
		add_item(step, other->item);
		return;
	}
	other->later = later;
	later[other->latercount++] = sd_step_keep(step);
	step->waiting++;
}

static bool put_before(struct sd_step *step, void *who)
{
	sd_step_after(who, step, 0);
	return false;
}

/* The context has a fault. */
static void stop_kernels(const struct sd_context *context)
{
	for (struct sd_step *step = queue.running; step; step = step->next) {
		if (step->context == context)
			__atomic_store_n(&step->stop, true, __ATOMIC_RELAXED);
	}
}

struct sd_step *sd_step_new(struct sd_stream *stream, enum sd_step_kind kind, size_t bytes, bool placed)
{
	struct sd_step *step = calloc(1, bytes);

	if (!step)
		return NULL;
	step->kind = kind;
	step->context = stream->context;
	step->card = stream->context->card;
	step->stream = stream;
	step->streamid = stream->object.id;
	step->number = ++queue.numbers;
	step->refs = 1; /* the queue's; a stream that it is the last of forgets it when it is done */
	step->waiting = 1; /* for its start */
	step->placed = step->early = placed;
	if (placed)
		step->item = stream->tail;
	else if (!sd_order_before(stream, &step->after, &step->aftercount))
		step->everything = true;
	(void)any_before(stream, put_before, step);
	step->counted = !stream->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
	step->context->stop = stop_kernels;
	step->context->steps++;
	step->context->blockingsteps += step->counted;
	step->older = queue.newest;
	if (queue.newest)
		queue.newest->newer = step;
	else
		queue.oldest = step;
	queue.newest = step;
	queue.count++;
	stream->step = step;
	return step;
}

/* How much of its card a kernel takes. */
static double part(const struct sd_step *step)
{
	uint64_t blocks = __atomic_load_n(&step->blocks, __ATOMIC_RELAXED);
	uint64_t resident = step->resident ? step->resident : 1;

	return blocks < resident ? (double)blocks / (double)resident : 1;
}

/* A kernel begins beside others if the card has room for it; and if it is alone. */
static bool fits(const struct sd_step *step)
{
	double used = 0;
	unsigned int kernels = 0;

	for (const struct sd_step *other = queue.running; other; other = other->next) {
		kernels++;
		if (other->card == step->card)
			used += part(other);
	}
	return kernels < KERNELS && (used == 0 || used + part(step) <= 1);
}

/* In a context with a fault nothing is waited for. */
static bool begins(struct sd_step *step)
{
	return !step->begins || step->context->sticky != CUDA_SUCCESS || step->begins(step);
}

/* Takes the first step that can begin; none overtakes a kernel that waits for its card but steps that need none. */
static struct sd_step *take(struct line *line)
{
	const struct sd_card *full[8];
	unsigned int fulls = 0;

	for (struct sd_step **link = &line->first; *link; link = &(*link)->next) {
		struct sd_step *step = *link;
		bool held = false;

		for (unsigned int i = 0; step->kind == SD_STEP_KERNEL && i < fulls; i++)
			held |= full[i] == step->card;
		if (step->kind == SD_STEP_KERNEL && !held && !fits(step)) {
			held = true;
			if (fulls < sizeof(full) / sizeof(full[0]))
				full[fulls++] = step->card;
		}
		if (held || !begins(step))
			continue;
		*link = step->next;
		if (line->last == &step->next)
			line->last = link;
		line->count--;
		step->next = NULL;
		return step;
	}
	return NULL;
}

static void complete(struct sd_step *step);

static void perform(struct sd_step *step)
{
	struct sd_context *context = step->context;
	struct sd_stream *lane = NULL;
	CUresult result = sd_stream_new(context, CU_STREAM_NON_BLOCKING, 0, &lane);

	if (step->kind == SD_STEP_KERNEL) {
		step->next = queue.running;
		queue.running = step;
	}
	if (result == CUDA_SUCCESS && !step->early && context->sticky == CUDA_SUCCESS) {
		if (step->everything)
			result = sd_await_all();
		if (result == CUDA_SUCCESS)
			result = sd_order_begin(lane, step->after, step->aftercount);
	}
	if (step->perform && lane && (step->kind == SD_STEP_HOST || (result == CUDA_SUCCESS && context->sticky == CUDA_SUCCESS)))
		result = step->perform(step, lane);
	if (step->kind == SD_STEP_KERNEL) {
		struct sd_step **link = &queue.running;

		while (*link != step)
			link = &(*link)->next;
		*link = step->next;
	}
	if (result != CUDA_SUCCESS)
		sd_context_fault(context, result);
	if (lane) {
		if (!step->early)
			step->item = lane->tail;
		sd_object_end(lane);
	}
	complete(step);
}

static void wait_for(pthread_cond_t *condition, long ns)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += ns;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	sd_wait_until(condition, &until);
}

static void *serve(void *which)
{
	struct line *line = which;

	/* kernels round as they say, whatever the program's threads do */
	fesetenv(FE_DFL_ENV);
	own = line;
	sd_lock();
	struct sd_thread *thread = sd_thread();

	if (thread && line == &queue.hosts)
		thread->worker = true;
	for (;;) {
		struct sd_step *step = take(line);

		if (step) {
			if (line->first && line->idle && !line->looked)
				pthread_cond_signal(&line->ready);
			perform(step);
			continue;
		}
		line->idle++;
		if (line->first && !line->looked) { /* what may begin without anybody telling */
			line->looked = true;
			wait_for(&line->ready, LOOK_NS);
			line->looked = false;
		} else {
			sd_wait(&line->ready);
		}
		line->idle--;
	}
	return NULL;
}

bool sd_thread_begin(void *(*run)(void *), void *argument)
{
	pthread_t thread;
	pthread_attr_t attributes;
	sigset_t all;
	sigset_t before;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&thread, &attributes, run, argument);

	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return error == 0;
}

static bool start(struct line *line)
{
	bool begun = line->threads < line->most && sd_thread_begin(serve, line);

	line->threads += begun;
	return begun;
}

/* It can begin. */
static void ready(struct sd_step *step)
{
	struct line *line = step->kind == SD_STEP_HOST ? &queue.hosts : &queue.work;

	step->next = NULL;
	step->readyns = sd_now();
	if (step->kind == SD_STEP_JOIN && step->early) {
		complete(step);
		return;
	}
	if (!line->last)
		line->last = &line->first;
	*line->last = step;
	line->last = &step->next;
	line->count++;
	/* the thread that says so takes it, if it is one of the line's */
	unsigned int here = own == line;

	if (line->count > line->idle + here && start(line))
		return;
	if (line->count > here && line->idle)
		pthread_cond_signal(&line->ready);
}

static void free_leaving(void)
{
	while (queue.leaving && (!queue.oldest || queue.oldest->number > queue.leaving->number)) {
		struct leaving *one = queue.leaving;
		struct sd_object *object = sd_object_get(one->object, one->kind);

		queue.leaving = one->next;
		if (!queue.leaving)
			queue.lastleaving = &queue.leaving;
		/* its context may have ended, and it with it */
		if (object && object->id == one->id)
			sd_object_free(object);
		free(one);
	}
}

void sd_queue_free(struct sd_object *object)
{
	struct leaving *one = queue.count ? malloc(sizeof(*one)) : NULL;

	if (!one) { /* nothing to wait for; or no memory to remember it: it stays */
		if (!queue.count)
			sd_object_free(object);
		return;
	}
	*one = (struct leaving){ .object = object, .kind = object->kind, .id = object->id, .number = queue.numbers };
	*queue.lastleaving = one;
	queue.lastleaving = &one->next;
}

/* The stream that it was put into, if that is still there. */
static struct sd_stream *stream_of(const struct sd_step *step)
{
	struct sd_stream *stream = sd_object_get(step->stream, SD_STREAM);

	return stream && stream->object.id == step->streamid ? stream : NULL;
}

uint64_t sd_step_late(const struct sd_step *step)
{
	const struct sd_stream *stream = stream_of(step);

	return stream ? stream->latens : 0;
}

static void complete(struct sd_step *step)
{
	struct sd_stream *stream = stream_of(step);

	step->done = step->placed = true;
	if (stream)
		stream->latens += step->latens;
	if (step->older)
		step->older->newer = step->newer;
	else
		queue.oldest = step->newer;
	if (step->newer)
		step->newer->older = step->older;
	else
		queue.newest = step->older;
	queue.count--;
	step->context->steps--;
	step->context->blockingsteps -= step->counted;
	if (stream && stream->step == step) {
		stream->step = NULL;
		if (!step->early)
			sd_order_put(stream, step->item);
	}
	if (step->end)
		step->end(step);
	for (size_t i = 0; i < step->latercount; i++) {
		struct sd_step *later = step->later[i];

		add_item(later, step->item);
		if (--later->waiting == 0)
			ready(later);
		sd_step_drop(later);
	}
	step->latercount = 0;
	free_leaving();
	if (queue.waiters)
		pthread_cond_broadcast(&queue.changed);
	sd_step_drop(step);
}

void sd_step_start(struct sd_step *step)
{
	struct line *line = step->kind == SD_STEP_HOST ? &queue.hosts : &queue.work;

	if (!(step->kind == SD_STEP_JOIN && step->early) && !line->threads && !start(line)) {
		while (step->waiting > 1 || !begins(step))
			sd_queue_wait();
		perform(step);
	} else if (--step->waiting == 0) {
		ready(step);
	}
}

void sd_queue_wait(void)
{
	queue.waiters++;
	wait_for(&queue.changed, FAULTS_NS);
	queue.waiters--;
	/* a kernel that never ends is ended by one */
	sd_faults_look();
}

void sd_step_wait(struct sd_step *step)
{
	if (!pending(step))
		return;
	sd_step_keep(step);
	while (!step->done)
		sd_queue_wait();
	sd_step_drop(step);
}

void sd_queue_room(void)
{
	while (queue.count >= MOST)
		sd_queue_wait();
}

void sd_queue_settle(void)
{
	uint64_t last = queue.numbers;

	while (queue.oldest && queue.oldest->number <= last)
		sd_queue_wait();
}

CUresult sd_stream_drain_all(void)
{
	sd_queue_settle();
	return sd_await_all();
}

void sd_context_idle(struct sd_context *context)
{
	uint64_t id = context->object.id;

	while (sd_object_get(context, SD_CONTEXT) == context && context->object.id == id && context->steps)
		sd_queue_wait();
}

void sd_stream_drain(const struct sd_stream *stream)
{
	uint64_t id = stream->object.id;

	while (sd_object_get(stream, SD_STREAM) == stream && stream->object.id == id && sd_stream_busy(stream))
		sd_queue_wait();
}

CUresult sd_stream_after(struct sd_stream *stream, uint64_t item, struct sd_step *const *steps, size_t count)
{
	bool known = !sd_stream_open(stream);
	bool some = false;
	uint64_t id = stream->object.id;

	for (size_t i = 0; i < count; i++) {
		some |= pending(steps[i]);
		known &= !pending(steps[i]) || steps[i]->placed;
	}
	if (known) {
		CUresult result = sd_order_after(stream, item);

		if (result != CUDA_SUCCESS || !some)
			return result;
		if (sd_object_get(stream, SD_STREAM) != stream || stream->object.id != id)
			return CUDA_SUCCESS;
	}
	struct sd_step *step = sd_step_new(stream, SD_STEP_JOIN, sizeof(*step), known && !sd_stream_open(stream));

	if (!step)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sd_step_after(step, NULL, item);
	for (size_t i = 0; i < count; i++)
		sd_step_after(step, steps[i], 0);
	sd_step_start(step);
	return CUDA_SUCCESS;
}
