# SPDX-License-Identifier: Apache-2.0
#
# The driver library of a machine without a GPU, and the worker that makes its calls
# beside one. The library exports the whole list; internal/library fits it to a server.

remote_dir := lib/divvy/remote
remote_sources := $(wildcard clib/remote/*.c)
remote_objects := $(patsubst clib/remote/%.c,build/remote/%.o,$(remote_sources)) build/remote/shape.o build/remote/thread.o \
	build/remote/symbols.o
remote_cflags := -std=gnu17 -O2 -g -fPIC -D_GNU_SOURCE -fvisibility=hidden -fno-plt -ftls-model=initial-exec \
	-fno-semantic-interposition -Wall -Wextra -Wstrict-prototypes -Werror -Iclib/include -Iclib/gen -Iclib/call -Iclib/guest \
	-Iclib/remote
remote_ldflags := -shared -nostartfiles -Wl,-soname,libcuda.so.1 -Wl,--version-script=clib/gen/remote.map -Wl,-Bsymbolic \
	-Wl,-z,defs,-z,relro,-z,now,-z,nodelete,-z,noexecstack -Wl,--hash-style=sysv -Wl,--build-id=sha1
worker_sources := $(wildcard clib/worker/*.c)
worker_objects := $(patsubst clib/worker/%.c,build/worker/%.o,$(worker_sources)) build/worker/shape.o build/worker/symbols.o
# What reads images: the linker takes what is used.
worker_images := $(patsubst clib/%.c,build/%.o,$(wildcard clib/image/*.c clib/ptx/*.c))
worker_cflags := -std=gnu17 -O2 -g -D_GNU_SOURCE -fno-strict-aliasing -Wall -Wextra -Wstrict-prototypes -Werror -Iclib/include -Iclib/gen \
	-Iclib/call -Iclib -Iclib/worker

BUILD_TARGETS += $(remote_dir)/libcuda.so.1 $(remote_dir)/libnvidia-ml.so.1 lib/divvy/tools/divvy-worker
LINT_TARGETS += lint-remote

build/remote/%.o: clib/remote/%.c
	$(call step,remote library) $(CC) $(remote_cflags) -MMD -MP -c -o $@ $<

build/remote/shape.o: clib/call/shape.c
	$(call step,remote library) $(CC) $(remote_cflags) -MMD -MP -c -o $@ $<

build/remote/thread.o: clib/guest/thread.c
	$(call step,remote library) $(CC) $(remote_cflags) -MMD -MP -c -o $@ $<

build/remote/symbols.o: clib/gen/symbols.c
	$(call step,remote library) $(CC) $(remote_cflags) -MMD -MP -c -o $@ $<

$(remote_dir)/libcuda.so.1: $(remote_objects) clib/gen/remote.map
	$(call step,remote library) $(CC) $(remote_ldflags) -o $@.new $(remote_objects) -Wl,--no-as-needed $(front_libc)
	@mv $@.new $@

$(remote_dir)/libnvidia-ml.so.1: $(remote_dir)/libcuda.so.1
	@ln -sfn libcuda.so.1 $@

build/worker/%.o: clib/worker/%.c
	$(call step,remote worker) $(CC) $(worker_cflags) -MMD -MP -c -o $@ $<

build/worker/shape.o: clib/call/shape.c
	$(call step,remote worker) $(CC) $(worker_cflags) -MMD -MP -c -o $@ $<

build/worker/symbols.o: clib/gen/symbols.c
	$(call step,remote worker) $(CC) $(worker_cflags) -MMD -MP -c -o $@ $<

build/worker/images.a: $(worker_images) clib/remote/rules.mk
	@rm -f $@
	@$(AR) rcs $@ $(worker_images)

lib/divvy/tools/divvy-worker: $(worker_objects) build/worker/images.a
	$(call step,remote worker) $(CC) -o $@.new $^ -lpthread -ldl -lm
	@mv $@.new $@

# Tests: what a worker makes of calls that no library sends, over the null driver; what a
# library makes of a worker that lies.
remote_fuzz := build/test/remote/workerfuzz
remote_fuzz_sources := clib/test/workerfuzz.c clib/call/shape.c $(filter-out $(addprefix clib/worker/,confine.c connection.c execute.c facts.c \
	lanes.c main.c session.c),$(worker_sources))
remote_fuzz_rounds ?= 200000

remote_lies := $(addprefix build/test/remote/libraryfuzz-,address thread)
remote_lies_sources := clib/test/libraryfuzz.c clib/call/shape.c clib/guest/thread.c clib/gen/symbols.c $(remote_sources)
remote_sanitize_address := -fsanitize=address,undefined
remote_sanitize_thread := -fsanitize=thread

TEST_PROGRAMS += $(remote_fuzz) $(remote_lies)
TEST_TARGETS += test-remote
FUZZ_TARGETS += fuzz-remote

$(remote_fuzz): $(remote_fuzz_sources) build/worker/images.a $(wildcard clib/worker/*.h clib/call/*.h clib/gen/remote*)
	@mkdir -p $(@D)
	$(call step,test programs) $(CC) $(filter-out -O2,$(worker_cflags)) -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -o $@ \
		$(remote_fuzz_sources) build/worker/images.a -lpthread -ldl -lm

$(remote_lies): build/test/remote/libraryfuzz-%: $(remote_lies_sources) $(wildcard clib/remote/*.h clib/call/*.h clib/gen/remote*)
	@mkdir -p $(@D)
	$(call step,test programs) $(CC) $(filter-out -O2 -fvisibility=hidden,$(remote_cflags)) -O1 -DFRONT_PLAIN $(remote_sanitize_$*) \
		-fno-sanitize-recover=all -o $@ $(remote_lies_sources) -lpthread -ldl

.PHONY: test-remote fuzz-remote
test-remote: $(remote_fuzz) $(remote_lies) $(null_dir)/libcuda.so.1
	@$(remote_fuzz) $(null_dir)/libcuda.so.1 $(remote_fuzz_rounds) 1
	@for program in $(remote_lies); do \
		ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=atexit_sleep_ms=0 $$program 100 1 2> $$program.log || { tail -50 $$program.log; exit 1; }; \
	done

fuzz-remote: $(remote_fuzz) $(remote_lies) $(null_dir)/libcuda.so.1
	@end=$$(($$(date +%s) + $(FUZZ_SECONDS))); seed=$$(date +%s); while [ $$(date +%s) -lt $$end ]; do \
		$(remote_fuzz) $(null_dir)/libcuda.so.1 $(remote_fuzz_rounds) $$seed > build/test/remote/fuzz.log 2>&1 || \
			{ cat build/test/remote/fuzz.log; echo "seed $$seed" >&2; exit 1; }; \
		ASAN_OPTIONS=detect_leaks=0 build/test/remote/libraryfuzz-address 20 $$seed > build/test/remote/fuzz.log 2>&1 || \
			{ cat build/test/remote/fuzz.log; echo "seed $$seed" >&2; exit 1; }; \
		seed=$$((seed + 1)); \
	done

-include $(remote_objects:.o=.d) $(worker_objects:.o=.d)

.PHONY: lint-remote
lint-remote:
	@for source in $(remote_sources) clib/call/shape.c; do \
		clang $(filter-out -fno-semantic-interposition,$(remote_cflags)) -fsyntax-only $$source || exit 1; \
	done
	@for source in $(worker_sources); do \
		clang $(worker_cflags) -fsyntax-only $$source || exit 1; \
	done
