// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package kubernetes names the programs of Kubernetes that the tests' cluster runs, so that
// their versions and sums are this module's.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
