// SPDX-License-Identifier: Apache-2.0

package kube_test

// room is one package of this module: what it may import besides the standard library.
type room struct {
	path string
	may  []string // packages of this module and of the root
	// thirdParty lists the modules of others.
	thirdParty []string
	pure       bool // no files, network, goroutines, locks, logs or clock
}

// rooms is the import map. An edge that is listed and not used is an error.
var rooms = []room{
	{path: "internal/names", pure: true},
	{path: "internal/fakeagent", may: []string{"internal/api", "internal/client", "internal/core", "internal/share"}},
	{path: "internal/nodeagent", may: []string{"internal/api", "internal/client", "internal/event", "internal/share"}},
	{path: "internal/mig", may: []string{"internal/cdi", "internal/gpu"}},
	{
		path:       "internal/dra",
		may:        []string{"internal/api", "internal/event", "internal/share", "kube/internal/mig", "kube/internal/names", "kube/internal/nodeagent"},
		thirdParty: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/dynamic-resource-allocation"},
	},
	{path: "internal/cri", thirdParty: []string{"google.golang.org/grpc", "k8s.io/cri-api"}},
	{path: "internal/host", thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/record", may: []string{"internal/share", "kube/internal/names"}, pure: true},
	{
		path:       "internal/deviceplugin",
		may:        []string{"internal/api", "internal/cdi", "internal/event", "internal/gpu", "internal/share", "kube/internal/cri", "kube/internal/mig", "kube/internal/names", "kube/internal/nodeagent", "kube/internal/record"},
		thirdParty: []string{"google.golang.org/grpc", "k8s.io/api", "k8s.io/kubelet"},
	},
	{
		path: "internal/doctor", may: []string{"internal/api", "internal/share", "kube/internal/cri", "kube/internal/names", "kube/internal/nodeagent"},
		thirdParty: []string{"k8s.io/api"}, pure: true,
	},
	{
		path: "internal/server", may: []string{"kube/internal/names"},
		thirdParty: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	{
		path:       "internal/cli",
		may:        []string{"internal/api", "internal/cdi", "internal/client", "internal/share", "kube/internal/cri", "kube/internal/deviceplugin", "kube/internal/doctor", "kube/internal/dra", "kube/internal/host", "kube/internal/mig", "kube/internal/names", "kube/internal/nodeagent", "kube/internal/server"},
		thirdParty: []string{"github.com/spf13/cobra", "golang.org/x/sys", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/dynamic-resource-allocation", "k8s.io/klog"},
	},
	{path: "cmd/divvy-kube", may: []string{"kube/internal/cli"}},
}
