# SPDX-License-Identifier: Apache-2.0
# The two lines should be alike, whatever is blocked; a blocked signal that others send waits for
# the command to unblock it.
import os, signal, subprocess, sys, time
run = ["divvy", "run", "--simulate", "--mem", "128MiB", *os.environ["ISOLATE"].split(), "--"]
if sys.argv[1:] == ["waits"]:
    print("blocked", flush=True)
    for _ in range(1000):
        if {signal.SIGTERM, signal.SIGUSR1, 40} <= signal.sigpending(): break
        time.sleep(0.02)
    print("came", sorted(int(s) for s in signal.sigpending()))
    sys.exit()
for block in [signal.valid_signals(), [signal.SIGTERM, signal.SIGUSR1], []]:
    signal.pthread_sigmask(signal.SIG_SETMASK, block)
    for command in [], run:
        print(subprocess.run([*command, "grep", "SigBlk", "/proc/self/status"], stdout=subprocess.PIPE, text=True).stdout, end="", flush=True)
signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGTERM, signal.SIGUSR1, 40])
started = subprocess.Popen([*run, sys.executable, sys.argv[0], "waits"], stdout=subprocess.PIPE, text=True)
started.stdout.readline()
for s in signal.SIGTERM, signal.SIGUSR1, 40:
    started.send_signal(s)
print(started.stdout.read(), end="")
