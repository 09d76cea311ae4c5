# SPDX-License-Identifier: Apache-2.0
#
# A real Kubernetes cluster of one node, in namespaces of its own. Nothing here is part of
# `make test`: components take minutes to build, once, and it needs root.
#
#   make kube           bin/divvy-kube
#   make kube-image     its image, with Divvy in it
#   make cluster        a cluster with Divvy and simulated GPUs, to try things on
#   make cluster-down   ends it
#   make test-cluster   lint and tests of kube/, and its suites on such a cluster

.PHONY: kube kube-image cluster cluster-down test-cluster test-suites cluster-need cluster-components cluster-images lint-kube test-kube

CLUSTER := build/cluster
CLUSTER_CARDS ?= 2xA100-40GB
CLUSTER_RUN ?= .

cluster-need:
	@scripts/need gcc=gcc libc6-dev=/usr/include/stdio.h binutils=ld iproute2=ip pkg-config=pkg-config \
		libseccomp-dev=/usr/include/seccomp.h python3=/usr/bin/python3

cluster-components: cluster-need
	@test/cluster/components/build >/dev/null

$(CLUSTER)/cluster: FORCE
	@mkdir -p $(@D)
	@$(GO) build -trimpath -o $@ ./test/cluster

$(CLUSTER)/images/pause.tar: $(wildcard test/cluster/pause/*.go tools/ociimage/*.go)
	@mkdir -p $(@D)
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(CLUSTER)/pause ./test/cluster/pause
	@$(GO) run -trimpath ./tools/ociimage -o $@ -name divvy.local/pause:1 -entrypoint /pause $(CLUSTER)/pause=/pause

$(CLUSTER)/images/test.tar: test/cluster/rootfs $(wildcard tools/ociimage/*.go) build-all
	@mkdir -p $(@D)
	@test/cluster/rootfs $(CLUSTER)/rootfs
	@$(GO) run -trimpath ./tools/ociimage -o $@ -name divvy.local/test:1 $(CLUSTER)/rootfs=/ \
		lib/divvy/examples=/programs lib/divvy/tools=/tools

cluster-images: $(CLUSTER)/images/pause.tar $(CLUSTER)/images/test.tar

cluster: cluster-components build cluster-images $(CLUSTER)/cluster
	@$(CLUSTER)/cluster up --folder $(CLUSTER)/play --components $$(test/cluster/components/build) --divvy . \
		--images $(CLUSTER)/images --cards $(CLUSTER_CARDS)
	@ln -sfn $$(test/cluster/components/build)/kubectl $(CLUSTER)/kubectl

cluster-down: $(CLUSTER)/cluster
	@$(CLUSTER)/cluster down --folder $(CLUSTER)/play

# Flags and versions are those of the components: most of it is compiled already.
kube_go = cd kube && CGO_ENABLED=0 $(GO)

bin/divvy-kube: FORCE
	@mkdir -p $(@D)
	@$(kube_go) build -trimpath -ldflags '-s -w -X github.com/divvy-gpu/divvy/kube/internal/cli.version=$(VERSION)' -o ../$@ ./cmd/divvy-kube

kube: bin/divvy-kube

# Divvy itself is in it by its version, as `make install` lays it out on a host.
$(CLUSTER)/images/divvy-kube.tar: bin/divvy-kube build $(wildcard tools/ociimage/*.go)
	@mkdir -p $(@D)
	@rm -rf $(CLUSTER)/host
	@scripts/install $(abspath $(CLUSTER)/host) '' '$(VERSION)' >/dev/null
	@$(GO) run -trimpath ./tools/ociimage -o $@ -name divvy.local/divvy-kube:1 -entrypoint /divvy-kube \
		bin/divvy-kube=/divvy-kube $(CLUSTER)/host/lib/divvy=/opt/divvy

kube-image: $(CLUSTER)/images/divvy-kube.tar

cluster-images: kube-image

lint-kube:
	@echo "go vet (kube)"
	@$(kube_go) vet -trimpath ./...
	@$(kube_go) vet -trimpath -tags cluster ./suite
	@echo "staticcheck (kube)"
	@$(kube_go) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 -tags cluster ./...

test-kube:
	@$(kube_go) test -trimpath -shuffle=on -count=1 ./...

$(CLUSTER)/suite.test: FORCE
	@mkdir -p $(@D)
	@$(kube_go) test -trimpath -tags cluster -c -o ../$@ ./suite

cluster_start = $(CLUSTER)/cluster run --components $$components --divvy . --images $(CLUSTER)/images --node service

# What this machine or a registry does not give is said, and skipped.
test-cluster:
	@test/cluster/test $(MAKE)

test-suites: cluster-components build cluster-images $(CLUSTER)/cluster $(CLUSTER)/suite.test
	@components=$$(test/cluster/components/build); \
	$(cluster_start) --folder $(CLUSTER)/test -- \
		$(CLUSTER)/suite.test -test.v -test.short -test.timeout 30m -test.run '$(CLUSTER_RUN)' $(CLUSTER_FLAGS); \
	test/cluster/leftovers $$components $(CLUSTER)/interrupted $(cluster_start)
