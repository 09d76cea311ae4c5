// SPDX-License-Identifier: Apache-2.0

#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

static uint64_t ignored;
static int pipe_end = -1;
static struct sigaction before[65];

// Before Go's runtime starts: it takes the place of what was there.
__attribute__((constructor)) static void look(void)
{
	for (int s = 1; s <= 64; s++) {
		struct sigaction at;
		if (sigaction(s, NULL, &at) == 0 && !(at.sa_flags & SA_SIGINFO) && at.sa_handler == SIG_IGN)
			ignored |= UINT64_C(1) << (s - 1);
	}
}

uint64_t divvy_signals_ignored(void)
{
	return ignored;
}

static bool is_fault(int s)
{
	return s == SIGILL || s == SIGTRAP || s == SIGABRT || s == SIGBUS || s == SIGFPE || s == SIGSEGV || s == SIGSTKFLT || s == SIGSYS;
}

// What this process brings upon itself is Go's: faults, writes to closed pipes, and the
// SIGURG by which its threads interrupt each other.
static bool is_own(int s, const siginfo_t *info)
{
	if (is_fault(s) && info->si_code > 0)
		return true;
	return (info->si_code == SI_USER || info->si_code == SI_TKILL || info->si_code == SI_QUEUE) && info->si_pid == getpid();
}

static void arrived(int s, siginfo_t *info, void *context)
{
	int saved = errno;
	if (!is_own(s, info)) {
		unsigned char number = (unsigned char)s;
		ssize_t n = write(pipe_end, &number, 1); // full: thousands are waiting
		(void)n;
	} else if (before[s].sa_flags & SA_SIGINFO) {
		before[s].sa_sigaction(s, info, context);
	}
	errno = saved;
}

void divvy_signals_take(int fd, uint64_t which)
{
	struct sigaction ours = { .sa_sigaction = arrived, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
	sigfillset(&ours.sa_mask);
	pipe_end = fd;
	for (int s = 1; s <= 64; s++) {
		if ((which >> (s - 1) & 1) && sigaction(s, NULL, &before[s]) == 0)
			(void)sigaction(s, &ours, NULL);
	}
}

void divvy_signals_return(uint64_t which)
{
	for (int s = 1; s <= 64; s++) {
		if (which >> (s - 1) & 1)
			(void)sigaction(s, &before[s], NULL);
	}
}

void divvy_signals_ignore(uint64_t which)
{
	struct sigaction nothing = { .sa_handler = SIG_IGN };
	for (int s = 1; s <= 64; s++) {
		if (which >> (s - 1) & 1)
			(void)sigaction(s, &nothing, NULL);
	}
}
