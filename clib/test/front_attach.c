/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversation with an agent that may say anything. Each round a peer sends
 * packets of any length, with and without descriptors; whatever comes, the
 * answer is an error or well formed, and no descriptor stays behind.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "attach.h"
#include "check.h"

#define PATIENCE_MS 60000 /* no limit that a slow host comes to */

static char path[100];
static const uint8_t buildid[DIVVY_BUILD_ID_BYTES];

static int listen_at_path(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(path, sizeof(path), "/tmp/divvy-attach-%d.sock", (int)getpid());
	unlink(path); /* of a process that had our number and failed */
	strcpy(address.sun_path, path);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 8) == 0);
	return fd;
}

static unsigned descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	CHECK(dir != NULL);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

static void send_packet(int fd, const void *bytes, size_t length, const int *fds, size_t count)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec body = {.iov_base = (void *)bytes, .iov_len = length};
	struct msghdr packet = {.msg_iov = &body, .msg_iovlen = 1};

	if (count > 0) {
		packet.msg_control = &control;
		packet.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	}
	CHECK(sendmsg(fd, &packet, MSG_NOSIGNAL) >= 0 || errno == EPIPE || errno == ECONNRESET);
}

/* Answers each request with noise, more and less like an answer, and hangs up: nobody waits for what does not come. */
static void *babble(void *argument)
{
	int listener = *(int *)argument;
	struct divvy_message message;
	const int fds[4] = {0, 1, 2, listener};
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		if (recv(fd, &message, sizeof(message), 0) == sizeof(message)) {
			size_t length = random() % 4 == 0 ? (size_t)(random() % 400) : sizeof(message);
			uint8_t bytes[400];

			for (size_t i = 0; i < sizeof(bytes); i++)
				bytes[i] = (uint8_t)random();
			if (random() % 4 != 0) {
				message.type = (uint16_t)(random() % 16);
				memcpy(bytes, &message, sizeof(message));
				bytes[random() % sizeof(message)] ^= (uint8_t)(random() % 2);
			}
			send_packet(fd, bytes, length, fds, (size_t)(random() % 5));
		}
		close(fd);
	}
	return NULL;
}

static void survives_noise(void)
{
	int listener = listen_at_path();
	struct front_agent agent;
	pthread_t thread;
	unsigned before, answered = 0;

	srandom(1);
	CHECK(front_agent_init(&agent, path, buildid) == 0);
	CHECK(pthread_create(&thread, NULL, babble, &listener) == 0);
	before = descriptors();
	for (int round = 0; round < 3000; round++) {
		struct divvy_message message = {.type = DIVVY_SYNC};
		struct front_pages *pages = NULL;
		int rc = front_agent_connect(&agent);

		CHECK(rc == 0);
		if (round % 2 == 0) {
			rc = front_agent_hello(&agent, 0, NULL, PATIENCE_MS, &message, &pages);
			CHECK(rc < 0 && pages == NULL); /* no page is among those descriptors */
		} else {
			rc = front_agent_ask(&agent, &message, -1, PATIENCE_MS);
			if (rc == 0) {
				answered++;
				CHECK(message.magic == DIVVY_MESSAGE_MAGIC && message.sequence == agent.sequence);
				CHECK(memchr(message.text, 0, sizeof(message.text)) != NULL);
			}
		}
		front_agent_drop(&agent);
	}
	CHECK(answered > 100);
	shutdown(listener, SHUT_RDWR);
	pthread_join(thread, NULL);
	CHECK(descriptors() == before);
	unlink(path);
}

static void knows_its_socket(void)
{
	int listener = listen_at_path();
	struct front_agent agent;
	int pipes[2];

	CHECK(front_agent_init(&agent, path, buildid) == 0);
	CHECK(!front_agent_connected(&agent));
	CHECK(front_agent_connect(&agent) == 0 && front_agent_connected(&agent));
	CHECK(agent.fd >= 512);
	/* the program puts something else in its place: that is not ours to close */
	CHECK(pipe(pipes) == 0 && dup2(pipes[0], agent.fd) == agent.fd);
	CHECK(!front_agent_connected(&agent));
	front_agent_drop(&agent);
	CHECK(agent.fd == -1 && fcntl(512, F_GETFD) >= 0);
	/* and a peer that hung up is noticed */
	CHECK(front_agent_connect(&agent) == 0 && front_agent_connected(&agent));
	close(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	close(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	CHECK(!front_agent_connected(&agent));
	front_agent_drop(&agent);
	unlink(path);
}

static int spare; /* how many descriptors there are numbers for when the answer comes */

static void *welcome(void *argument)
{
	struct divvy_message message;
	struct rlimit limit;
	const int fds[2] = {0, 1};
	int fd = accept4(*(int *)argument, NULL, NULL, SOCK_CLOEXEC);
	int free = dup(0);

	CHECK(fd >= 0 && free >= 0 && close(free) == 0);
	CHECK(recv(fd, &message, sizeof(message), 0) == sizeof(message));
	message.type = DIVVY_WELCOME;
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = (rlim_t)(free + spare);
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	send_packet(fd, &message, sizeof(message), fds, 2);
	CHECK(recv(fd, &message, sizeof(message), 0) == 0); /* it has gone */
	close(fd);
	return NULL;
}

static void says_that_descriptors_are_lacking(void)
{
	int listener = listen_at_path();
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (spare = 0; spare < 2; spare++) {
		struct front_pages *pages = NULL;
		struct divvy_message message;
		struct front_agent agent;
		unsigned before = descriptors();
		pthread_t thread;

		CHECK(front_agent_init(&agent, path, buildid) == 0 && front_agent_connect(&agent) == 0);
		CHECK(pthread_create(&thread, NULL, welcome, &listener) == 0);
		CHECK(front_agent_hello(&agent, 0, NULL, PATIENCE_MS, &message, &pages) == -EMFILE && pages == NULL);
		front_agent_drop(&agent);
		pthread_join(thread, NULL);
		CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
		CHECK(descriptors() == before);
	}
	close(listener);
	unlink(path);
}

static void wants_a_path_that_fits(void)
{
	struct front_agent agent;
	char name[200];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = 0;
	CHECK(front_agent_init(&agent, name, buildid) == -ENAMETOOLONG);
	CHECK(front_agent_init(&agent, "", buildid) == -ENAMETOOLONG);
	CHECK(front_agent_init(&agent, "/nonexistent/socket", buildid) == 0);
	CHECK(front_agent_connect(&agent) == -ENOENT && agent.fd == -1);
}

static const struct scenario scenarios[] = {
	{"survives noise", survives_noise},
	{"knows its socket", knows_its_socket},
	{"says that descriptors are lacking", says_that_descriptors_are_lacking},
	{"wants a path that fits", wants_a_path_that_fits},
};

RUN_SCENARIOS(scenarios)
