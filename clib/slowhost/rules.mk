# SPDX-License-Identifier: Apache-2.0

slowhost := lib/divvy/tools/slowhost.so
slowhost_cflags := -std=gnu17 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra -Wstrict-prototypes -Werror

BUILD_TARGETS += $(slowhost)
DEMO_TARGETS += $(slowhost)
LINT_TARGETS += lint-slowhost

$(slowhost): clib/slowhost/slowhost.c
	$(call step,tools) $(CC) $(slowhost_cflags) -shared -o $@ $< -ldl -lm

.PHONY: lint-slowhost
lint-slowhost:
	@clang $(slowhost_cflags) -fsyntax-only clib/slowhost/slowhost.c
