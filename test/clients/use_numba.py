# SPDX-License-Identifier: Apache-2.0
"""numba-cuda, linked by the driver: sums by shared memory and atomics, and a Mandelbrot
set in 64 bit integers."""
import warnings

import numpy
from numba import cuda, float32
from workload import main

warnings.filterwarnings("ignore")
ONE = 1 << 20  # in fixed point, since a fused multiplication rounds otherwise than two operations


@cuda.jit
def add_up(values, out):
    part = cuda.shared.array(128, float32)
    i = cuda.grid(1)
    part[cuda.threadIdx.x] = values[i] if i < values.size else 0
    cuda.syncthreads()
    step = 64
    while step:
        if cuda.threadIdx.x < step:
            part[cuda.threadIdx.x] += part[cuda.threadIdx.x + step]
        cuda.syncthreads()
        step //= 2
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(out, 0, part[0])


@cuda.jit
def mandelbrot(counts):
    x, y = cuda.grid(2)
    if x < counts.shape[0] and y < counts.shape[1]:
        a = x * (3 * ONE) // counts.shape[0] - 2 * ONE
        b = y * (2 * ONE) // counts.shape[1] - ONE
        re = im = n = 0
        while n < 50 and re * re + im * im < 4 * ONE * ONE:
            re, im = ((re * re - im * im) >> 20) + a, ((re * im) >> 19) + b
            n += 1
        counts[x, y] = n


def on_cpu(width, height):
    a, b = numpy.meshgrid(numpy.arange(width) * (3 * ONE) // width - 2 * ONE,
                          numpy.arange(height) * (2 * ONE) // height - ONE, indexing="ij")
    re = numpy.zeros_like(a)
    im = numpy.zeros_like(a)
    counts = numpy.zeros((width, height), numpy.int32)
    for _ in range(50):
        inside = re * re + im * im < 4 * ONE * ONE
        more = ((re * re - im * im) >> 20) + a, ((re * im) >> 19) + b
        re[inside], im[inside] = more[0][inside], more[1][inside]
        counts[inside] += 1
    return counts


def work():
    values = (numpy.arange(10000) % 100).astype(numpy.float32)
    out = numpy.zeros(1, numpy.float32)
    add_up[(values.size + 127) // 128, 128](values, out)
    counts = numpy.zeros((96, 64), numpy.int32)
    mandelbrot[(12, 8), (8, 8)](counts)
    return abs(out[0] - values.sum()) + (counts != on_cpu(96, 64)).sum(), 0


def take(size):
    held = cuda.device_array(size, numpy.uint8)
    cuda.synchronize()
    return held


def look():
    device = cuda.get_current_device()
    name = device.name
    return name.decode() if isinstance(name, bytes) else name, cuda.current_context().get_memory_info()[1]


main(work, take, look)
