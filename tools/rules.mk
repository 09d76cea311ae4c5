# SPDX-License-Identifier: Apache-2.0

.PHONY: generate-symbols

GENERATE_TARGETS += generate-symbols

generate-symbols:
	$(GO) run -trimpath ./tools/symgen

# The front as it lies in lib/divvy/front stands before the 12.2 stand-in.
ifneq ($(wildcard clib/front/rules.mk),)
BUILD_TARGETS += lib/divvy/front/libcuda.so.1
DEMO_TARGETS += lib/divvy/front/libcuda.so.1
endif

lib/divvy/front/libcuda.so.1: lib/divvy/front/base/libcuda.so.1 lib/divvy/standin/libcuda.so.1 lib/divvy/standin/libnvidia-ml.so.1 \
		$(wildcard internal/library/*.go tools/preparefront/*.go) | bin/divvy
	$(call step,front library) $(GO) run -trimpath ./tools/preparefront -base $< -driver lib/divvy/standin -out $(@D)

# 100,000 goal sequences on every product of the MIG table; `make test` takes 400.
.PHONY: fuzz-partition
fuzz-partition:
	DIVVY_GOAL_SEQUENCES=100000 $(GO) test -count=1 -timeout 60m -run TestGoalSequences -v ./internal/partition

FUZZ_TARGETS += fuzz-partition

# How long an apply takes that has nothing to do.
.PHONY: bench-partition
bench-partition: build
	@mkdir -p build/bench
	scripts/bench-partition build/bench/partition.json docs/bench/partition.md

BENCH_TARGETS += bench-partition
