# SPDX-License-Identifier: Apache-2.0
#
# `make bench-placement` takes about two minutes and rewrites the report that is
# committed.

.PHONY: bench-placement
bench-placement:
	@mkdir -p docs/bench build/bench
	$(GO) run -trimpath ./tools/placementbench >build/bench/placement.md
	mv build/bench/placement.md docs/bench/placement.md

BENCH_TARGETS += bench-placement
