/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c: how the session opens, once, and how threads come to their lanes. A child of
 * the process that opened it has none.
 */
#include "remote.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "compat.h"
#include "session.h"

#define SOCKET_VARIABLE "DIVVY_REMOTE_SOCKET"
#define RUN_VARIABLE "DIVVY_REMOTE_RUN"
#define LOWEST_DESCRIPTOR 512 /* programs close and count the low ones */

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static uint32_t opened; /* under opening; read without it */
static uint32_t initialized; /* cuInit has succeeded */

/* A page that a forked child finds empty: 1 in the process that opened the session. */
static uint32_t *ours;

static __thread struct remote_lane *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t ended;

void remote_say(const char *format, ...)
{
	char line[512];
	va_list arguments;

	va_start(arguments, format);
	int length = snprintf(line, sizeof(line), "divvy: remote: ");
	int more = vsnprintf(line + length, sizeof(line) - (size_t)length - 1, format, arguments);
	va_end(arguments);
	if (more < 0)
		return;
	length = (int)strnlen(line, sizeof(line) - 2);
	line[length++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)length) < 0)
		return;
}

static int hexadecimal(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

static bool read_token(uint8_t token[DIVVY_REMOTE_TOKEN_BYTES])
{
	const char *text = getenv(RUN_VARIABLE);

	if (!text || strlen(text) != 2 * DIVVY_REMOTE_TOKEN_BYTES)
		return false;
	for (size_t i = 0; i < DIVVY_REMOTE_TOKEN_BYTES; i++) {
		int high = hexadecimal(text[2 * i]), low = hexadecimal(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		token[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static int reach(void)
{
	const char *path = getenv(SOCKET_VARIABLE);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (!path || !*path || strlen(path) >= sizeof(address.sun_path)) {
		remote_say("$%s names no socket: start the program by divvy run --remote", SOCKET_VARIABLE);
		return -1;
	}
	strcpy(address.sun_path, path);
	int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (low < 0) {
		remote_say("socket: %s", strerror(errno));
		return -1;
	}
	int fd = fcntl(low, F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR);

	if (fd < 0)
		fd = low;
	else
		close(low);
	int rc;

	do
		rc = connect(fd, (struct sockaddr *)&address, sizeof(address));
	while (rc < 0 && errno == EINTR);
	if (rc < 0) {
		remote_say("%s: %s", path, strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
}

static CUresult refused(size_t length)
{
	struct divvy_remote_refused answer;
	char text[512];
	size_t most = length - sizeof(answer) < sizeof(text) - 1 ? length - sizeof(answer) : sizeof(text) - 1;

	if (length < sizeof(answer) || !session_read(&answer, sizeof(answer)) || !session_read(text, most))
		return CUDA_ERROR_SYSTEM_NOT_READY;
	text[most] = '\0';
	remote_say("%s", text);
	return answer.result ? (CUresult)answer.result : CUDA_ERROR_SYSTEM_NOT_READY;
}

/* Says hello and reads the worker's welcome. */
static CUresult greet(void)
{
	struct divvy_remote_hello hello = {
		.magic = DIVVY_REMOTE_MAGIC,
		.oldest = DIVVY_REMOTE_OLDEST,
		.newest = DIVVY_REMOTE_VERSION,
		.pid = (uint32_t)getpid(),
	};
	struct divvy_remote_frame answer;
	struct divvy_remote_welcome welcome;

	if (!read_token(hello.token)) {
		remote_say("$%s names no run: start the program by divvy run --remote", RUN_VARIABLE);
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	strncpy(hello.command, program_invocation_short_name, sizeof(hello.command) - 1);
	if (!session_write(DIVVY_REMOTE_HELLO, &hello, sizeof(hello)) || !session_read(&answer, sizeof(answer))) {
		remote_say("no answer: %s", strerror(errno));
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	if (answer.length > DIVVY_REMOTE_MAX_CONTROL)
		answer.op = 0;
	if (answer.op == DIVVY_REMOTE_REFUSED)
		return refused(answer.length);
	if (answer.op != DIVVY_REMOTE_WELCOME || answer.length < sizeof(welcome) || !session_read(&welcome, sizeof(welcome)) ||
	    welcome.magic != DIVVY_REMOTE_MAGIC) {
		remote_say("what answers there is not divvy's");
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	if (welcome.version < DIVVY_REMOTE_OLDEST || welcome.version > DIVVY_REMOTE_VERSION) {
		remote_say("the server speaks version %u of the protocol, this library versions %u to %u: install the same release",
			   welcome.version, DIVVY_REMOTE_OLDEST, DIVVY_REMOTE_VERSION);
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	size_t length = answer.length - sizeof(welcome);
	uint8_t *facts = malloc(length ? length : 1);
	bool read = facts && session_read(facts, length) && remote_facts_read(&welcome, facts, length);

	free(facts);
	if (!read)
		remote_say("what the server says of its GPU is not understood");
	return read ? CUDA_SUCCESS : CUDA_ERROR_SYSTEM_NOT_READY;
}

/* A thread that has ended needs its lane no more. */
static void end_lane(void *argument)
{
	struct remote_lane *lane = argument;

	if (!ours || *ours != 1)
		return;
	remote_forget_reads(lane);
	session_leave(lane);
	free(lane->stack);
	remote_free(&lane->out);
	remote_free(&lane->in);
	free(lane);
}

CUresult remote_open(void)
{
	CUresult result = CUDA_SUCCESS;

	if (ours && *ours != 1)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&opening);
	if (!opened) {
		uint32_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		int fd = page == MAP_FAILED ? -1 : reach();

		if (fd < 0) {
			result = page == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_SYSTEM_NOT_READY;
		} else if (!session_connect(fd)) {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		} else {
			result = greet();
		}
		if (result == CUDA_SUCCESS) {
			madvise(page, 4096, MADV_WIPEONFORK);
			*page = 1;
			ours = page;
			pthread_key_create(&ended, end_lane);
			session_start();
			__atomic_store_n(&opened, 1, __ATOMIC_RELEASE);
		} else if (fd >= 0) {
			session_disconnect();
		}
	}
	pthread_mutex_unlock(&opening);
	return result;
}

/* The session may open before the program initialises CUDA: for NVML, or for the driver's
 * version. */
static bool is_open(void)
{
	return __atomic_load_n(&opened, __ATOMIC_ACQUIRE) && *ours == 1;
}

void remote_initialized(void)
{
	__atomic_store_n(&initialized, 1, __ATOMIC_RELEASE);
}

bool remote_is_open(void)
{
	return __atomic_load_n(&initialized, __ATOMIC_ACQUIRE) && is_open();
}

static struct remote_lane *new_lane(void)
{
	struct remote_lane *lane = calloc(1, sizeof(*lane));

	if (!lane || !session_enter(lane)) {
		free(lane);
		return NULL;
	}
	pthread_setspecific(ended, lane);
	mine = lane;
	return lane;
}

struct remote_lane *remote_lane(void)
{
	if (!remote_is_open())
		return NULL;
	return mine ? mine : new_lane();
}

struct remote_lane *remote_management_lane(void)
{
	if (!is_open())
		return NULL;
	return mine ? mine : new_lane();
}
