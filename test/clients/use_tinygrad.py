# SPDX-License-Identifier: Apache-2.0
"""tinygrad with DEV=CUDA:PTX: a step of training of a small network, by its own PTX, and a product of
halves by tensor cores."""
import numpy
from tinygrad import Device, Tensor, dtypes
from workload import driver_total, main


def work():
    random = numpy.random.default_rng(7)
    x = random.standard_normal((64, 48)).astype(numpy.float32)
    w = random.standard_normal((48, 32)).astype(numpy.float32)
    v = random.standard_normal((32, 8)).astype(numpy.float32)
    weights = [Tensor(w), Tensor(v)]
    loss = ((Tensor(x) @ weights[0]).relu() @ weights[1]).log_softmax().mean()
    grads = loss.gradient(*weights)
    hidden = x.astype(numpy.float64) @ w
    active = numpy.maximum(hidden, 0)
    logits = active @ v
    softmax = numpy.exp(logits - logits.max(1, keepdims=True))
    softmax /= softmax.sum(1, keepdims=True)
    grad = (1 - 8 * softmax) / logits.size
    want = [x.T @ (grad @ v.T * (hidden > 0)), active.T @ grad]
    left, right = (random.integers(-2, 3, (64, 64)).astype(numpy.float16) for _ in "ab")  # so that all sums are exact
    grads.append(Tensor(left) @ Tensor(right))
    want.append(left.astype(numpy.float64) @ right)
    return max(numpy.abs(have.numpy() - g).max() for have, g in zip(grads, want)), 1e-5


def take(size):
    Tensor.zeros(16).contiguous().realize()
    held = Tensor.full((size,), 1, dtype=dtypes.uint8).contiguous().realize()
    Device[Device.DEFAULT].synchronize()
    return held


def look():
    Device[Device.DEFAULT].synchronize()
    return driver_total()


main(work, take, look)
