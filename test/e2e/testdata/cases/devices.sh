#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The program of 02-visible-devices-index: it sets 0 in a share on the second GPU; a batch
# system has set 1, and divvy run chooses the GPU.
second=$(divvy devices --simulate=2xL4 --json | grep -o '"uuid": "[^"]*"' | cut -d '"' -f 4 | tail -n 1)
divvy run --simulate=2xL4 --mem 1GiB --gpu "$second" -- "$DEVS" 0
CUDA_VISIBLE_DEVICES=1 divvy run --simulate=2xL4 --mem 1GiB -- "$DEVS"
