/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger of several processes against an agent over the real socket and
 * pages: the last room among them, forks, and programs that close what is not
 * theirs.
 */
#include <errno.h>
#include <fcntl.h>

#include "joined.h"

#define ROUNDS 300

struct child {
	pid_t pid;
	int order; /* we write */
	int report;
};

/* Runs work(order) for every byte sent; its result goes back as a byte. Before any thread is started. */
static struct child child_start(int (*work)(char order))
{
	struct child child;
	int down[2], up[2];

	CHECK(pipe2(down, O_CLOEXEC) == 0 && pipe2(up, O_CLOEXEC) == 0);
	child.pid = fork();
	CHECK(child.pid >= 0);
	if (child.pid == 0) {
		char order;

		close(down[1]);
		close(up[0]);
		while (read(down[0], &order, 1) == 1) {
			char result = (char)work(order);

			CHECK(write(up[1], &result, 1) == 1);
		}
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	child.order = down[1];
	child.report = up[0];
	return child;
}

static void child_tell(const struct child *child, char order)
{
	CHECK(write(child->order, &order, 1) == 1);
}

static int child_hear(const struct child *child)
{
	char result;

	CHECK(read(child->report, &result, 1) == 1);
	return result;
}

static int child_do(const struct child *child, char order)
{
	child_tell(child, order);
	return child_hear(child);
}

static int obey(char order)
{
	uint64_t freebytes, totalbytes;

	switch (order) {
	case 'a':
		return front_attach(path, buildid) == 0;
	case 'c': /* all */
		return charge(LIMIT) == 0;
	case 'f':
		front_refund(0, LIMIT);
		return 1;
	case 'm': /* one MiB */
		return charge(MIB) == 0;
	case 'i':
		front_memory(0, 1, 2, &freebytes, &totalbytes);
		return (int)(freebytes / MIB);
	}
	return 0;
}

static void gives_the_last_room_to_one_process(void)
{
	struct child child[2];
	struct agent *agent;

	share_of(LIMIT);
	for (int i = 0; i < 2; i++)
		child[i] = child_start(obey);
	agent = agent_of(LIMIT);
	for (int i = 0; i < 2; i++)
		CHECK(child_do(&child[i], 'a'));
	for (int round = 0; round < ROUNDS; round++) {
		int won[2];

		for (int i = 0; i < 2; i++)
			child_tell(&child[(i + round) & 1], 'c');
		for (int i = 0; i < 2; i++)
			won[i] = child_hear(&child[i]);
		CHECK(won[0] + won[1] == 1);
		CHECK(agent_in_use(agent, 0) == LIMIT);
		CHECK(child_do(&child[won[1]], 'f'));
	}
}

static void shows_what_all_have_in_use(void)
{
	struct child child[2];

	share_of(LIMIT);
	for (int i = 0; i < 2; i++)
		child[i] = child_start(obey);
	agent_of(LIMIT);
	for (int i = 0; i < 2; i++)
		CHECK(child_do(&child[i], 'a'));
	CHECK(child_do(&child[0], 'm') && child_do(&child[1], 'm') && child_do(&child[1], 'm'));
	CHECK(child_do(&child[0], 'i') == 61);
	/* at once, not when the figure is 5 ms old: the process's own part it knows best */
	CHECK(child_do(&child[0], 'm') && child_do(&child[0], 'i') == 60);
	CHECK(child_do(&child[0], 'm') && child_do(&child[0], 'i') == 59);
}

static void lists_the_users(void)
{
	enum { MANY = 19 };
	struct child child[MANY];
	struct front_user users[MANY + 5];
	int count;

	share_of(LIMIT);
	for (int i = 0; i < MANY; i++)
		child[i] = child_start(obey);
	agent_of(LIMIT);
	for (int i = 0; i < MANY; i++)
		CHECK(child_do(&child[i], 'a') && child_do(&child[i], 'm'));
	CHECK(front_attach(path, buildid) == 0);
	count = front_users(0, users, MANY + 5);
	CHECK(count == MANY + 1);
	for (int i = 0; i < MANY; i++) {
		int found = 0;

		for (int j = 0; j < count; j++)
			found += users[j].pid == (uint32_t)child[i].pid && users[j].bytes == MIB;
		CHECK(found == 1);
	}
	CHECK(front_users(0, users, 3) == MANY + 1);
}

/* -- closed sockets ------------------------------------------------------------ */

static int close_all(char order)
{
	switch (order) {
	case 'a':
		return front_attach(path, buildid) == 0 && charge(MIB) == 0;
	case 'x':
		/* the program's pipes are 3 to 6 or so; ours is far above */
		for (int fd = 100; fd < 2000; fd++)
			close(fd);
		return 1;
	case 'r': /* and takes the number for itself */
		for (int fd = 100; fd < 2000; fd++)
			close(fd);
		return fcntl(2, F_DUPFD_CLOEXEC, 512) >= 512;
	case 'c':
		return charge(2 * MIB) == 0;
	}
	return 0;
}

static void lives_on_after_closing_its_socket(char order)
{
	struct agent_share share = share_of(LIMIT);
	struct child child = child_start(close_all);
	struct agent *agent;

	share.firstcredit = MIB;
	agent = agent_start(&share);
	CHECK(child_do(&child, 'a'));
	CHECK(child_do(&child, order));
	CHECK(child_do(&child, 'c'));
	CHECK(agent_attached(agent) == 2);
	EVENTUALLY(agent_clients(agent) == 1, 10);
	CHECK(agent_in_use(agent, 0) == 3 * MIB);
}

static void lives_on_without_its_socket(void)
{
	lives_on_after_closing_its_socket('x');
}

static void does_not_touch_who_took_its_number(void)
{
	lives_on_after_closing_its_socket('r');
}

/* -- fork ---------------------------------------------------------------------- */

static void a_child_is_not_its_parent(void)
{
	struct agent *agent = agent_of(LIMIT);
	int status;
	pid_t pid;

	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(MIB) == 0);
	pid = fork();
	if (pid == 0) {
		CHECK(!*front_live && front_forked());
		front_event(DIVVY_EVENT_HIDDEN, 0, 0, "from a child");
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(*front_live && !front_forked());
	CHECK(agent_clients(agent) == 1 && agent_in_use(agent, 0) == MIB);
	CHECK(agent_events(agent, DIVVY_EVENT_HIDDEN, NULL) == 0);
	CHECK(charge(LIMIT - MIB) == 0); /* the parent's connection is as before */
	CHECK(charge(1) == -ENOMEM);
}

static void a_child_joins_on_its_own(void)
{
	struct agent *agent = agent_of(LIMIT);
	int go[2], status;
	char byte;
	pid_t pid;

	CHECK(front_attach(path, buildid) == 0);
	CHECK(charge(MIB) == 0);
	CHECK(pipe2(go, O_CLOEXEC) == 0);
	pid = fork();
	if (pid == 0) {
		close(go[1]);
		CHECK(front_attach(path, buildid) == 0);
		CHECK(*front_live && !front_forked() && front_own_use(0) == 0);
		CHECK(charge(2 * MIB) == 0);
		CHECK(read(go[0], &byte, 1) == 0);
		_exit(0);
	}
	EVENTUALLY(agent_in_use(agent, 0) == 3 * MIB, 10);
	CHECK(agent_clients(agent) == 2 && front_own_use(0) == MIB);
	close(go[1]);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	EVENTUALLY(agent_clients(agent) == 1, 10);
	CHECK(agent_in_use(agent, 0) == MIB);
}

static const struct scenario scenarios[] = {
	{"gives the last room to one process", gives_the_last_room_to_one_process},
	{"shows what all have in use", shows_what_all_have_in_use},
	{"lists the users", lists_the_users},
	{"lives on without its socket", lives_on_without_its_socket},
	{"does not touch who took its number", does_not_touch_who_took_its_number},
	{"a child is not its parent", a_child_is_not_its_parent},
	{"a child joins on its own", a_child_joins_on_its_own},
};

RUN_SCENARIOS(scenarios)
