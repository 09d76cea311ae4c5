# SPDX-License-Identifier: Apache-2.0
"""Trains the network of this example and writes weights.json.

    python3 train.py            needs numpy; the same weights in every run

The digits are those of digits.txt, 8 by 8, moved by a pixel and with some pixels
wrong. 64 inputs, 32 hidden units, 10 classes; plain gradient descent.
"""
import json
import os

import numpy

folder = os.path.dirname(os.path.abspath(__file__))
random = numpy.random.default_rng(20)
HIDDEN = 32


def glyphs():
    text = open(os.path.join(folder, "digits.txt")).read()
    blocks = [b.split("\n") for b in text.strip().split("\n\n")]
    return numpy.array([[[c == "#" for c in row] for row in b] for b in blocks], dtype=numpy.float32)


def batch(shapes, count):
    digits = random.integers(0, 10, count)
    pixels = shapes[digits]
    for i in range(count):
        pixels[i] = numpy.roll(pixels[i], random.integers(-1, 2), axis=1)
    wrong = random.random(pixels.shape) < 0.06
    return numpy.where(wrong, 1 - pixels, pixels).reshape(count, 64), digits


def main():
    shapes = glyphs()
    w1 = random.normal(0, 0.15, (HIDDEN, 64))
    b1 = numpy.zeros(HIDDEN)
    w2 = random.normal(0, 0.2, (10, HIDDEN))
    b2 = numpy.zeros(10)
    for step in range(4000):
        x, digits = batch(shapes, 100)
        h = numpy.maximum(x @ w1.T + b1, 0)
        scores = h @ w2.T + b2
        p = numpy.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        d2 = p
        d2[numpy.arange(len(digits)), digits] -= 1
        d2 /= len(digits)
        d1 = (d2 @ w2) * (h > 0)
        rate = 0.5 if step < 2500 else 0.1
        w2 -= rate * (d2.T @ h)
        b2 -= rate * d2.sum(axis=0)
        w1 -= rate * (d1.T @ x)
        b1 -= rate * d1.sum(axis=0)
    x, digits = batch(shapes, 5000)
    found = (numpy.maximum(x @ w1.T + b1, 0) @ w2.T + b2).argmax(axis=1)
    print("right: %.2f%%" % (100 * (found == digits).mean()))
    with open(os.path.join(folder, "weights.json"), "w") as file:
        layers = [{"inputs": 64, "weights": w1, "bias": b1}, {"inputs": HIDDEN, "weights": w2, "bias": b2}]
        for layer in layers:
            layer["weights"] = [round(float(v), 4) for v in layer["weights"].flatten()]
            layer["bias"] = [round(float(v), 4) for v in layer["bias"]]
        file.write('{"layers":[\n' + ",\n".join(json.dumps(l) for l in layers) + "\n]}\n")


main()
