# SPDX-License-Identifier: Apache-2.0
#
# Programs that use a driver, as divvy demo, divvy bench and the tests start them.

tools_dir := lib/divvy/tools
tools_cflags := -std=gnu17 -O2 -g -Wall -Wextra -Wstrict-prototypes -Werror -Iclib/gen -Iclib/include

tools_programs := $(addprefix $(tools_dir)/,$(filter-out driver,$(basename $(notdir $(wildcard clib/tools/*.c)))))

BUILD_TARGETS += $(tools_programs)
DEMO_TARGETS += $(addprefix $(tools_dir)/,burn memload)
LINT_TARGETS += lint-tools

$(tools_programs): $(tools_dir)/%: clib/tools/%.c clib/tools/driver.c clib/tools/driver.h clib/tools/busy.h clib/gen/cuda_abi.h \
		clib/include/divvy_wire.h
	$(call step,tools) $(CC) $(tools_cflags) -o $@ $< clib/tools/driver.c $(tools_more) -ldl -pthread

# It multiplies matrices as the example does.
$(tools_dir)/interpreter: examples/matmul/matmul.ptx examples/ptx.S
$(tools_dir)/interpreter: tools_more := -DEXAMPLE_PTX='"examples/matmul/matmul.ptx"' examples/ptx.S

.PHONY: lint-tools
lint-tools:
	@clang $(tools_cflags) -fsyntax-only $(wildcard clib/tools/*.c)
