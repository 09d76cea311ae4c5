# SPDX-License-Identifier: Apache-2.0

GENERATE_TARGETS += generate-machines

.PHONY: generate-machines
generate-machines:
	@mkdir -p internal/gpu/testdata/machines
	$(GO) run -trimpath ./tools/machinegen
