# SPDX-License-Identifier: Apache-2.0
#
# The program that divvy demo runs under each share.

BUILD_TARGETS += lib/divvy/tools/memload

lib/divvy/tools/memload: clib/demo/memload.c clib/gen/cuda_abi.h
	@mkdir -p $(@D)
	$(CC) -std=gnu17 -O2 -g -Wall -Wextra -Wstrict-prototypes -Werror -Iclib/gen -o $@ $< -ldl

LINT_TARGETS += lint-demo
.PHONY: lint-demo
lint-demo:
	clang -std=gnu17 -fsyntax-only -Wall -Wextra -Wstrict-prototypes -Werror -Iclib/gen clib/demo/memload.c
