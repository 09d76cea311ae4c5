# SPDX-License-Identifier: Apache-2.0

# What the race detector makes too slow for `make test`: estimates and advice on
# 100,000 random questions each, and constants set with each source left out.
FUZZ_TARGETS += fuzz-estimate

.PHONY: fuzz-estimate
fuzz-estimate:
	$(GO) test -count=1 -timeout 30m ./internal/estimate/... ./internal/advise/...
