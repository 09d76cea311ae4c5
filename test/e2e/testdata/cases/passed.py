# SPDX-License-Identifier: Apache-2.0
# All signals that a process can take and that do not say something of it itself: what
# becomes of the child, of a terminal, and what continues it.
import os, signal, subprocess, time
child = r'''
import signal, time
def on(s, f): print(int(s), flush=True)
for s in [*range(1, 32), *range(34, 65)]:
    try: signal.signal(s, on)
    except OSError: pass
print("ready", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end: time.sleep(0.01)
'''
sent = [s for s in [*range(1, 32), *range(34, 65)] if s not in (9, 17, 18, 19, 20, 21, 22)]
p = subprocess.Popen(["divvy", "run", "--simulate", "--mem", "128MiB", "--", "python3", "-c", child], stdout=subprocess.PIPE, text=True, start_new_session=True)
p.stdout.readline()
got = set()
for s in sent:
    os.kill(p.pid, s)
    if s == 15: pass
    got.add(int(p.stdout.readline()))
os.kill(-p.pid, 9)
p.wait()
print("sent", len(sent), "not passed", [s for s in sent if s not in got], "code 0")
