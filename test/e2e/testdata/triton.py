# SPDX-License-Identifier: Apache-2.0
"""Launches kernels that Triton compiled, by the driver API, and compares what they
compute with numpy's: triton.py FOLDER CAPABILITY. Prints a line for each kernel."""
import ctypes
import math
import pathlib
import sys

import numpy

cuda = ctypes.CDLL("libcuda.so.1")
ROWS, COLUMNS, COUNT = 5, 500, 3000
random = numpy.random.default_rng(1)


def check(what, result):
    if result:
        sys.exit(f"{what}: error {result}")


class Memory:
    """An array on the GPU."""

    def __init__(self, array):
        self.array = numpy.ascontiguousarray(array)
        self.at = ctypes.c_uint64()
        check("allocate", cuda.cuMemAlloc_v2(ctypes.byref(self.at), ctypes.c_size_t(self.array.nbytes)))
        check("copy", cuda.cuMemcpyHtoD_v2(self.at, self.array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(self.array.nbytes)))

    def back(self):
        check("copy back", cuda.cuMemcpyDtoH_v2(self.array.ctypes.data_as(ctypes.c_void_p), self.at, ctypes.c_size_t(self.array.nbytes)))
        return self.array


def bf16(array):  # its bits, rounded to even
    bits = numpy.asarray(array, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


def floats(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def philox(seed, counter):
    """The first word of Philox 4x32-10, as tl.rand takes it."""
    c, k = [counter, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def rand(seed, counter):
    bits = philox(seed, counter)
    return abs(bits - (1 << 32) if bits >> 31 else bits) * 4.6566127342e-10 if bits != 1 << 31 else 0.0


def f32(*shape):
    return random.standard_normal(shape).astype(numpy.float32)


def i32(n):
    return ctypes.c_int32(n)


def zeros(like):
    return Memory(numpy.zeros_like(like))


def cases():
    """name, grid, arguments, the one that is the result, what it is, how far it may be off."""
    x, y = f32(COUNT), f32(COUNT)
    out = zeros(x)
    yield "add", (3, 1), [Memory(x), Memory(y), out, i32(COUNT)], out, x + y, 0
    x = f32(ROWS, COLUMNS)
    out = zeros(x)
    e = numpy.exp(x - x.max(1, keepdims=True))
    yield "softmax", (ROWS, 1), [Memory(x), out, i32(COLUMNS)], out, e / e.sum(1, keepdims=True), 1e-6
    w, b = f32(COLUMNS), f32(COLUMNS)
    out = zeros(x)
    d = x - x.mean(1, keepdims=True)
    want = d / numpy.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * w + b
    yield "norm", (ROWS, 1), [Memory(x), Memory(w), Memory(b), out, i32(COLUMNS), ctypes.c_float(1e-5)], out, want, 1e-5
    v = f32(1000)
    out = zeros(v)
    keep = numpy.array([rand(42, i) > 0.5 for i in range(len(v))])
    yield "dropout", (4, 1), [Memory(v), out, i32(len(v)), ctypes.c_float(0.5), i32(42)], out, numpy.where(keep, v * 2, 0), 0
    v = f32(256)
    out = zeros(v)
    yield "scan", (1, 1), [Memory(v), out], out, numpy.cumsum(v.astype(numpy.float64)), 1e-5
    v = f32(128)
    out = zeros(v)
    yield "sort", (1, 1), [Memory(v), out], out, numpy.sort(v), 0
    h = random.integers(0, 10, COUNT).astype(numpy.int32)
    out = Memory(numpy.zeros(10, numpy.int32))
    yield "histogram", (12, 1), [Memory(h), out, i32(COUNT)], out, numpy.bincount(h, minlength=10), 0
    out = Memory(numpy.zeros(ROWS, numpy.int32))
    yield "argmax", (ROWS, 1), [Memory(x), out, i32(COLUMNS)], out, x.argmax(1), 0
    g = random.standard_normal(1000).astype(numpy.float16)
    out = zeros(g)
    want = [0.5 * float(v) * (1 + math.erf(float(v) * 0.7071067811865476)) for v in g]
    yield "gelu", (2, 1), [Memory(g), out, i32(len(g))], out, numpy.array(want), 2e-3
    s = bf16(f32(1000))
    out = zeros(s)
    f = floats(s)
    yield "swish", (2, 1), [Memory(s), out, i32(len(s))], out, f + f / (1 + numpy.exp(-f)), 4e-2
    m, n, k = 33, 47, 50
    a, b = f32(m, k), f32(k, n)
    out = Memory(numpy.zeros((m, n), numpy.float32))
    yield "matmul", (2, 2), [Memory(a), Memory(b), out, i32(m), i32(n), i32(k)], out, a @ b, 1e-4
    a, b = f32(32, 32).astype(numpy.float16), f32(32, 32).astype(numpy.float16)
    out = Memory(numpy.zeros((32, 32), numpy.float32))
    yield "tensorcore", (1, 1), [Memory(a), Memory(b), out], out, a.astype(numpy.float64) @ b, 1e-5
    m, n, k = 100, 70, 200
    a, b = f32(m, k).astype(numpy.float16), f32(k, n).astype(numpy.float16)
    out = Memory(numpy.zeros((m, n), numpy.float16))
    yield "gemm", (2, 2), [Memory(a), Memory(b), out, i32(m), i32(n), i32(k)], out, a.astype(numpy.float64) @ b, 3e-2
    n, d = 150, 64
    q, k, v = bf16(f32(n, d)), bf16(f32(n, d)), bf16(f32(n, d))
    out = Memory(numpy.zeros((n, d), numpy.float32))
    p = floats(q) @ floats(k).T / math.sqrt(d)
    p = numpy.exp(numpy.where(numpy.tri(n) > 0, p, -numpy.inf))
    yield "attention", (3, 1), [Memory(q), Memory(k), Memory(v), out, ctypes.c_float(1 / math.sqrt(d)), i32(n)], out, p / p.sum(1, keepdims=True) @ floats(v), 2e-2


def load(path):
    """The kernel's module, or what the JIT says."""
    module, log = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    options = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER, ..._SIZE_BYTES
    values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), len(log))
    result = cuda.cuModuleLoadDataEx(ctypes.byref(module), path.read_bytes() + b"\0", 2, options, values)
    return module, f"error {result}, {log.value.decode().strip()}" if result else ""


def main():
    folder, capability = pathlib.Path(sys.argv[1]), sys.argv[2]
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check("init", cuda.cuInit(0))
    check("device", cuda.cuDeviceGet(ctypes.byref(device), 0))
    check("context", cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
    rows = [line.split("\t") for line in (folder / "kernels.tsv").read_text().splitlines() if not line.startswith("#")]
    launches = {row[0]: (int(row[3]), int(row[4]), row[5]) for row in rows if row[1] == capability}
    for name, grid, arguments, out, want, far in cases():
        threads, shared, file = launches.pop(name)
        module, refused = load(folder / file)
        if refused:
            print(name, refused)
            continue
        function = ctypes.c_void_p()
        check(name, cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        values = [a.at if isinstance(a, Memory) else a for a in arguments] + [ctypes.c_uint64(), ctypes.c_uint64()]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values])
        check(name, cuda.cuLaunchKernel(function, grid[0], grid[1], 1, threads, 1, 1, shared, None, pointers, None))
        check(name, cuda.cuCtxSynchronize())
        got = out.back()
        if got.dtype == numpy.uint16:
            got = floats(got)
        off = float(numpy.abs(got.astype(numpy.float64) - want).max())
        print(name, "right" if off <= far else f"off by {off}, may be {far}")
    for name in launches:
        print(name, "not tried")


main()
