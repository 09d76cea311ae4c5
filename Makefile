# SPDX-License-Identifier: Apache-2.0
#
# The README's two commands are `make demo` and `make test`. Each folder of C
# brings its own rules.mk, which adds to the lists below. Its commands are run by
# $(call step,PART), which scripts/build counts; `make V=1 build` shows them.
#
#   BUILD_TARGETS     what `make build` leaves in lib/divvy besides bin/divvy
#   DEMO_TARGETS      those of them that `make demo` needs
#   TEST_PROGRAMS     programs that tests run or are
#   TEST_TARGETS      phony targets that `make test` runs before the Go tests
#   LINT_TARGETS      phony targets that `make lint` runs
#   GENERATE_TARGETS  phony targets that rewrite committed, generated files
#   FUZZ_TARGETS      phony targets of `make fuzz`, each for FUZZ_SECONDS
#   BENCH_TARGETS     phony targets of `make bench-report`
#   SOAK_TARGETS      phony targets of `make soak`

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := build

CC := gcc
GO := go
PREFIX ?= /usr/local
DESTDIR ?=
VERSION := $(shell cat VERSION)
set_version := -X github.com/divvy-gpu/divvy/internal/cli.version=$(VERSION)

# The full figures belong to fuzz, soak and bench-report; `make test` is short.
TEST_FUZZ_SECONDS := 2
FUZZ_SECONDS ?= 300
export DIVVY_RACE_ROUNDS ?= 50000
export DIVVY_CHAOS_SECONDS ?= 20

# go-nvml declares what NVIDIA has deprecated; that is not ours to change.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

# $(call step,PART) COMMAND: shows no more than what COMMAND says (scripts/step).
step = @scripts/step '$(1)'

BUILD_TARGETS := lib/divvy/tools/divvy-agent lib/divvy/tools/divvy-plot
DEMO_TARGETS := lib/divvy/tools/divvy-agent
TEST_PROGRAMS :=
TEST_TARGETS :=
LINT_TARGETS :=
GENERATE_TARGETS :=
FUZZ_TARGETS :=
BENCH_TARGETS :=
SOAK_TARGETS := soak-clients

include $(wildcard examples/rules.mk clib/*/rules.mk tools/rules.mk tools/*/rules.mk test/*/rules.mk)

.PHONY: build build-all build-demo demo test test-need test-programs test-programs-all test-go test-sequential test-e2e test-clients lint \
	generate check-generated bench-report fuzz fuzz-short soak soak-clients install clean vulncheck hardware-check-bundle FORCE

build:
	@scripts/need gcc=gcc libc6-dev=/usr/include/stdio.h binutils=ld
	@scripts/build $(MAKE) build-all

build-all: bin/divvy $(BUILD_TARGETS)

# Go has its own cache: always ask it. What else Go makes waits for this and is
# then compiled already.
bin/divvy: FORCE
	$(call step,divvy) $(GO) build -v -trimpath -ldflags '$(set_version)' -o $@ ./cmd/divvy

lib/divvy/tools/divvy-agent: FORCE | bin/divvy
	$(call step,agent) $(GO) build -v -trimpath -ldflags '$(set_version)' -o $@ ./cmd/divvy-agent

lib/divvy/tools/divvy-plot: FORCE | bin/divvy
	$(call step,plots) $(GO) build -v -trimpath -o $@ ./cmd/divvy-plot

demo:
	@scripts/need gcc=gcc libc6-dev=/usr/include/stdio.h binutils=ld
	@scripts/build $(MAKE) build-demo
	@bin/divvy demo $(DEMO_FLAGS)

build-demo: bin/divvy $(DEMO_TARGETS)

# Programs are built side by side; tests run one part after the other. Much in test-e2e
# waits, the others compile and compute: they go together.
test:
	@scripts/parts $(MAKE) test-need build test-programs lint $(TEST_TARGETS) test-go test-e2e,test-sequential,fuzz-short

test-need:
	@scripts/need gcc=gcc libc6-dev=/usr/include/stdio.h binutils=ld clang=clang \
		ffmpeg=ffmpeg python3=/usr/bin/python3 python3-numba=python:numba patchelf=patchelf
	@scripts/need bubblewrap=bwrap || echo "a test of sandboxes will be skipped"
	@scripts/promtool build/promtool || echo "a test of alerts will be skipped"
	@scripts/need podman=podman crun=crun || echo "tests with a container runtime will be skipped"

test-programs:
	@scripts/build $(MAKE) test-programs-all

test-programs-all: build-all $(TEST_PROGRAMS)

# lint has vetted everything and run the root gates. -short leaves to soak what
# takes long and has hardly ever found anything.
# The race detector has every program that ends wait for a second, and some tests start
# a hundred of them: 10 ms do. Many tests wait for other programs: twice as many packages
# run at once as there are processors.
go_flags := -shuffle=on -count=1 -vet=off
go_test := env GORACE=atexit_sleep_ms=10 $(GO) test -race $(go_flags)

test-go:
	@$(go_test) -p $$(($$(nproc) * 2)) -short -timeout 30m $$(scripts/packages concurrent)

# The race detector has nothing to find in them, and takes five times as long; soak has
# them run under it like all others.
test-sequential:
	@$(GO) test -trimpath $(go_flags) -short -timeout 30m $$(scripts/packages sequential)

# By themselves: much here is about time.
test-e2e:
	@$(go_test) -parallel $$(($$(nproc) * 2)) -short -timeout 30m ./test/e2e

# Programs of the Python registry and Debian's, unmodified, on simulated GPUs. What cannot
# be had is named, and its test skipped; nothing is downloaded twice.
test-clients: build
	@scripts/clients build/clients
	@DIVVY_CLIENTS=$(CURDIR)/build/clients $(GO) test -count=1 -vet=off -v -timeout 30m -run '^TestClient(Programs|Hashcat|NVRTC|Monitors|Runtime|HardwareCheck)$$' ./test/e2e

lint:
	@scripts/need gcc=gcc libc6-dev=/usr/include/stdio.h binutils=ld clang=clang
	@scripts/lint
	@for target in $(LINT_TARGETS) check-generated; do echo "$$target"; $(MAKE) --no-print-directory $$target; done

# Needs the vulnerability database from the network, so it is no part of lint.
vulncheck:
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

generate: $(GENERATE_TARGETS)

check-generated:
	@scripts/check-generated $(MAKE)

fuzz:
	@scripts/fuzz $(FUZZ_SECONDS)
	@for target in $(FUZZ_TARGETS); do $(MAKE) --no-print-directory $$target; done

fuzz-short:
	@scripts/fuzz $(TEST_FUZZ_SECONDS)

soak: export DIVVY_RACE_ROUNDS := 1000000
soak: export DIVVY_CHAOS_SECONDS := 1800
soak: export DIVVY_SIEGE_SECONDS := 600
soak: export DIVVY_AUDIT_KILLS := 200
soak: export DIVVY_REMOTE_DEATHS_SECONDS := 300
soak:
	@$(MAKE) --no-print-directory test-need
	@$(MAKE) --no-print-directory test-programs
	$(go_test) -timeout 4h ./...
	@for target in $(SOAK_TARGETS); do $(MAKE) --no-print-directory $$target; done

# The own tests of the programs of test-clients, as far as the registry has them; an hour.
soak-clients: build
	@scripts/clients build/clients
	@[ ! -x build/clients/python/bin/python ] || scripts/soak-clients build/clients

bench-report: build
	@mkdir -p build/bench
	scripts/bench-report build/bench docs/bench
	@for target in $(BENCH_TARGETS); do $(MAKE) --no-print-directory $$target; done

# Files are versioned and never overwritten in place: running programs keep
# theirs. The links are switched last.
install: build
	scripts/install '$(DESTDIR)' '$(PREFIX)' '$(VERSION)'

# For a machine with a card: everything that scripts/hardware-check needs.
hardware-check-bundle: build
	@mkdir -p build
	tar -czf build/divvy-hardware-check.tar.gz --transform 's,^,divvy-hardware-check/,rSH' bin/divvy \
		lib/divvy/front lib/divvy/standin lib/divvy/null lib/divvy/tools scripts/hardware-check scripts/clients scripts/need test/clients docs/hardware.md LICENSE
	@echo "build/divvy-hardware-check.tar.gz: unpack it on a machine with a card and run divvy-hardware-check/scripts/hardware-check"

clean:
	rm -rf bin lib build

FORCE:
