# SPDX-License-Identifier: Apache-2.0
#
# The stand-in driver: one set of objects, linked once per driver generation
# with that generation's export list. lib/divvy/standin plays 12.2.

standin_sources := $(filter-out clib/standin/sim/generation.c,$(wildcard clib/standin/*/*.c clib/image/*.c clib/ptx/*.c))
# What takes longest comes first.
standin_objects := $(patsubst clib/%.c,build/%.o,$(sort $(wildcard clib/ptx/engine_*.c)))
standin_objects += $(filter-out $(standin_objects),$(patsubst clib/%.c,build/%.o,$(standin_sources)))
standin_cflags := -std=gnu17 -O2 -g -fPIC -fvisibility=hidden -fno-semantic-interposition -fno-strict-aliasing \
	-ftls-model=initial-exec -Wall -Wextra -Wstrict-prototypes -Werror -D_GNU_SOURCE \
	-Iclib/include -Iclib/gen -Iclib -Iclib/standin
standin_dirs := lib/divvy/standin lib/divvy/standin-11.8 lib/divvy/standin-13.0 lib/divvy/standin-13.1

BUILD_TARGETS += $(foreach dir,$(standin_dirs),$(dir)/libcuda.so.1 $(dir)/libcuda.so $(dir)/libnvidia-ml.so.1)
DEMO_TARGETS += $(addprefix lib/divvy/standin/,libcuda.so.1 libcuda.so libnvidia-ml.so.1)
LINT_TARGETS += lint-standin

# The engine is made of loops over lanes; single lanes round as they are told.
standin_engine := $(patsubst clib/%.c,build/%.o,$(wildcard clib/ptx/engine_*.c))
standin_lanes := $(patsubst clib/%.c,build/%.o,$(wildcard clib/ptx/lane*.c) clib/ptx/real.c clib/ptx/convert.c)
standin_cflags += -ffp-contract=off
# Handlers are reached by computed jumps: where they lie in lines of 64 bytes is worth 10 % of
# lanes that go alone, and changed with whatever else the file got.
$(standin_engine): standin_cflags += -O3 -fno-trapping-math -fno-math-errno -falign-functions=64 -falign-labels=16
$(standin_lanes): standin_cflags += -frounding-math

$(standin_objects): build/%.o: clib/%.c
	$(call step,stand-in driver) $(CC) $(standin_cflags) -MMD -MP -c -o $@ $<

# $(call standin_link,directory,generation,cuda version,driver version)
define standin_link
build/standin/generation-$(2).o: clib/standin/sim/generation.c clib/standin/sim/sim.h clib/include/divvy_sim.h
	$$(call step,stand-in driver) $$(CC) $$(standin_cflags) -DSIM_GENERATION=$(3) -DSIM_DRIVER_VERSION='"$(4)"' -c -o $$@ $$<

$(1)/libcuda.so.1: $$(standin_objects) build/standin/generation-$(2).o clib/gen/standin-$(2).map
	$$(call step,stand-in driver) $$(CC) -shared -o $$@.new $$(standin_objects) build/standin/generation-$(2).o -Wl,-soname,libcuda.so.1 \
		-Wl,--version-script=clib/gen/standin-$(2).map -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,-z,defs -Wl,-z,relro \
		-Wl,-z,now -Wl,--build-id=sha1 -lpthread -ldl -lm
	@diff <(sed -nE 's/^\t([A-Za-z0-9_]+);$$$$/\1/p' clib/gen/standin-$(2).map | LC_ALL=C sort) \
		<(nm -D --defined-only --format=just-symbols $$@.new | LC_ALL=C sort) || \
		{ echo "divvy: error: $$@: its exports (>) are not those of the list (<)" >&2; exit 1; }
	@mv $$@.new $$@

$(1)/libcuda.so $(1)/libnvidia-ml.so.1: $(1)/libcuda.so.1
	@ln -sfn libcuda.so.1 $$@
endef

$(eval $(call standin_link,lib/divvy/standin-11.8,11.8,11080,520.61.05))
$(eval $(call standin_link,lib/divvy/standin,12.2,12020,535.104.05))
$(eval $(call standin_link,lib/divvy/standin-13.0,13.0,13000,580.65.06))
$(eval $(call standin_link,lib/divvy/standin-13.1,13.1,13010,590.44.01))

-include $(standin_objects:.o=.d)

# The other compiler has its own opinion.
.PHONY: lint-standin
lint-standin:
	@for source in $(standin_sources); do \
		clang $(filter-out -fno-semantic-interposition,$(standin_cflags)) -fsyntax-only $$source || exit 1; \
	done

# Tests: the objects of the library linked into programs, and the same sources under
# sanitizers; all but those that stand alone run against a simulator of two cards.
standin_test_dir := build/test/standin
standin_tests := memory holders work code modules fault shared graph peer resources launches words
standin_pure := $(patsubst clib/%.c,%,$(wildcard clib/image/*.c clib/ptx/*.c)) standin/table/space standin/table/tree
standin_alone := pure fat lazy parser texture running lanes execution atoms tensor language pressure forms
standin_engine_tests := texture running lanes execution atoms tensor language
standin_sanitizers := address thread
standin_sanitize_address := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
# A fence of a kernel says nothing to it, which only loses what it could find.
standin_sanitize_thread := -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan
standin_test_cflags := -std=gnu17 -O1 -g -fno-strict-aliasing -ffp-contract=off -frounding-math -Wall -Wextra -Wstrict-prototypes -Werror -D_GNU_SOURCE \
	-DSIM_GENERATION=12020 -DSIM_DRIVER_VERSION='"535.104.05"' -Iclib/include -Iclib/gen -Iclib -Iclib/standin -Iclib/test
standin_programs := $(foreach kind,plain $(standin_sanitizers),$(addprefix $(standin_test_dir)/$(kind)/,$(standin_alone) $(standin_tests)))

TEST_PROGRAMS += $(standin_programs)
TEST_TARGETS += test-standin

.PHONY: test-standin
test-standin: $(standin_programs) $(standin_test_dir)/address/reader clib/test/standin/run bin/divvy
	@scripts/abreast -w clib/test/standin/run $(standin_programs)
	@for engine in avx2 plain; do \
		DIVVY_PTX_ENGINE=$$engine scripts/abreast -w clib/test/standin/run $(addprefix $(standin_test_dir)/plain/,$(standin_engine_tests)) || exit 1; \
	done

# The readers of module images under the address sanitizer, for longer.
FUZZ_TARGETS += fuzz-standin
.PHONY: fuzz-standin
fuzz-standin: $(standin_test_dir)/address/fat $(standin_test_dir)/address/lazy $(standin_test_dir)/address/parser $(standin_test_dir)/address/running
	DIVVY_FUZZ_SECONDS=$(FUZZ_SECONDS) $(standin_test_dir)/address/fat mutated
	DIVVY_FUZZ_SECONDS=$(FUZZ_SECONDS) $(standin_test_dir)/address/lazy mutated
	DIVVY_FUZZ_SECONDS=$(FUZZ_SECONDS) $(standin_test_dir)/address/parser mutated
	DIVVY_FUZZ_SECONDS=$(FUZZ_SECONDS) $(standin_test_dir)/address/running

# How long the first kernel of a large image takes.
BENCH_TARGETS += bench-images
.PHONY: bench-images
bench-images: $(standin_test_dir)/plain/large
	@$<

# $(call standin_test,sanitizer or plain,folder of its objects,object of its generation)
define standin_test
$(addprefix $(standin_test_dir)/$(1)/,$(standin_alone)): $(standin_test_dir)/$(1)/%: clib/test/standin/standin_%.c \
		clib/test/check.h clib/test/standin/fat.h clib/test/standin/forms.h clib/test/standin/language.inc clib/test/standin/menu.h clib/test/standin/program.h clib/test/standin/random.h $(standin_pure:%=$(2)/%.o)
	$$(call step,test programs) $$(CC) $$(standin_test_cflags) $$(standin_sanitize_$(1)) -o $$@ $$(filter %.c %.o,$$^) -lpthread -lm

$(addprefix $(standin_test_dir)/$(1)/,reader large): $(standin_test_dir)/$(1)/%: clib/test/standin/%.c $(standin_pure:%=$(2)/%.o)
	$$(call step,test programs) $$(CC) $$(standin_test_cflags) $$(standin_sanitize_$(1)) -o $$@ $$(filter %.c %.o,$$^) -lpthread -lm

$(addprefix $(standin_test_dir)/$(1)/,$(standin_tests)): $(standin_test_dir)/$(1)/%: clib/test/standin/standin_%.c \
		clib/test/standin/driver.h clib/test/standin/waiting.h clib/test/check.h $(patsubst clib/%.c,$(2)/%.o,$(standin_sources)) $(2)/$(3)
	$$(call step,test programs) $$(CC) $$(standin_test_cflags) $$(standin_sanitize_$(1)) -o $$@ $$(filter %.c %.o,$$^) -lpthread -ldl -lm
endef

# $(call standin_sanitized,sanitizer)
define standin_sanitized
$(standin_test_dir)/$(1)/objects/%.o: clib/%.c
	$$(call step,test programs) $$(CC) $$(standin_test_cflags) $$(standin_sanitize_$(1)) -MMD -MP -c -o $$@ $$<

-include $(wildcard $(addprefix $(standin_test_dir)/$(1)/objects/,*/*.d */*/*.d))
endef

# With all their checks the engines take the compiler a quarter of the time unoptimised.
$(patsubst clib/%.c,$(standin_test_dir)/address/objects/%.o,$(wildcard clib/ptx/engine_*.c)): standin_test_cflags += -O0

$(eval $(call standin_test,plain,build,standin/generation-12.2.o))
$(foreach kind,$(standin_sanitizers),$(eval $(call standin_test,$(kind),$(standin_test_dir)/$(kind)/objects,standin/sim/generation.o)))
$(foreach kind,$(standin_sanitizers),$(eval $(call standin_sanitized,$(kind))))
