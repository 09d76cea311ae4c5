#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernel of 08-ptx-createpolicy.
cd "$(dirname "$0")/08-ptx-createpolicy" || exit
divvy run --simulate --mem 1GiB -- python3 load.py evict-last.ptx
