# SPDX-License-Identifier: Apache-2.0
#
# The null driver: the 12.2 export list, every call returns at once.

null_dir := lib/divvy/null
null_objects := $(addprefix build/null/,driver.o nvml.o calls.o)
null_cflags := -std=gnu17 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra -Wstrict-prototypes -Werror \
	-ftls-model=initial-exec -Iclib/gen -Iclib/null

BUILD_TARGETS += $(null_dir)/libcuda.so.1 $(null_dir)/libcuda.so $(null_dir)/libnvidia-ml.so.1

build/null/%.o: clib/null/%.c clib/null/null.h $(wildcard clib/gen/*.h clib/gen/*.inc)
	$(call step,null driver) $(CC) $(null_cflags) -c -o $@ $<

$(null_dir)/libcuda.so.1: $(null_objects) clib/gen/null.map
	$(call step,null driver) $(CC) -shared -o $@.new $(null_objects) -Wl,-soname,libcuda.so.1 -Wl,--version-script=clib/gen/null.map \
		-Wl,-Bsymbolic -Wl,-z,defs,-z,relro,-z,now -Wl,--build-id=sha1
	@mv $@.new $@

$(null_dir)/libcuda.so $(null_dir)/libnvidia-ml.so.1: $(null_dir)/libcuda.so.1
	@ln -sfn libcuda.so.1 $@

LINT_TARGETS += lint-null

# The other compiler's opinion, and the exports against the list.
.PHONY: lint-null
lint-null: $(null_dir)/libcuda.so.1
	@for source in clib/null/*.c; do \
		clang $(null_cflags) -fsyntax-only $$source || exit 1; \
	done
	@diff <(nm -D --defined-only $< | awk '{print $$3}' | LC_ALL=C sort) \
		<(sed -n 's/^\t\([A-Za-z].*\);$$/\1/p' clib/gen/null.map | LC_ALL=C sort) || \
		{ echo "divvy: error: $< exports something else than clib/gen/null.map" >&2; exit 1; }
