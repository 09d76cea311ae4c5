# SPDX-License-Identifier: Apache-2.0
# The two lines should be alike, whatever is ignored.
import os, signal, subprocess
for s in [*range(1, 32), *range(34, 65)]:
    try: signal.signal(s, signal.SIG_IGN)
    except OSError: pass
line = ["grep", "SigIgn", "/proc/self/status"]
run = ["divvy", "run", "--simulate", "--mem", "128MiB", *os.environ["ISOLATE"].split(), "--", *line]
for command in line, run:
    subprocess.Popen(command, restore_signals=False)
    # One that ignores SIGCHLD is not told how they end.
    while True:
        try: os.wait()
        except ChildProcessError: break
