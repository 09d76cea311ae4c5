// SPDX-License-Identifier: Apache-2.0

#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * The kernel is asked itself: a sanitizer's runtime in LD_PRELOAD, which is meant for the
 * command, stands in the place of sigaction, and holds signals back until the program comes to
 * a function of the C library that waits. Go's never do.
 */
struct action {
	void (*handler)(int s, siginfo_t *info, void *context); /* or SIG_IGN, SIG_DFL */
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

enum { HAS_RESTORER = 0x04000000 }; /* SA_RESTORER */

void divvy_signals_restore(void);

__asm__(".text\n.hidden divvy_signals_restore\n.type divvy_signals_restore, @function\n"
	"divvy_signals_restore:\n\tmov $15, %rax\n\tsyscall\n"); /* rt_sigreturn */

static int act(int s, const struct action *new, struct action *old)
{
	return (int)syscall(SYS_rt_sigaction, s, new, old, sizeof(new->mask));
}

uint64_t divvy_signals_mask(uint64_t which)
{
	uint64_t old = 0;
	(void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &which, &old, sizeof(old));
	return old;
}

static bool ignores(const struct action *at)
{
	return (void (*)(int))(uintptr_t)at->handler == SIG_IGN;
}

static uint64_t ignored, blocked;
static int pipe_end = -1;
static struct action before[65];

// Before Go's runtime starts: it takes the place of what was there.
__attribute__((constructor)) static void look(void)
{
	(void)syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &blocked, sizeof(blocked));
	for (int s = 1; s <= 64; s++) {
		struct action at;
		if (act(s, NULL, &at) == 0 && ignores(&at))
			ignored |= UINT64_C(1) << (s - 1);
	}
}

uint64_t divvy_signals_ignored(void)
{
	return ignored;
}

uint64_t divvy_signals_blocked(void)
{
	return blocked;
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
		long n = syscall(SYS_write, pipe_end, &number, 1); // full: thousands are waiting
		(void)n;
	} else if (before[s].flags & SA_SIGINFO) {
		before[s].handler(s, info, context);
	}
	errno = saved;
}

void divvy_signals_take(int fd, uint64_t which)
{
	const struct action ours = {
		.handler = arrived,
		.flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | HAS_RESTORER,
		.restorer = divvy_signals_restore,
		.mask = UINT64_MAX,
	};
	pipe_end = fd;
	for (int s = 1; s <= 64; s++) {
		if ((which >> (s - 1) & 1) && act(s, NULL, &before[s]) == 0)
			(void)act(s, &ours, NULL);
	}
}

void divvy_signals_return(uint64_t which)
{
	for (int s = 1; s <= 64; s++) {
		if (which >> (s - 1) & 1)
			(void)act(s, &before[s], NULL);
	}
}

void divvy_signals_ignore(uint64_t which)
{
	const struct action nothing = { .handler = (void (*)(int, siginfo_t *, void *))(uintptr_t)SIG_IGN };
	for (int s = 1; s <= 64; s++) {
		if (which >> (s - 1) & 1)
			(void)act(s, &nothing, NULL);
	}
}
