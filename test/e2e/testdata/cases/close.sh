#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# numba's close() of 05-free-without-context: without a quota and with one.
divvy run --simulate -- /usr/bin/python3 "$(dirname "$0")/05-free-without-context/close.py"; echo "code $?"
divvy run --simulate --mem 1GiB -- /usr/bin/python3 "$(dirname "$0")/05-free-without-context/close.py"; echo "code $?"
