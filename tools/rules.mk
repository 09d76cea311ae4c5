# SPDX-License-Identifier: Apache-2.0

.PHONY: generate-symbols

GENERATE_TARGETS += generate-symbols

generate-symbols:
	$(GO) run ./tools/symgen
