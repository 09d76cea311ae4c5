# SPDX-License-Identifier: Apache-2.0
#
# The program that measures for divvy bench calls.

BUILD_TARGETS += lib/divvy/tools/calls

lib/divvy/tools/calls: clib/calls/calls.c clib/gen/cuda_abi.h
	@mkdir -p $(@D)
	$(CC) -std=gnu17 -O2 -g -Wall -Wextra -Wstrict-prototypes -Werror -Iclib/gen -o $@ $< -ldl

LINT_TARGETS += lint-calls
.PHONY: lint-calls
lint-calls:
	clang -std=gnu17 -fsyntax-only -Wall -Wextra -Wstrict-prototypes -Werror -Iclib/gen clib/calls/calls.c
