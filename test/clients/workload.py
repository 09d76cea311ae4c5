# SPDX-License-Identifier: Apache-2.0
"""What the workloads of test/clients have in common. Each is a program with three ways:

work        computes something on the GPU and on the CPU and says whether they agree
ask BYTES   asks its library for so much memory, and says what the library raised
hold BYTES  takes so much, says so, and keeps it until its input ends

and prints one line of JSON. How it does that on the GPU is its own matter."""
import json
import sys


def say(**what):
    print(json.dumps(what), flush=True)


def reason(error):
    """Everything that an exception says, with those that it came of."""
    said = []
    while error is not None:
        said.append(f"{type(error).__name__}: {error}")
        error = error.__cause__ or error.__context__
    return " <- ".join(said)[:2000]


def main(work, take, look):
    """work() -> how much GPU and CPU differ, and how much they may; take(bytes) -> what holds them;
    look() -> name and total bytes of the GPU."""
    way = sys.argv[1]
    if way == "work":
        differ, most = work()
        name, total = look()
        say(same=bool(differ <= most), differ=float(differ), most=float(most), name=name, total=int(total))
        return
    size = int(sys.argv[2])
    look()
    try:
        held = take(size)
    except Exception as error:  # its own way of saying that there is no memory
        say(refused=reason(error))
        return
    say(held=size)
    if way == "hold":
        sys.stdin.read()
    del held


def driver_total():
    """Name and memory of the first GPU for libraries that do not tell: the driver's own answer."""
    import ctypes
    driver = ctypes.CDLL("libcuda.so.1")
    total = ctypes.c_size_t()
    name = ctypes.create_string_buffer(128)
    if driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0) or driver.cuDeviceGetName(name, 128, 0):
        raise RuntimeError("the driver does not tell its memory")
    return name.value.decode(), total.value
