# SPDX-License-Identifier: Apache-2.0
#
# The differential fuzzer of the PTX interpreter: random kernels on the simulated
# card against the same expressions compiled for the CPU.

ptxfuzz_dir := build/test/ptxfuzz
ptxfuzz_sources := clib/test/ptxfuzz
# Rounding is changed at run time, and what wraps in PTX must wrap here.
ptxfuzz_cflags := -std=gnu17 -O1 -g -fwrapv -fno-strict-aliasing -frounding-math -ffp-contract=off \
	-Wall -Wextra -Wstrict-prototypes -Werror -Iclib/gen -I$(ptxfuzz_sources)
ptxfuzz_objects := $(patsubst %,$(ptxfuzz_dir)/%.o,integer float convert harness)

TEST_PROGRAMS += $(ptxfuzz_objects) $(ptxfuzz_dir)/generate
TEST_TARGETS += test-ptx-fuzz
FUZZ_TARGETS += fuzz-ptx
LINT_TARGETS += lint-ptx-fuzz

$(ptxfuzz_dir)/%.o: $(ptxfuzz_sources)/%.c $(wildcard $(ptxfuzz_sources)/*.h)
	$(call step,test programs) $(CC) $(ptxfuzz_cflags) -c -o $@ $<

# Always asked: Go knows what changed.
.PHONY: $(ptxfuzz_dir)/generate
$(ptxfuzz_dir)/generate:
	$(call step,test programs) $(GO) build -trimpath -o $@ ./tools/ptxfuzz

.PHONY: test-ptx-fuzz fuzz-ptx lint-ptx-fuzz
test-ptx-fuzz: build-all $(ptxfuzz_objects) $(ptxfuzz_dir)/generate
	scripts/fuzz-ptx 300 1
	DIVVY_PTX_ENGINE=avx2 scripts/fuzz-ptx 100 2
	DIVVY_PTX_ENGINE=plain scripts/fuzz-ptx 100 3

# Another seed each time; PTXFUZZ_SEED repeats one.
fuzz-ptx: build-all $(ptxfuzz_objects) $(ptxfuzz_dir)/generate
	scripts/fuzz-ptx 10000 $${PTXFUZZ_SEED:-$$(date +%s)}

# clang has _Float16 for x86 only with the instructions for it.
lint-ptx-fuzz:
	@clang $(ptxfuzz_cflags) -mavx512fp16 -fsyntax-only $(wildcard $(ptxfuzz_sources)/*.c)
