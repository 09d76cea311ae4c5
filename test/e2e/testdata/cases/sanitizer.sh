#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program built with a sanitizer starts and is held; and divvy hears signals with the
# sanitizer's runtime in LD_PRELOAD, which is meant for the command.
divvy run --simulate --mem 1GiB --enforce front -- "$PROGRAM"; echo "built $?"
export LD_PRELOAD="$RUNTIME"
exec divvy run --simulate --mem 128MiB -- env -u LD_PRELOAD sh -c 'echo "runs"; kill -TERM $PPID; sleep 60 >/dev/null 2>&1; echo "was not heard"'
