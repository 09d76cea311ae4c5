/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine.c: what a worker may not do once its driver has started: a list of system calls,
 * since the vendor's driver uses what it likes of the others. Programs elsewhere choose the
 * arguments of every call that is made here.
 */
#include "confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DENY (SECCOMP_RET_ERRNO | EPERM)
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define FORBID(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, DENY)
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)

/* x32 calls have numbers of their own, with this bit. */
#define X32_BIT 0x40000000u

bool worker_confine(void)
{
	struct sock_filter filter[] = {
		LOAD(arch),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
		ANSWER(DENY),
		LOAD(nr),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1),
		ANSWER(DENY),
		FORBID(SYS_execve),
		FORBID(SYS_execveat),
		FORBID(SYS_ptrace),
		FORBID(SYS_process_vm_readv),
		FORBID(SYS_process_vm_writev),
		FORBID(SYS_mount),
		FORBID(SYS_umount2),
		FORBID(SYS_pivot_root),
		FORBID(SYS_chroot),
		FORBID(SYS_unshare),
		FORBID(SYS_setns),
		FORBID(SYS_bpf),
		FORBID(SYS_keyctl),
		FORBID(SYS_add_key),
		FORBID(SYS_request_key),
		FORBID(SYS_userfaultfd),
		FORBID(SYS_perf_event_open),
		FORBID(SYS_init_module),
		FORBID(SYS_finit_module),
		FORBID(SYS_kexec_load),
		/* sockets of this machine alone: the agent's */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		LOAD(args[0]),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0),
		ANSWER(DENY),
		ANSWER(SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return false;
	/* all threads: the driver has started some */
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}
