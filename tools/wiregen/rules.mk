# SPDX-License-Identifier: Apache-2.0

GENERATE_TARGETS += generate-wire

.PHONY: generate-wire
generate-wire:
	$(GO) run -trimpath ./tools/wiregen
