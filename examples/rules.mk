# SPDX-License-Identifier: Apache-2.0
#
# Example programs: linked with libcuda like any program of the driver API, their
# PTX inside. The PTX is committed; scripts/make-ptx makes it from the .cu files.

examples_dir := lib/divvy/examples
examples_cflags := -std=gnu17 -O2 -g -ffp-contract=off -Wall -Wextra -Wstrict-prototypes -Werror -Iclib/gen
examples_c := $(basename $(notdir $(wildcard examples/*/*.c)))
examples_driver := lib/divvy/standin/libcuda.so.1

BUILD_TARGETS += $(addprefix $(examples_dir)/,$(examples_c))
DEMO_TARGETS += $(examples_dir)/matmul
LINT_TARGETS += lint-examples

define example_program
$(examples_dir)/$(1): examples/$(1)/$(1).c examples/$(1)/$(1).ptx examples/example.c examples/example.h examples/ptx.S \
		clib/gen/cuda_abi.h $(examples_driver)
	$$(call step,examples) $$(CC) $$(examples_cflags) -DEXAMPLE_PTX='"examples/$(1)/$(1).ptx"' -o $$@ examples/$(1)/$(1).c examples/example.c \
		examples/ptx.S $(examples_driver) -lm
endef
$(foreach name,$(examples_c),$(eval $(call example_program,$(name))))

.PHONY: lint-examples
lint-examples:
	@clang $(examples_cflags) -fsyntax-only $(wildcard examples/*.c examples/*/*.c)

# Go without cgo; a module of its own, with its own tests.
BUILD_TARGETS += $(examples_dir)/mlp
TEST_TARGETS += test-examples

$(examples_dir)/mlp: $(wildcard examples/mlp/*.go examples/mlp/*.json examples/mlp/*.txt) examples/mlp/mlp.ptx examples/mlp/go.mod | bin/divvy
	$(call step,examples) env CGO_ENABLED=0 $(GO) -C examples/mlp build -trimpath -o $(abspath $@) .

.PHONY: test-examples
test-examples:
	@cd examples/mlp && $(GO) vet -trimpath . && $(GO) test -race -shuffle=on -count=1 .

# The committed PTX is what the compilers make, where both of them are installed.
TEST_TARGETS += check-ptx

.PHONY: check-ptx
check-ptx:
	@if command -v clang-14 >/dev/null && command -v clang-16 >/dev/null; then \
		scripts/make-ptx --check; \
	else \
		echo "check-ptx: skipped: it needs clang-14 and clang-16"; \
	fi
