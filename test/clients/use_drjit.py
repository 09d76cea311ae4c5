# SPDX-License-Identifier: Apache-2.0
"""drjit: its own PTX: transcendental functions, a loop with conditions, gathers and a reduction."""
import drjit as dr
import numpy
from drjit.cuda import Float, UInt8, UInt32
from workload import driver_total, main


def work():
    n = 5000
    x = dr.arange(Float, n) / n
    y = dr.sin(x * 9) * dr.exp(-x) + dr.sqrt(x)
    table = Float(numpy.linspace(0, 1, 64, dtype=numpy.float32))
    y += dr.gather(Float, table, dr.arange(UInt32, n) % 64)
    steps, left = dr.while_loop(
        state=(UInt32(0), dr.arange(UInt32, n) + 1),
        cond=lambda steps, left: left != 1,
        body=lambda steps, left: (steps + 1, dr.select(left % 2 == 0, left // 2, 3 * left + 1)))
    at = numpy.arange(n, dtype=numpy.float64) / n
    want = numpy.sin(at * 9) * numpy.exp(-at) + numpy.sqrt(at) + numpy.linspace(0, 1, 64)[numpy.arange(n) % 64]
    collatz = []
    for value in range(1, n + 1):
        count = 0
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            count += 1
        collatz.append(count)
    differ = numpy.abs(y.numpy() - want).max() + (steps.numpy() != numpy.array(collatz)).sum()
    return differ + abs(dr.sum(y).numpy()[0] - want.sum()) / want.sum(), 1e-5


def take(size):
    held = dr.full(UInt8, 1, size)
    dr.make_opaque(held)
    dr.sync_thread()
    return held


def look():
    dr.eval(dr.arange(Float, 4))
    dr.sync_thread()
    return driver_total()


main(work, take, look)
