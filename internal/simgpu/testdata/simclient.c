/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simclient.c: a process that speaks to the simulator through the stand-in's own
 * client code, told what to do by lines on stdin; one line of answer each.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim.h"

static unsigned char *arena[DIVVY_SIM_MAX_CARDS];

static void fork_child(void)
{
	uint64_t freebytes = 0;
	uint64_t total = 0;
	int reopened;
	int observed;

	alarm(60);
	reopened = sim_open(DIVVY_SIM_ROLE_COMPUTE);
	observed = sim_open(DIVVY_SIM_ROLE_OBSERVE);
	printf("%d forked=%d compute=%d observe=%d memory=%d\n", (int)getpid(), (int)sim_forked(), reopened,
	       observed, sim_memory(0, &freebytes, &total));
	fflush(stdout);
	close(0); /* nobody waits for these to end */
	close(1);
	close(2);
	for (;;)
		pause();
}

/* What many threads do at once. */
static void *storm_thread(void *argument)
{
	uintptr_t number = (uintptr_t)argument;
	long failures = 0;

	for (uint64_t i = 1; i <= 200; i++) {
		struct divvy_sim_holder found[4];
		uint64_t freebytes;
		uint64_t total;
		uint64_t bytes = 512 * (i + number);

		failures += sim_open(number % 2 ? DIVVY_SIM_ROLE_COMPUTE : DIVVY_SIM_ROLE_OBSERVE) != 0;
		failures += sim_charge(0, DIVVY_SIM_KIND_LINEAR, bytes) != 0;
		failures += sim_memory(0, &freebytes, &total) != 0;
		failures += sim_holders(0, found, 4, NULL) < 1;
		failures += sim_touch(bytes) != 0;
		failures += sim_card_facts(0) == NULL || sim_forked();
		failures += sim_release(0, DIVVY_SIM_KIND_LINEAR, bytes) != 0;
		if (number % 2 == 0)
			sim_close_observer();
	}
	return (void *)(uintptr_t)failures;
}

static void storm(uint64_t threads)
{
	pthread_t thread[64];
	uintptr_t failures = 0;

	for (uint64_t i = 0; i < threads && i < 64; i++)
		if (pthread_create(&thread[i], NULL, storm_thread, (void *)(uintptr_t)i))
			exit(3);
	for (uint64_t i = 0; i < threads && i < 64; i++) {
		void *result;

		pthread_join(thread[i], &result);
		failures += (uintptr_t)result;
	}
	printf("%d\n", (int)failures);
}

static void print_handle(const unsigned char *handle)
{
	for (int i = 0; i < (int)DIVVY_SIM_HANDLE_BYTES; i++)
		printf("%02x", handle[i]);
	printf("\n");
}

static int parse_handle(const char *text, unsigned char *handle)
{
	for (int i = 0; i < (int)DIVVY_SIM_HANDLE_BYTES; i++)
		if (sscanf(text + 2 * i, "%2hhx", &handle[i]) != 1)
			return -1;
	return 0;
}

static void import_object(const char *path)
{
	struct sim_object object = {.fd = -1};
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int result = sim_object_import(fd, &object);

	printf("%d %" PRIu64 " %" PRIu64 " %" PRIu64 " %d\n", result, object.object, object.bytes, object.token, object.fd);
	if (fd >= 0)
		close(fd);
}

static void open_handle(const char *text)
{
	unsigned char handle[DIVVY_SIM_HANDLE_BYTES];
	struct sim_ipc ipc = {.fd = -1};
	int result = parse_handle(text, handle) ? -EINVAL : sim_ipc_open(handle, &ipc);
	int value = -1;

	if (result == 0 && ipc.fd >= 0) {
		unsigned char byte = 0;

		if (pread(ipc.fd, &byte, 1, (off_t)ipc.offset) == 1)
			value = byte;
		close(ipc.fd);
	}
	printf("%d %" PRIu64 " %" PRIu64 " %" PRIu64 " %d\n", result, ipc.offset, ipc.bytes, ipc.token, value);
}

static void list(uint32_t card)
{
	struct divvy_sim_holder found[64];
	long n = sim_holders(card, found, 64, NULL);

	printf("%ld", n);
	for (long i = 0; i < n && i < 64; i++)
		printf(" %u:%" PRIu64, found[i].pid, found[i].bytes);
	printf("\n");
}

static void command(char *line, char *self)
{
	char word[32] = "";
	char text[256] = "";
	uint64_t a = 0, b = 0, c = 0;
	uint64_t freebytes = 0, total = 0;
	int fd = -1;

	sscanf(line, "%31s %255s", word, text);
	sscanf(line, "%*s %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c);
	if (!strcmp(word, "open")) {
		printf("%d\n", sim_open(!strcmp(text, "compute") ? DIVVY_SIM_ROLE_COMPUTE : DIVVY_SIM_ROLE_OBSERVE));
	} else if (!strcmp(word, "unobserve")) {
		sim_close_observer();
		printf("0\n");
	} else if (!strcmp(word, "cards")) {
		const struct divvy_sim_card *facts = sim_card_facts(0);

		printf("%d %s\n", sim_cards(), facts ? facts->name : "none");
	} else if (!strcmp(word, "charge")) {
		printf("%d\n", sim_charge((uint32_t)a, (uint32_t)b, c));
	} else if (!strcmp(word, "release")) {
		printf("%d\n", sim_release((uint32_t)a, (uint32_t)b, c));
	} else if (!strcmp(word, "adjust")) {
		printf("%d\n", sim_adjust((uint32_t)a, (uint32_t)b, (int64_t)c));
	} else if (!strcmp(word, "memory")) {
		int result = sim_memory((uint32_t)a, &freebytes, &total);

		printf("%d %" PRIu64 " %" PRIu64 "\n", result, freebytes, total);
	} else if (!strcmp(word, "report")) {
		printf("%d\n", sim_fault_report((uint32_t)a, (uint32_t)b, (uint32_t)c));
	} else if (!strcmp(word, "faulted")) {
		uint32_t count = 0;
		uint32_t error = 0;
		int result = sim_faulted((uint32_t)a, &count, &error);

		printf("%d %d\n", result ? result : (int)count, (int)error);
	} else if (!strcmp(word, "touch")) {
		printf("%d\n", sim_touch(a));
	} else if (!strcmp(word, "arena")) {
		int result = sim_arena((uint32_t)a, b, &fd, &total);

		if (result == 0) {
			arena[a] = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
			close(fd);
		}
		printf("%d %" PRIu64 "\n", result, total);
	} else if (!strcmp(word, "poke")) {
		arena[0][a] = (unsigned char)b;
		printf("0\n");
	} else if (!strcmp(word, "fill")) {
		memset(arena[0], 1, a);
		printf("0\n");
	} else if (!strcmp(word, "create")) {
		struct sim_object object = {.fd = -1};
		int result = sim_object_create((uint32_t)a, DIVVY_SIM_OBJECT_MEMORY, b, c, &object);

		printf("%d %" PRIu64 " %d\n", result, object.object, object.fd);
	} else if (!strcmp(word, "export")) {
		int result = sim_object_export(a, &fd);

		printf("%d /proc/%d/fd/%d %d\n", result, (int)getpid(), fd, fd);
	} else if (!strcmp(word, "import")) {
		import_object(text);
	} else if (!strcmp(word, "drop")) {
		printf("%d\n", sim_object_drop(a));
	} else if (!strcmp(word, "close")) {
		printf("%d\n", close((int)a));
	} else if (!strcmp(word, "ipcexport")) {
		unsigned char handle[DIVVY_SIM_HANDLE_BYTES] = {0};
		int result = sim_ipc_export((uint32_t)a, DIVVY_SIM_IPC_MEMORY, b, c, 42, handle);

		if (result)
			printf("%d\n", result);
		else
			print_handle(handle);
	} else if (!strcmp(word, "ipcopen")) {
		open_handle(text);
	} else if (!strcmp(word, "ipcrevoke")) {
		printf("%d\n", sim_ipc_revoke((uint32_t)a, DIVVY_SIM_IPC_MEMORY, b));
	} else if (!strcmp(word, "list")) {
		list((uint32_t)a);
	} else if (!strcmp(word, "fork")) {
		if (fork() == 0)
			fork_child();
		return; /* the child answers */
	} else if (!strcmp(word, "storm")) {
		storm(a);
	} else if (!strcmp(word, "closeall")) {
		syscall(SYS_close_range, 3u, ~0u, 0u);
		printf("0\n");
	} else if (!strcmp(word, "exec")) {
		execl(self, self, (char *)NULL);
		printf("%d\n", -errno);
	} else if (!strcmp(word, "exit")) {
		exit(0);
	} else {
		printf("what? %s\n", word);
	}
}

int main(int argc, char **argv)
{
	char line[512];

	(void)argc;
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin))
		command(line, argv[0]);
	return 0;
}
