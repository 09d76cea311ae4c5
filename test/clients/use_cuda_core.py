# SPDX-License-Identifier: Apache-2.0
"""cuda-python's cuda.core with NVRTC: C++ compiled at run time to PTX, events, streams, memory of a pool."""
import ctypes

import numpy
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from workload import main

SOURCE = r"""
template <typename T> struct pair { T low, high; };

extern "C" __global__ void matrix(const float *a, const float *b, float *c, int n) {
    __shared__ float left[16][16], right[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; i++)
            sum = fmaf(left[threadIdx.y][i], right[i][threadIdx.x], sum);
        __syncthreads();
    }
    pair<float> both{fminf(sum, 0), fmaxf(sum, 0)};
    c[row * n + column] = both.low * 0.1f + both.high;
}
"""


def ready():
    device = Device()
    device.set_current()
    return device


def check(result, *rest):
    if int(result):
        raise RuntimeError(f"{result!r}")
    return rest[0] if rest else None


def work():
    n = 64
    device = ready()
    stream = device.create_stream()
    major, minor = device.compute_capability
    program = Program(SOURCE, code_type="c++", options=ProgramOptions(std="c++17", arch=f"compute_{major}{minor}"))
    kernel = program.compile("ptx").get_kernel("matrix")
    random = numpy.random.default_rng(3)
    a, b = (random.standard_normal((n, n)).astype(numpy.float32) for _ in range(2))
    c = numpy.zeros((n, n), numpy.float32)
    buffers = [device.allocate(a.nbytes, stream=stream) for _ in range(3)]
    handle = driver.CUstream(int(stream.handle))
    for buffer, host in zip(buffers, (a, b)):
        check(*driver.cuMemcpyHtoDAsync(int(buffer.handle), host.ctypes.data, host.nbytes, handle))
    launch(stream, LaunchConfig(grid=(n // 16, n // 16), block=(16, 16)), kernel, *buffers, ctypes.c_int(n))
    check(*driver.cuMemcpyDtoHAsync(c.ctypes.data, int(buffers[2].handle), c.nbytes, handle))
    stream.sync()
    want = a.astype(numpy.float64) @ b
    for buffer in buffers:
        buffer.close(stream)
    stream.sync()
    return numpy.abs(c - numpy.where(want < 0, want * 0.1, want)).max(), 1e-4


def take(size):
    device = ready()
    stream = device.create_stream()
    held = device.allocate(size, stream=stream)
    stream.sync()
    return held


def look():
    return ready().name, check(*driver.cuMemGetInfo()[:1], driver.cuMemGetInfo()[2])


main(work, take, look)
