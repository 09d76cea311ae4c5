/* SPDX-License-Identifier: Apache-2.0 */
#include "attach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LOWEST_DESCRIPTOR 512 /* out of the way of programs that use low numbers */
#define CONNECT_MS 3000
#define PAGES 2

/* fstat itself is GLIBC_2.33 in newer libraries */
static int identify(int fd, dev_t *device, ino_t *inode)
{
	struct stat status;

	if (syscall(SYS_fstat, fd, &status) < 0)
		return -errno;
	*device = status.st_dev;
	*inode = status.st_ino;
	return 0;
}

static bool ours(const struct front_agent *agent)
{
	dev_t device = 0;
	ino_t inode = 0;

	return agent->fd >= 0 && identify(agent->fd, &device, &inode) == 0 && device == agent->device &&
	       inode == agent->inode;
}

int front_agent_init(struct front_agent *agent, const char *path, const uint8_t *buildid)
{
	size_t length = strlen(path);

	if (length == 0 || length >= sizeof(agent->path))
		return -ENAMETOOLONG;
	memset(agent, 0, sizeof(*agent));
	agent->fd = -1;
	memcpy(agent->path, path, length + 1);
	memcpy(agent->buildid, buildid, sizeof(agent->buildid));
	return 0;
}

static int connect_within(struct front_agent *agent, int timeoutms)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = timeoutms / 1000, .tv_usec = timeoutms % 1000 * 1000};
	int fd, high, rc;

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	high = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);
	if (high >= 0) {
		close(fd);
		fd = high;
	}
	/* a full queue of a busy agent blocks connect for as long as sending may take */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0)
		goto fail;
	memcpy(address.sun_path, agent->path, sizeof(address.sun_path));
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno != EINTR)
			goto fail;
	}
	rc = identify(fd, &agent->device, &agent->inode);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	agent->fd = fd;
	return 0;
fail:
	rc = errno == EAGAIN ? -ETIMEDOUT : -errno;
	close(fd);
	return rc;
}

int front_agent_connect(struct front_agent *agent)
{
	return connect_within(agent, CONNECT_MS);
}

void front_agent_drop(struct front_agent *agent)
{
	if (ours(agent))
		close(agent->fd);
	agent->fd = -1;
}

bool front_agent_connected(const struct front_agent *agent)
{
	struct pollfd hangup = {.fd = agent->fd};

	if (!ours(agent))
		return false;
	return poll(&hangup, 1, 0) == 0;
}

int front_agent_send_with(struct front_agent *agent, struct divvy_message *message, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec body = {.iov_base = message, .iov_len = sizeof(*message)};
	struct msghdr packet = {.msg_iov = &body, .msg_iovlen = 1};
	ssize_t sent;

	if (fd >= 0) {
		control.header = (struct cmsghdr){
			.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
		};
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		packet.msg_control = &control;
		packet.msg_controllen = sizeof(control);
	}

	message->magic = DIVVY_MESSAGE_MAGIC;
	message->version = DIVVY_WIRE_VERSION;
	message->sequence = ++agent->sequence;
	if (!ours(agent))
		return -EPIPE;
	do {
		sent = sendmsg(agent->fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return errno == EAGAIN || errno == EBADF ? -errno : -EPIPE;
	return 0;
}

int front_agent_send(struct front_agent *agent, struct divvy_message *message)
{
	return front_agent_send_with(agent, message, -1);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* One packet and the descriptors that come with it; -1 where there are none. */
static int receive(struct front_agent *agent, struct divvy_message *answer, int64_t deadline, int fds[PAGES])
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(PAGES * sizeof(int))];
	} control;
	struct iovec body = {.iov_base = answer, .iov_len = sizeof(*answer)};
	struct msghdr packet = {.msg_iov = &body, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct pollfd readable = {.fd = agent->fd, .events = POLLIN};
	struct cmsghdr *header;
	size_t count = 0;
	int64_t left;
	ssize_t got;

	fds[0] = fds[1] = -1;
	do {
		left = deadline - now_ms();
		if (poll(&readable, 1, left > 0 ? (int)left : 0) == 0)
			return -ETIMEDOUT;
		if (!ours(agent))
			return -EPIPE;
		got = recvmsg(agent->fd, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (got < 0 && (errno == EINTR || errno == EAGAIN));
	if (got < 0)
		return -EPIPE;
	/* an empty packet looks like the end, but may bring descriptors, too */
	header = CMSG_FIRSTHDR(&packet);
	if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
		count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(header), (count < PAGES ? count : PAGES) * sizeof(int));
	}
	if (got == 0)
		return -EPIPE;
	/* there was room for what comes, but no number for a descriptor */
	if ((packet.msg_flags & MSG_CTRUNC) != 0 && count < PAGES)
		return -EMFILE;
	if (got != sizeof(*answer) || (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
	    answer->magic != DIVVY_MESSAGE_MAGIC || memchr(answer->text, 0, sizeof(answer->text)) == NULL)
		return -EPROTO;
	return 0;
}

static void close_pages(const int fds[PAGES])
{
	for (int i = 0; i < PAGES; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

static int receive_answer(struct front_agent *agent, struct divvy_message *answer, int timeoutms, int fds[PAGES])
{
	int64_t deadline = now_ms() + timeoutms;
	int rc;

	/* an answer to an event or to a request given up is nobody's: pass over it */
	for (;;) {
		rc = receive(agent, answer, deadline, fds);
		if (rc < 0 || answer->sequence == agent->sequence)
			return rc;
		close_pages(fds);
	}
}

int front_agent_receive(struct front_agent *agent, struct divvy_message *answer, int timeoutms)
{
	int fds[PAGES];
	int rc = receive_answer(agent, answer, timeoutms, fds);

	close_pages(fds);
	if (rc == 0 && answer->type == DIVVY_REFUSED)
		rc = -EPIPE;
	return rc;
}

int front_agent_ask(struct front_agent *agent, struct divvy_message *message, int fd, int timeoutms)
{
	int rc = front_agent_send_with(agent, message, fd);

	return rc < 0 ? rc : front_agent_receive(agent, message, timeoutms);
}

bool front_agent_answers(const struct front_agent *agent, int timeoutms)
{
	struct divvy_message message = {.type = DIVVY_SYNC};
	struct front_agent other;
	int rc = front_agent_init(&other, agent->path, agent->buildid);

	if (rc == 0)
		rc = connect_within(&other, timeoutms);
	if (rc == 0)
		rc = front_agent_ask(&other, &message, -1, timeoutms);
	front_agent_drop(&other);
	return rc != -ETIMEDOUT && rc != -ECONNREFUSED && rc != -ENOENT;
}

int front_agent_hello(struct front_agent *agent, uint64_t token, const uint64_t *bytes, int timeoutms,
		      struct divvy_message *message, struct front_pages **pages)
{
	int fds[PAGES];
	int rc;

	memset(message, 0, sizeof(*message));
	message->type = DIVVY_HELLO;
	message->token = token;
	message->pid = (uint32_t)getpid();
	memcpy(message->buildid, agent->buildid, sizeof(message->buildid));
	if (token != 0)
		memcpy(message->bytes, bytes, sizeof(message->bytes));
	rc = front_agent_send(agent, message);
	if (rc < 0)
		return rc;
	rc = receive_answer(agent, message, timeoutms, fds);
	if (rc == 0 && message->type == DIVVY_REFUSED)
		rc = -ECONNREFUSED;
	else if (rc == 0 && (message->type != DIVVY_WELCOME || fds[1] < 0))
		rc = -EPROTO;
	if (rc == 0 && message->version != DIVVY_WIRE_VERSION)
		rc = -EPROTO;
	if (rc == 0)
		rc = front_pages_map(fds[0], fds[1], pages);
	close_pages(fds);
	return rc;
}
