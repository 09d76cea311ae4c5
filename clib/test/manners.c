/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manners BYTES [--mess]: what of this process changes while it uses the driver?
 *
 * It notes what a program may rely on, uses the driver from start to end (a
 * request of BYTES that a share refuses included), and prints a line "changed
 * THING" for each thing that is not as it was, then "done". With --mess it
 * changes all of them itself, which shows that it would have seen it.
 *
 * Built with -DINTERPOSER it is a library like those of profilers: it wraps
 * cuMemAlloc_v2, reaches the next one by RTLD_NEXT, and says how often on stderr.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "nvml_abi.h"

#ifdef INTERPOSER

__attribute__((visibility("default"))) CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	__typeof__(&cuMemAlloc_v2) next = (__typeof__(&cuMemAlloc_v2))dlsym(RTLD_NEXT, "cuMemAlloc_v2");

	if (!next) {
		fprintf(stderr, "interposed: nothing follows\n");
		return CUDA_ERROR_NOT_FOUND;
	}
	fprintf(stderr, "interposed %zu\n", bytes);
	return next(address, bytes);
}

#else

extern char **environ;

enum { SIGNALS = 64, DESCRIPTORS = 256 };

struct things {
	void (*handler[SIGNALS + 1])(int);
	int flags[SIGNALS + 1];
	sigset_t mask;
	mode_t umask;
	char directory[512];
	char environment[1 << 16];
	char locale[128];
	struct itimerval timer;
	struct rlimit limits[RLIMIT_NLIMITS];
	uint8_t open[DESCRIPTORS];
	int dumpable, deathsignal, rounding, policy, priority;
	char name[16];
	int subreaper;
};

static void look(struct things *things)
{
	size_t used = 0;

	memset(things, 0, sizeof *things);
	for (int i = 1; i <= SIGNALS; i++) {
		struct sigaction action;

		if (sigaction(i, NULL, &action) != 0)
			continue;
		things->handler[i] = action.sa_handler;
		things->flags[i] = action.sa_flags;
	}
	sigprocmask(SIG_BLOCK, NULL, &things->mask);
	things->umask = umask(0);
	umask(things->umask);
	if (!getcwd(things->directory, sizeof things->directory))
		things->directory[0] = 0;
	for (char **entry = environ; *entry && used + strlen(*entry) + 2 < sizeof things->environment; entry++)
		used += (size_t)sprintf(things->environment + used, "%s\n", *entry);
	snprintf(things->locale, sizeof things->locale, "%s", setlocale(LC_ALL, NULL));
	getitimer(ITIMER_REAL, &things->timer);
	for (int i = 0; i < RLIMIT_NLIMITS; i++)
		getrlimit((__rlimit_resource_t)i, &things->limits[i]);
	for (int fd = 0; fd < DESCRIPTORS; fd++)
		things->open[fd] = fcntl(fd, F_GETFD) >= 0;
	things->dumpable = prctl(PR_GET_DUMPABLE);
	prctl(PR_GET_PDEATHSIG, &things->deathsignal);
	prctl(PR_GET_CHILD_SUBREAPER, &things->subreaper);
	prctl(PR_GET_NAME, things->name);
	things->rounding = fegetround();
	things->policy = sched_getscheduler(0);
	things->priority = getpriority(PRIO_PROCESS, 0);
}

static void mess(void)
{
	struct itimerval timer = {.it_value = {1000, 0}};
	struct rlimit limit;
	sigset_t set;

	signal(SIGUSR1, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	umask(0123);
	setenv("MANNERS", "none", 1);
	if (chdir("/proc") != 0)
		exit(1);
	setlocale(LC_ALL, "C.UTF-8");
	setitimer(ITIMER_REAL, &timer, NULL);
	getrlimit(RLIMIT_CORE, &limit);
	limit.rlim_cur = limit.rlim_cur ? 0 : 1;
	limit.rlim_max = limit.rlim_max > 1 ? limit.rlim_max - 1 : limit.rlim_max;
	setrlimit(RLIMIT_CORE, &limit);
	dup2(2, 100);
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_PDEATHSIG, SIGUSR1);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_NAME, "messy");
	fesetround(FE_UPWARD);
	setpriority(PRIO_PROCESS, 0, 19);
}

static void compare(const struct things *before, const struct things *after)
{
#define SAME(field)                                                               \
	do {                                                                      \
		if (memcmp(&before->field, &after->field, sizeof before->field) != 0) \
			printf("changed %s\n", #field);                           \
	} while (0)
	SAME(handler);
	SAME(mask);
	SAME(umask);
	SAME(directory);
	SAME(environment);
	SAME(locale);
	SAME(timer.it_interval);
	SAME(limits);
	SAME(open);
	SAME(dumpable);
	SAME(deathsignal);
	SAME(subreaper);
	SAME(name);
	SAME(rounding);
	SAME(policy);
	SAME(priority);
	if ((before->timer.it_value.tv_sec == 0) != (after->timer.it_value.tv_sec == 0))
		printf("changed timer\n");
}

/* From start to end; the results are what another test is about. */
static int use(size_t bytes)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	CUdeviceptr address = 0;
	CUcontext context;
	CUdevice device = 0;
	size_t free = 0, total = 0;
	unsigned int count;
	int over;

#define CUDA(symbol) ((__typeof__(&symbol))dlsym(cuda, #symbol))
#define NVML(symbol) ((__typeof__(&symbol))dlsym(nvml, #symbol))
	if (!cuda || !nvml || CUDA(cuInit)(0) != CUDA_SUCCESS || CUDA(cuDeviceGet)(&device, 0) != CUDA_SUCCESS ||
	    CUDA(cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS || CUDA(cuCtxSetCurrent)(context) != CUDA_SUCCESS)
		return -1;
	/* by the name, so that a library before the driver is heard */
	over = (int)((__typeof__(&cuMemAlloc_v2))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") ?
			     ((__typeof__(&cuMemAlloc_v2))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"))(&address, bytes) :
			     CUDA(cuMemAlloc_v2)(&address, bytes));
	if (over == CUDA_SUCCESS)
		CUDA(cuMemFree_v2)(address);
	CUDA(cuMemGetInfo_v2)(&free, &total);
	if (NVML(nvmlInit_v2)() == NVML_SUCCESS) {
		NVML(nvmlDeviceGetCount_v2)(&count);
		NVML(nvmlShutdown)();
	}
	CUDA(cuCtxSynchronize)();
	CUDA(cuDevicePrimaryCtxRelease_v2)(device);
	return over;
}

int main(int argc, char **argv)
{
	static struct things before, after;
	size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 << 20;
	int over;

	look(&before);
	over = use(bytes);
	if (argc > 2 && strcmp(argv[2], "--mess") == 0)
		mess();
	look(&after);
	compare(&before, &after);
	printf("over %d\ndone\n", over);
	return over < 0;
}

#endif
