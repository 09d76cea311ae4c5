# SPDX-License-Identifier: Apache-2.0
#
# The null driver: the 12.2 export list, every call returns at once.

null_dir := lib/divvy/null
null_objects := $(addprefix build/null/,driver.o nvml.o null.o)
null_cflags := -std=gnu17 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra -Wstrict-prototypes -Werror \
	-ftls-model=initial-exec -Iclib/gen -Iclib/null

BUILD_TARGETS += $(null_dir)/libcuda.so.1 $(null_dir)/libcuda.so $(null_dir)/libnvidia-ml.so.1

build/null/%.o: clib/null/%.c clib/null/null.h $(wildcard clib/gen/*.h clib/gen/*.inc)
	@mkdir -p $(@D)
	$(CC) $(null_cflags) -c -o $@ $<

build/null/null.o: clib/gen/null.c $(wildcard clib/gen/*.h)
	@mkdir -p $(@D)
	$(CC) $(null_cflags) -c -o $@ $<

$(null_dir)/libcuda.so.1: $(null_objects) clib/gen/null.map
	@mkdir -p $(@D)
	$(CC) -shared -o $@.new $(null_objects) -Wl,-soname,libcuda.so.1 -Wl,--version-script=clib/gen/null.map \
		-Wl,-Bsymbolic -Wl,-z,defs,-z,relro,-z,now -Wl,--build-id=sha1
	mv $@.new $@

$(null_dir)/libcuda.so $(null_dir)/libnvidia-ml.so.1: $(null_dir)/libcuda.so.1
	ln -sfn libcuda.so.1 $@
