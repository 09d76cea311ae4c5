#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The program of 05-free-without-context: without a quota and with one.
divvy run --simulate -- "$FREE"; echo "code $?"
divvy run --simulate --mem 1GiB -- "$FREE"; echo "code $?"
