# SPDX-License-Identifier: Apache-2.0
#
# The front library: lib/divvy/front/base/libcuda.so.1 exports the whole list
# plus spares; tools/preparefront makes from it what matches one driver.

front_dir := lib/divvy/front
front_sources := $(filter-out clib/front/dispatch.c,$(wildcard clib/front/*.c))
# Files that choose symbol versions in assembler stay out of link-time optimisation.
front_plain := build/front/dispatch.o build/front/thread.o build/front/front_jumps.o
front_objects := $(patsubst clib/front/%.c,build/front/%.o,$(front_sources)) build/front/front_wrappers.o \
	build/front/symbols.o
front_headers := $(wildcard clib/front/*.h clib/guest/*.h clib/include/*.h clib/gen/*.h clib/gen/*.inc)
front_cflags := -std=gnu17 -O2 -g -fPIC -D_GNU_SOURCE -fno-plt -ftls-model=initial-exec \
	-fno-semantic-interposition -fcf-protection=none -Wall -Wextra -Wstrict-prototypes -Werror \
	-Iclib/include -Iclib/gen -Iclib/guest -Iclib/front
# Inlines the hooks into the exported functions: 3 ns less on a launch.
front_lto ?= -flto=auto
# Our own needs of the C library are met by glibc 2.17, where these two are files of their own.
front_ldflags := -shared -nostartfiles -Wl,-soname,libcuda.so.1 -Wl,--version-script=clib/gen/front.map -Wl,-Bsymbolic \
	-Wl,-z,defs,-z,relro,-z,now,-z,nodelete,-z,noexecstack -Wl,--hash-style=sysv -Wl,--build-id=sha1
front_libc = $(foreach name,libdl.so.2 libpthread.so.0,$(shell $(CC) -print-file-name=$(name)))

BUILD_TARGETS += $(front_dir)/base/libcuda.so.1 lib/divvy/container/ld.so.preload

# What containers get as /etc/ld.so.preload (internal/cdi).
lib/divvy/container/ld.so.preload: clib/front/rules.mk
	@mkdir -p $(@D)
	@echo /usr/lib/x86_64-linux-gnu/libcuda.so.1 > $@

build/front/front_wrappers.o: clib/gen/front_wrappers.c $(front_headers)
	$(call step,front library) $(CC) $(front_cflags) $(front_lto) -c -o $@ $<

build/front/symbols.o: clib/gen/symbols.c $(front_headers)
	$(call step,front library) $(CC) $(front_cflags) -fvisibility=hidden $(front_lto) -c -o $@ $<

build/front/front_jumps.o: clib/gen/front_jumps.S
	$(call step,front library) $(CC) -c -o $@ $<

build/front/dispatch.o: clib/front/dispatch.c $(front_headers)
	$(call step,front library) $(CC) $(front_cflags) -fvisibility=hidden -fno-lto -c -o $@ $<

build/front/thread.o: clib/guest/thread.c $(front_headers)
	$(call step,front library) $(CC) $(front_cflags) -fvisibility=hidden -fno-lto -c -o $@ $<

build/front/%.o: clib/front/%.c $(front_headers)
	$(call step,front library) $(CC) $(front_cflags) -fvisibility=hidden $(front_lto) -c -o $@ $<

build/front/libcuda.so.1: $(front_objects) $(front_plain) clib/gen/front.map
	$(call step,front library) $(CC) $(front_cflags) $(front_lto) $(front_ldflags) -o $@.new $(front_objects) $(front_plain) \
		-Wl,--no-as-needed $(front_libc)
	@mv $@.new $@

$(front_dir)/base/libcuda.so.1: build/front/libcuda.so.1
	@mkdir -p $(@D)
	@install -m 755 $< $@.new
	@mv $@.new $@

# Tests. The logic links into plain programs, once per sanitiser.
front_test_dir := build/test/front
front_test_cflags := -std=gnu17 -O1 -g -D_GNU_SOURCE -DFRONT_PLAIN -Wall -Wextra -Wstrict-prototypes -Werror \
	-Iclib/include -Iclib/gen -Iclib/guest -Iclib/front -Iclib/test
front_sanitizers := plain address thread
front_sanitize_plain :=
front_sanitize_address := -fsanitize=address,undefined -fno-sanitize-recover=all
front_sanitize_thread := -fsanitize=thread -fno-sanitize-recover=all
front_tests := front_page front_names front_attach front_ledger front_processes front_table front_memory front_walk \
	front_turns front_backlog front_gate front_slots front_host front_visible
front_gate_files := gate.c estimate.c backlog.c
front_share_files := $(addprefix clib/test/,fakecard.c fakeshare.c crowd.c) $(addprefix clib/front/,launch.c lock.c $(front_gate_files))
front_page_sources := clib/front/page.c
front_names_sources := clib/front/names.c
front_attach_sources := $(addprefix clib/front/,attach.c page.c)
front_ledger_sources := clib/test/agent.c $(addprefix clib/front/,ledger.c credit.c view.c attach.c page.c log.c clock.c) clib/guest/thread.c
front_processes_sources := $(front_ledger_sources)
front_table_sources := $(addprefix clib/front/,table.c lock.c clock.c)
front_memory_files := clib/test/fakedriver.c clib/test/fakeledger.c $(addprefix clib/front/,credit.c table.c lock.c alloc.c linear.c array.c pool.c poolpart.c \
	async.c wait.c virtual.c multicast.c graphmem.c launch.c context.c primary.c module.c library.c ctxlimit.c \
	external.c named.c $(front_gate_files))
front_memory_sources := $(front_memory_files) clib/front/clock.c clib/guest/thread.c
front_gate_sources := $(front_share_files) $(front_test_dir)/fakeclock.o
front_slots_sources := $(front_gate_sources)
front_host_sources := $(front_share_files) clib/test/hostclock.c clib/front/clock.c clib/guest/thread.c
front_visible_sources := $(addprefix clib/front/,visible.c lock.c clock.c)
front_backlog_sources := $(addprefix clib/front/,estimate.c backlog.c)
front_walk_sources := clib/test/walk.c $(front_memory_sources)
front_turns_sources := clib/test/walk.c $(front_memory_files) $(front_test_dir)/fakeclock.o

TEST_TARGETS += test-front check-front
LINT_TARGETS += lint-front

.PHONY: test-front check-front lint-front

# $(call front_objects_of,sanitizer,sources)
front_objects_of = $(patsubst clib/front/%.c,$(front_test_dir)/$(1)/%.o,$(patsubst clib/test/%.c,$(front_test_dir)/$(1)/%.o,$(2)))

define front_test
$(front_test_dir)/$(1)-$(2): $(call front_objects_of,$(2),clib/test/$(1).c $($(1)_sources))
	$$(call step,test programs) $(CC) $(front_test_cflags) $(front_sanitize_$(2)) -o $$@ $$^ -pthread -lm
endef

define front_test_kind
$(front_test_dir)/$(1)/%.o: clib/front/%.c
	$$(call step,test programs) $(CC) $(front_test_cflags) $(front_sanitize_$(1)) -MMD -MP -c -o $$@ $$<

$(front_test_dir)/$(1)/%.o: clib/test/%.c
	$$(call step,test programs) $(CC) $(front_test_cflags) $(front_sanitize_$(1)) -MMD -MP -c -o $$@ $$<

$(foreach test,$(front_tests),$(call front_test,$(test),$(1))

)
-include $(wildcard $(front_test_dir)/$(1)/*.d)
endef
$(foreach kind,$(front_sanitizers),$(eval $(call front_test_kind,$(kind))))

# A clock that no sanitiser sees.
$(front_test_dir)/fakeclock.o: clib/test/fakeclock.c $(front_headers) $(wildcard clib/test/*.h)
	$(call step,test programs) $(CC) $(front_test_cflags) -c -o $@ $<

front_programs := $(foreach test,$(front_tests),$(addprefix $(front_test_dir)/$(test)-,$(front_sanitizers))) $(front_test_dir)/front_calls
TEST_PROGRAMS += $(front_programs) $(front_test_dir)/strange/front/libcuda.so.1 build/test/test-agent

test-front: $(front_programs) $(front_test_dir)/strange/front/libcuda.so.1 build/test/test-agent $(front_dir)/base/libcuda.so.1 lib/divvy/null/libcuda.so.1 lib/divvy/null/libnvidia-ml.so.1
	@export TSAN_OPTIONS=die_after_fork=0:atexit_sleep_ms=0 DIVVY_TEST_LIBDIR='$(CURDIR)/lib/divvy' \
		DIVVY_TEST_STRANGE='$(CURDIR)/$(front_test_dir)/strange'; \
	scripts/abreast $(front_programs)

# The built front, loaded by path before the null driver.
$(front_test_dir)/front_calls: clib/test/front_calls.c clib/test/agent.c $(front_headers) $(wildcard clib/test/*.h)
	$(call step,test programs) $(CC) $(front_test_cflags) -o $@ $(filter %.c,$^) -pthread -ldl

# The null driver with one more export, and the front prepared for that.
$(front_test_dir)/strange/driver/libcuda.so.1: clib/test/strange.c $(addprefix build/null/,driver.o nvml.o calls.o)
	$(call step,test programs) $(CC) -shared -fPIC -o $@ $^ -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,--build-id=sha1
	@ln -sfn libcuda.so.1 $(@D)/libnvidia-ml.so.1

$(front_test_dir)/strange/front/libcuda.so.1: $(front_dir)/base/libcuda.so.1 $(front_test_dir)/strange/driver/libcuda.so.1 | bin/divvy
	$(call step,test programs) $(GO) run -trimpath ./tools/preparefront -base $< -driver $(front_test_dir)/strange/driver -out $(@D)

# Several gates and their agent, which test/gates leads.
build/test/gates: clib/test/gates.c $(addprefix clib/test/,roundcard.c fakeclock.c) $(addprefix clib/front/,launch.c lock.c $(front_gate_files)) \
		$(front_headers) $(wildcard clib/test/*.h)
	$(call step,test programs) $(CC) $(front_test_cflags) -o $@ $(filter %.c,$^) -pthread -lm

# The other compiler's opinion.
lint-front:
	@for source in $(wildcard clib/front/*.c) clib/gen/front_wrappers.c clib/gen/symbols.c; do \
		clang $(front_cflags) -fsyntax-only $$source; \
	done
	@for source in $(wildcard clib/test/front_*.c clib/test/agent*.c clib/test/fake*.c) clib/test/crowd.c clib/test/walk.c clib/test/hostclock.c; do \
		clang $(front_test_cflags) -fsyntax-only $$source; \
	done

build/test/test-agent: clib/test/agentmain.c clib/test/agent.c clib/test/agent.h $(front_headers)
	$(call step,test programs) $(CC) $(front_test_cflags) -o $@ $(filter %.c,$^) -pthread

check-front: build/front/libcuda.so.1
	@scripts/check-front $< clib/gen/front.map
