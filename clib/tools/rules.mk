# SPDX-License-Identifier: Apache-2.0
#
# Programs that put load on a share: divvy bench and the tests start them.

tools_dir := lib/divvy/tools
tools_cflags := -std=gnu17 -O2 -g -Wall -Wextra -Wstrict-prototypes -Werror -Iclib/gen -Iclib/include

BUILD_TARGETS += $(tools_dir)/racer $(tools_dir)/holder $(tools_dir)/burn

$(tools_dir)/racer $(tools_dir)/holder $(tools_dir)/burn: $(tools_dir)/%: clib/tools/%.c clib/tools/driver.c clib/tools/driver.h \
		clib/gen/cuda_abi.h clib/include/divvy_wire.h
	@mkdir -p $(@D)
	$(CC) $(tools_cflags) -o $@ $< clib/tools/driver.c -ldl -pthread
