/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.c: the connection itself: opening, roles, fork, one request at a time.
 * The functions for each request are in calls.c.
 */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/run/divvy/simulator.sock"
#define SPIN_NS 100000ll
#define HIGH_DESCRIPTOR 700 /* above what programs close in loops */

/* A word on a page that the kernel wipes in a forked child: it tells whose
 * state this is without asking for the process id at every call. */
struct mark {
	_Atomic uint32_t owner; /* MARK_* */
	pid_t pid;              /* 0 when the kernel wipes; else compared */
};
#define MARK_NOBODY 0u
#define MARK_RESETTING 1u
#define MARK_OURS 2u

static struct mark *_Atomic mark;
static atomic_bool inherited; /* an ancestor had the compute role */
static atomic_bool compute;   /* this process has it */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static int connection = -1;
static ino_t connectioninode;
static bool lost; /* the simulator went away under a compute process */
static unsigned int observers;
static uint32_t sequence;
static uint64_t process;
static uint64_t token;
static void *page;

static struct divvy_sim_card *_Atomic facts;
static _Atomic int cards;

static struct mark *make_mark(void)
{
	struct mark *fresh = mmap(NULL, DIVVY_SIM_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mark *expected = NULL;

	if (fresh == MAP_FAILED)
		return NULL;
	if (madvise(fresh, DIVVY_SIM_PAGE_BYTES, MADV_WIPEONFORK) != 0)
		fresh->pid = getpid();
	atomic_store(&fresh->owner, MARK_OURS);
	if (!atomic_compare_exchange_strong(&mark, &expected, fresh)) {
		munmap(fresh, DIVVY_SIM_PAGE_BYTES);
		return expected;
	}
	return fresh;
}

static uint32_t owner_of(struct mark *m)
{
	if (m->pid != 0 && m->pid != getpid() && atomic_load(&m->owner) == MARK_OURS)
		return MARK_NOBODY;
	return atomic_load_explicit(&m->owner, memory_order_acquire);
}

/* In a child, before anything else: the parent's descriptor stays open (it
 * keeps the parent's memory) and is forgotten. */
static void forget_parent(struct mark *m)
{
	static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;

	if (atomic_load(&compute))
		atomic_store(&inherited, true);
	atomic_store(&compute, false);
	lock = unlocked;
	connection = -1;
	lost = false;
	process = 0;
	token = 0;
	page = NULL;
	if (m->pid != 0)
		m->pid = getpid();
}

static int enter(void)
{
	struct mark *m = atomic_load_explicit(&mark, memory_order_acquire);
	uint32_t owner;

	if (!m && !(m = make_mark()))
		return -ENOMEM;
	while ((owner = owner_of(m)) != MARK_OURS) {
		uint32_t expected = m->pid != 0 ? MARK_OURS : MARK_NOBODY;

		if (owner == MARK_NOBODY && atomic_compare_exchange_strong(&m->owner, &expected, MARK_RESETTING)) {
			forget_parent(m);
			atomic_store_explicit(&m->owner, MARK_OURS, memory_order_release);
		} else {
			sched_yield();
		}
	}
	pthread_mutex_lock(&lock);
	return 0;
}

static int leave(int result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

bool sim_forked(void)
{
	struct mark *m = atomic_load_explicit(&mark, memory_order_acquire);

	if (!m)
		return false;
	if (owner_of(m) == MARK_OURS)
		return atomic_load_explicit(&inherited, memory_order_relaxed);
	return atomic_load(&inherited) || atomic_load(&compute);
}

static int status_errno(uint32_t status)
{
	switch (status) {
	case DIVVY_SIM_OK:
		return 0;
	case DIVVY_SIM_NO_ROOM:
		return -ENOMEM;
	case DIVVY_SIM_HOST:
		return -ENOBUFS;
	case DIVVY_SIM_INVALID:
		return -EINVAL;
	case DIVVY_SIM_NOT_FOUND:
		return -ENOENT;
	case DIVVY_SIM_OWN:
		return -EALREADY;
	case DIVVY_SIM_MISMATCH:
		return -ELIBBAD;
	case DIVVY_SIM_LIMIT:
		return -EMFILE;
	case DIVVY_SIM_DENIED:
		return -EPERM;
	case DIVVY_SIM_IN_USE:
		return -EBUSY;
	case DIVVY_SIM_RESOURCES:
		return -ENOSPC;
	case DIVVY_SIM_UNSUPPORTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

/* Whether the number still names our socket: the program may have closed it,
 * or closed it and opened something else there. */
static bool still_ours(void)
{
	struct stat st;

	return connection >= 0 && fstat(connection, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_ino == connectioninode;
}

static int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = secure_getenv("DIVVY_SIMULATOR");
	struct stat st;
	int fd;
	int high;

	if (!path || !*path)
		path = DEFAULT_SOCKET;
	if (strlen(path) >= sizeof(address.sun_path))
		return -ENODEV;
	memcpy(address.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -EMFILE;
	high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
	if (high >= 0) {
		close(fd);
		fd = high;
	}
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		if (errno == EISCONN)
			break;
		if (errno != EINTR) {
			close(fd);
			return -ENODEV;
		}
	}
	if (fstat(fd, &st) != 0) {
		close(fd);
		return -EIO;
	}
	connection = fd;
	connectioninode = st.st_ino;
	sim_notice_forget();
	return 0;
}

static void hang_up(void)
{
	if (still_ours())
		close(connection);
	connection = -1;
}

static int send_packet(const struct divvy_sim_header *header, const void *payload, int fd)
{
	struct iovec parts[2] = {
		{.iov_base = (void *)header, .iov_len = sizeof(*header)},
		{.iov_base = (void *)payload, .iov_len = header->payloadbytes},
	};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = header->payloadbytes ? 2 : 1};
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	do {
		n = sendmsg(connection, &message, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EBADF ? -EINVAL : -EIO;
	return 0;
}

/*
 * An answer takes the simulator some ten microseconds. Who gives the processor away
 * meanwhile waits for whoever takes it to have had a slice, milliseconds on a busy host.
 */
static ssize_t await_packet(struct msghdr *message)
{
	struct timespec start, now;
	int flags = MSG_CMSG_CLOEXEC | MSG_DONTWAIT;
	ssize_t n;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		n = recvmsg(connection, message, flags);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - start.tv_sec) * 1000000000ll + now.tv_nsec - start.tv_nsec > SPIN_NS)
			flags = MSG_CMSG_CLOEXEC;
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	return n;
}

static int receive_packet(struct divvy_sim_header *header, void *payload, size_t room, int *fd)
{
	struct iovec parts[2] = {
		{.iov_base = header, .iov_len = sizeof(*header)},
		{.iov_base = payload, .iov_len = room},
	};
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = room ? 2 : 1,
				 .msg_control = &control, .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c;
	ssize_t n;

	*fd = -1;
	n = await_packet(&message);
	if (n > 0) {
		for (c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
			if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(int)))
				memcpy(fd, CMSG_DATA(c), sizeof(int));
	}
	if (n < (ssize_t)sizeof(*header) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
	    header->magic != DIVVY_SIM_MAGIC || header->version != DIVVY_SIM_VERSION ||
	    (size_t)n - sizeof(*header) != header->payloadbytes)
		return -EIO;
	return 0;
}

/* One request and its answer, on the connection as it is. */
static int exchange(struct divvy_sim_header *header, void *payload, size_t room, int fdin, int *fdout)
{
	uint16_t type = header->type;
	int fd = -1;
	int result;

	header->magic = DIVVY_SIM_MAGIC;
	header->version = DIVVY_SIM_VERSION;
	header->sequence = ++sequence;
	header->status = 0;
	result = send_packet(header, payload, fdin);
	if (result == -EINVAL)
		return result; /* fdin is no descriptor; nothing was sent */
	if (result == 0)
		result = receive_packet(header, payload, room, &fd);
	if (result == 0 && (header->type != type || header->sequence != sequence))
		result = -EIO;
	if (result != 0) {
		hang_up();
		if (atomic_load(&compute))
			lost = true;
	} else {
		result = status_errno(header->status);
	}
	if (fd >= 0 && (result != 0 || !fdout)) {
		close(fd);
		fd = -1;
	}
	if (fdout)
		*fdout = fd;
	return result;
}

/* Greets the simulator; the number of cards, or an error. */
static int hello(uint32_t role)
{
	struct divvy_sim_header header = {
		.type = DIVVY_SIM_HELLO, .kind = role, .bytes = (uint64_t)sim_generation, .process = process, .token = token,
	};
	void *mapped;
	int fd = -1;
	int result = exchange(&header, NULL, 0, -1, &fd);

	if (result != 0)
		return result;
	if (header.count == 0 || header.count > DIVVY_SIM_MAX_CARDS) {
		result = -EIO;
	} else if (role == DIVVY_SIM_ROLE_COMPUTE && !page) {
		mapped = fd < 0 ? MAP_FAILED :
				  mmap(NULL, DIVVY_SIM_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (mapped == MAP_FAILED) {
			result = -EIO;
		} else {
			page = mapped;
			process = header.process;
			token = header.token;
		}
	}
	if (fd >= 0)
		close(fd);
	return result ? result : (int)header.count;
}

/* A usable connection in the role this process has, or an error. */
static int connected(void)
{
	int result;

	if (lost)
		return -EIO;
	if (still_ours())
		return 0;
	connection = -1;
	if (!atomic_load(&compute) && observers == 0)
		return atomic_load(&inherited) ? -EOWNERDEAD : -EPERM;
	result = dial();
	if (result == 0)
		result = hello(atomic_load(&compute) ? DIVVY_SIM_ROLE_COMPUTE : DIVVY_SIM_ROLE_OBSERVE);
	if (result < 0) {
		hang_up();
		if (atomic_load(&compute))
			lost = true;
		return result;
	}
	return 0;
}

/* Reads what the cards are. What was read before stays where it is: pointers
 * into it were handed out. Only when a process that held nothing finds other
 * cards (another simulator) does it get a second list. */
static int load_facts(int count)
{
	struct divvy_sim_card *old = atomic_load(&facts);
	struct divvy_sim_card *fresh;
	bool same = old && count == atomic_load(&cards);

	fresh = calloc((size_t)count, sizeof(*fresh));
	if (!fresh)
		return -ENOMEM;
	for (int i = 0; i < count; i++) {
		struct divvy_sim_header header = {.type = DIVVY_SIM_CARD, .card = (uint32_t)i};
		int result = exchange(&header, &fresh[i], sizeof(fresh[i]), -1, NULL);

		if (result == 0 && header.payloadbytes != sizeof(fresh[i]))
			result = -EIO;
		if (result != 0) {
			free(fresh);
			return result;
		}
		fresh[i].name[sizeof(fresh[i].name) - 1] = 0;
		fresh[i].serial[sizeof(fresh[i].serial) - 1] = 0;
		same = same && memcmp(&fresh[i], &old[i], offsetof(struct divvy_sim_card, usedbytes)) == 0;
	}
	if (same) {
		free(fresh);
		return 0;
	}
	/* A reader between the two sees too few cards, never too many. */
	if (count < atomic_load(&cards))
		atomic_store(&cards, count);
	atomic_store_explicit(&facts, fresh, memory_order_release);
	atomic_store(&cards, count);
	return 0;
}

int sim_open(uint32_t role)
{
	bool dialled = false;
	int result;

	if (role != DIVVY_SIM_ROLE_OBSERVE && role != DIVVY_SIM_ROLE_COMPUTE)
		return -EINVAL;
	result = enter();
	if (result != 0)
		return result;
	if (role == DIVVY_SIM_ROLE_COMPUTE && atomic_load(&inherited))
		return leave(-EOWNERDEAD);
	if (role == DIVVY_SIM_ROLE_COMPUTE && atomic_load(&compute))
		return leave(lost ? -EIO : 0);
	if (atomic_load(&compute) || observers > 0) {
		/* Comes back in the role it has, if the connection was lost. */
		result = connected();
		if (result == 0 && role == DIVVY_SIM_ROLE_COMPUTE)
			result = hello(role);
	} else {
		result = dial();
		dialled = result == 0;
		if (dialled)
			result = hello(role);
		if (result > 0)
			result = load_facts(result);
	}
	if (result < 0) {
		if (dialled)
			hang_up();
		return leave(result);
	}
	if (role == DIVVY_SIM_ROLE_COMPUTE)
		atomic_store(&compute, true);
	else
		observers++;
	return leave(0);
}

void sim_close_observer(void)
{
	if (enter() != 0)
		return;
	if (observers > 0 && --observers == 0 && !atomic_load(&compute))
		hang_up();
	leave(0);
}

int sim_cards(void)
{
	if (!atomic_load_explicit(&facts, memory_order_acquire))
		return -EPERM;
	return atomic_load(&cards);
}

const struct divvy_sim_card *sim_card_facts(uint32_t card)
{
	const struct divvy_sim_card *known = atomic_load_explicit(&facts, memory_order_acquire);

	if (!known || card >= (uint32_t)atomic_load(&cards))
		return NULL;
	return &known[card];
}

int sim_request(struct divvy_sim_header *header, void *payload, size_t room, int fdin, int *fdout)
{
	int result = enter();

	if (fdout)
		*fdout = -1;
	if (result != 0)
		return result;
	result = connected();
	if (result == 0)
		result = exchange(header, payload, room, fdin, fdout);
	return leave(result);
}
