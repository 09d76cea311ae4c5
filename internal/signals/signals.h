// SPDX-License-Identifier: Apache-2.0

#pragma once

#include <stdint.h>

// Sets of signals: bit s-1 is signal s.

// divvy_signals_ignored are those that this process was started with ignored.
uint64_t divvy_signals_ignored(void);
// divvy_signals_blocked are those that this process was started with blocked.
uint64_t divvy_signals_blocked(void);
// divvy_signals_mask has the thread block these and no others, and says which it blocked.
uint64_t divvy_signals_mask(uint64_t which);
// divvy_signals_take has each of them that somebody else sends written to a pipe, as one
// byte; those of glibc are left alone.
void divvy_signals_take(int fd, uint64_t which);
// divvy_signals_return undoes that.
void divvy_signals_return(uint64_t which);
// divvy_signals_ignore makes what this process executes ignore them.
void divvy_signals_ignore(uint64_t which);
