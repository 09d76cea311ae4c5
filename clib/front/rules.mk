# SPDX-License-Identifier: Apache-2.0
#
# The front library: lib/divvy/front/base/libcuda.so.1 exports the whole list
# plus spares; tools/preparefront makes from it what matches one driver.

front_dir := lib/divvy/front
front_sources := $(filter-out clib/front/dispatch.c clib/front/thread.c,$(wildcard clib/front/*.c))
# Files that choose symbol versions in assembler stay out of link-time optimisation.
front_plain := build/front/dispatch.o build/front/thread.o build/front/front_jumps.o
front_objects := $(patsubst clib/front/%.c,build/front/%.o,$(front_sources)) build/front/front_wrappers.o \
	build/front/symbols.o
front_headers := $(wildcard clib/front/*.h clib/include/*.h clib/gen/*.h clib/gen/*.inc)
front_cflags := -std=gnu17 -O2 -g -fPIC -D_GNU_SOURCE -fno-plt -ftls-model=initial-exec \
	-fno-semantic-interposition -fcf-protection=none -Wall -Wextra -Wstrict-prototypes -Werror \
	-Iclib/include -Iclib/gen -Iclib/front
# Inlines the hooks into the exported functions: 3 ns less on a launch.
front_lto ?= -flto=auto
# Our own needs of the C library are met by glibc 2.17, where these two are files of their own.
front_ldflags := -shared -nostartfiles -Wl,-soname,libcuda.so.1 -Wl,--version-script=clib/gen/front.map -Wl,-Bsymbolic \
	-Wl,-z,defs,-z,relro,-z,now,-z,nodelete,-z,noexecstack -Wl,--hash-style=sysv -Wl,--build-id=sha1
front_libc = $(foreach name,libdl.so.2 libpthread.so.0,$(shell $(CC) -print-file-name=$(name)))

BUILD_TARGETS += $(front_dir)/base/libcuda.so.1

build/front/front_wrappers.o: clib/gen/front_wrappers.c $(front_headers)
	@mkdir -p $(@D)
	$(CC) $(front_cflags) $(front_lto) -c -o $@ $<

build/front/symbols.o: clib/gen/symbols.c $(front_headers)
	@mkdir -p $(@D)
	$(CC) $(front_cflags) -fvisibility=hidden $(front_lto) -c -o $@ $<

build/front/front_jumps.o: clib/gen/front_jumps.S
	@mkdir -p $(@D)
	$(CC) -c -o $@ $<

build/front/dispatch.o build/front/thread.o: build/front/%.o: clib/front/%.c $(front_headers)
	@mkdir -p $(@D)
	$(CC) $(front_cflags) -fvisibility=hidden -fno-lto -c -o $@ $<

build/front/%.o: clib/front/%.c $(front_headers)
	@mkdir -p $(@D)
	$(CC) $(front_cflags) -fvisibility=hidden $(front_lto) -c -o $@ $<

build/front/libcuda.so.1: $(front_objects) $(front_plain) clib/gen/front.map
	$(CC) $(front_cflags) $(front_lto) $(front_ldflags) -o $@.new $(front_objects) $(front_plain) \
		-Wl,--no-as-needed $(front_libc)
	mv $@.new $@

$(front_dir)/base/libcuda.so.1: build/front/libcuda.so.1
	@mkdir -p $(@D)
	install -m 755 $< $@.new
	mv $@.new $@
