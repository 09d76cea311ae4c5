/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agentmain.c: the tests' agent as a program.
 *
 *	test-agent SOCKET LIMITBYTES [COMMAND ARGUMENTS...]
 *
 * Serves one share on one card, the null driver's, or on those whose UUIDs
 * DIVVY_TEST_UUID holds (32 hexadecimal digits each, with commas between them),
 * while the command runs (or until it is killed), and passes on the command's exit
 * status.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"

int main(int argc, char **argv)
{
	const char *uuid = getenv("DIVVY_TEST_UUID");
	struct agent_share share = {.contextbytes = 64ull << 20};
	struct agent *agent;
	int status = 0;
	pid_t pid;

	if (argc < 3) {
		fprintf(stderr, "usage: test-agent SOCKET LIMITBYTES [COMMAND ARGUMENTS...]\n");
		return 2;
	}
	share.path = argv[1];
	share.limitbytes = strtoull(argv[2], NULL, 0);
	while (uuid != NULL && strlen(uuid) >= 32 && share.cards < DIVVY_MAX_CARDS) {
		for (unsigned i = 0; i < 16; i++) {
			char digits[3] = {uuid[2 * i], uuid[2 * i + 1], 0};

			share.uuid[share.cards][i] = (uint8_t)strtoul(digits, NULL, 16);
		}
		share.cards++;
		uuid += uuid[32] == ',' ? 33 : 32;
	}
	agent = agent_start(&share);
	if (argc == 3)
		pause();
	setenv("DIVVY_SOCKET", argv[1], 1);
	pid = fork();
	if (pid == 0) {
		execvp(argv[3], argv + 3);
		perror(argv[3]);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 125;
	agent_stop(agent);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
