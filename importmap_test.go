// SPDX-License-Identifier: Apache-2.0

package divvy_test

// module is the path of this module; packages below are named without it.
const module = "github.com/divvy-gpu/divvy"

// room is one package: what it may import, and what it may do.
type room struct {
	path string
	// may lists the packages of this module it imports outside tests. An edge
	// that is listed and not used is an error: the map is exact.
	may []string
	// tests lists what its tests import besides.
	tests []string
	// thirdParty lists the module paths it imports from others; "C" is cgo.
	thirdParty []string
	// executes says that it may run other programs (os/exec).
	executes bool
	// pure says that it has no files, network, goroutines, locks, logs or clock.
	pure bool
}

// rooms is the import map, from the bottom up. Imports point down; a sibling
// edge is allowed because it stands here. A new package adds its line.
var rooms = []room{
	{path: "internal/wire", thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/core", may: []string{"internal/event", "internal/placement", "internal/selector", "internal/share", "internal/size"}, tests: []string{"internal/scenario"}, pure: true},
	{path: "internal/arbiter", may: []string{"internal/share"}, tests: []string{"internal/scenario"}, pure: true},
	{path: "internal/journal", thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/socket", thirdParty: []string{"golang.org/x/sys"}},
	{path: "data"},
	{path: "internal/mig", may: []string{"data"}, thirdParty: []string{"go.yaml.in/yaml"}},
	{path: "internal/partition", thirdParty: []string{"go.yaml.in/yaml"}},
	{path: "internal/gpu"},
	{path: "internal/gpu/sysfs", may: []string{"internal/gpu"}},
	{path: "internal/gpu/amd", may: []string{"internal/gpu", "internal/gpu/sysfs"}},
	{path: "internal/gpu/intel", may: []string{"internal/gpu", "internal/gpu/sysfs"}},
	{path: "internal/gpu/nvidia", may: []string{"internal/gpu", "internal/gpu/sysfs", "internal/mig"}},
	{path: "internal/gpu/descriptor", may: []string{"internal/gpu", "internal/gpu/sysfs"}, thirdParty: []string{"go.yaml.in/yaml"}},
	{path: "internal/gpu/inventory", may: []string{
		"internal/gpu", "internal/gpu/amd", "internal/gpu/descriptor", "internal/gpu/intel", "internal/gpu/nvidia", "internal/gpu/sysfs", "internal/mig",
	}},
	{path: "internal/gpu/nvml", may: []string{"internal/gpu", "internal/gpu/sysfs", "internal/mig"}, thirdParty: []string{"C", "github.com/NVIDIA/go-nvml"}},
	{path: "internal/event", pure: true},
	{path: "internal/share", pure: true},
	{path: "internal/selector", pure: true},
	{path: "internal/api", may: []string{"internal/event", "internal/share"}},
	{path: "internal/health", may: []string{"data", "internal/yamldoc"}, thirdParty: []string{"go.yaml.in/yaml"}, pure: true},
	{path: "internal/usage", may: []string{"internal/yamldoc"}, thirdParty: []string{"go.yaml.in/yaml"}, pure: true},
	{path: "internal/audit", may: []string{"internal/api"}, thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/history", may: []string{"internal/api", "internal/sample", "internal/usage"}},
	{path: "internal/sample", may: []string{"internal/api", "internal/share"}, pure: true},
	{path: "internal/explain", may: []string{"internal/api", "internal/event", "internal/selector", "internal/share", "internal/size"}, pure: true},
	{path: "internal/metrics", may: []string{"internal/api", "internal/sample"}, tests: []string{"internal/share"}, thirdParty: []string{"github.com/prometheus/client_golang", "github.com/prometheus/client_model"}},
	{path: "internal/pattern"},
	{path: "internal/kernellog", may: []string{"internal/pattern"}, thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/size"},
	{path: "internal/errclass", pure: true},
	{path: "internal/yamldoc", thirdParty: []string{"go.yaml.in/yaml"}, pure: true},
	{path: "internal/scenario"},
	{path: "internal/race", pure: true},
	{path: "internal/lateness", pure: true},
	{path: "internal/urgency", thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/simgpu/silicon", pure: true},
	{path: "internal/simgpu/simwire"},
	{path: "internal/simgpu/timeline", pure: true},
	{path: "internal/simgpu/condition", may: []string{"internal/simgpu/silicon"}, pure: true},
	{path: "internal/simgpu/partition", may: []string{"internal/mig"}, pure: true},
	{path: "internal/simgpu", may: []string{"internal/cgroup", "internal/mig", "internal/simgpu/condition", "internal/simgpu/partition", "internal/simgpu/silicon", "internal/simgpu/simwire", "internal/simgpu/timeline", "internal/urgency"}, thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/client", may: []string{"internal/api", "internal/share"}},
	{path: "internal/remote/protocol", may: []string{"internal/share"}},
	{path: "internal/remote/network", thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/remote/pipe", thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/remote/relay", may: []string{"internal/remote/certificates", "internal/remote/pipe", "internal/remote/protocol", "internal/socket"}},
	{path: "internal/remote/certificates", may: []string{"internal/share"}, thirdParty: []string{"golang.org/x/sys"}},
	{
		path: "internal/remote/server",
		may: []string{
			"internal/api", "internal/client", "internal/environment", "internal/library", "internal/remote/certificates", "internal/remote/pipe", "internal/remote/protocol", "internal/share", "internal/size",
			"internal/socket", "internal/yamldoc",
		},
		thirdParty: []string{"go.yaml.in/yaml", "golang.org/x/sys"},
		executes:   true,
	},
	{path: "internal/web"},
	{path: "internal/signals", thirdParty: []string{"C", "golang.org/x/sys"}},
	{path: "internal/program"},
	{path: "internal/process", thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/admission", may: []string{"internal/api", "internal/core", "internal/enforce", "internal/share"}},
	{
		path: "internal/agent",
		may: []string{
			"internal/admission", "internal/api", "internal/arbiter", "internal/audit", "internal/core", "internal/enforce", "internal/event", "internal/gpu", "internal/gpu/nvml", "internal/health", "internal/history", "internal/journal", "internal/kernellog", "internal/lateness", "internal/process",
			"internal/sample", "internal/share", "internal/size", "internal/socket", "internal/urgency", "internal/wire",
		},
		tests:      []string{"internal/client", "internal/metrics", "internal/race"},
		thirdParty: []string{"golang.org/x/sys"},
		executes:   true,
	},
	{path: "internal/cgroup"},
	{path: "internal/mps", may: []string{"internal/process", "internal/socket"}, executes: true},
	{path: "internal/enforce", may: []string{"internal/cgroup", "internal/mps", "internal/process", "internal/share"}},
	{path: "internal/placement", may: []string{"internal/mig"}, pure: true},
	{path: "internal/plan/trace", may: []string{"internal/mig", "internal/pattern", "internal/placement", "internal/yamldoc"}, thirdParty: []string{"go.yaml.in/yaml"}},
	{path: "internal/plan", may: []string{"internal/mig", "internal/placement", "internal/plan/trace"}},
	{path: "internal/plan/chart", executes: true},
	{path: "internal/plan/chart/draw", may: []string{"internal/plan/chart"}, thirdParty: []string{"gonum.org/v1/plot"}},
	{path: "internal/plan/report", may: []string{"internal/placement", "internal/plan", "internal/plan/chart"},
		tests: []string{"internal/plan/chart/draw", "internal/plan/trace"}},
	{path: "internal/estimate", may: []string{"internal/errclass"}, tests: []string{"internal/estimate/reference", "internal/race"}, pure: true},
	{path: "internal/estimate/reference", may: []string{"data", "internal/errclass", "internal/estimate", "internal/pattern", "internal/selector", "internal/yamldoc"}, thirdParty: []string{"go.yaml.in/yaml"}},
	{path: "internal/estimate/check", may: []string{"internal/estimate", "internal/estimate/reference", "internal/pattern"}, tests: []string{"data", "internal/race"}, thirdParty: []string{"go.yaml.in/yaml"}},
	{path: "internal/advise", may: []string{"internal/errclass", "internal/mig", "internal/yamldoc"}, tests: []string{"internal/race"}, pure: true, thirdParty: []string{"go.yaml.in/yaml"}},
	{path: "internal/cdi", may: []string{"internal/api", "internal/gpu"}, thirdParty: []string{"tags.cncf.io/container-device-interface"}},
	{path: "internal/partition/tool", may: []string{"internal/gpu/sysfs"}, thirdParty: []string{"golang.org/x/sys"}, executes: true},
	{path: "internal/partition/kernel", may: []string{"internal/gpu", "internal/gpu/inventory", "internal/gpu/sysfs", "internal/partition"},
		tests: []string{
			"internal/mig", "internal/partition/amd", "internal/partition/machine", "internal/partition/sriov", "internal/partition/tool", "internal/partition/vfio",
			"internal/partition/vgpu",
		}},
	{path: "internal/partition/mig", may: []string{"internal/gpu", "internal/gpu/nvml", "internal/mig", "internal/partition"}, thirdParty: []string{"go.yaml.in/yaml"}},
	{path: "internal/partition/vfio", may: []string{"internal/gpu", "internal/gpu/sysfs", "internal/partition", "internal/partition/kernel", "internal/partition/mig"},
		tests: []string{"internal/partition/amd", "internal/partition/fakekernel", "internal/partition/sriov", "internal/partition/vgpu"}},
	{path: "internal/partition/amd", may: []string{"internal/gpu", "internal/gpu/amd", "internal/gpu/sysfs", "internal/partition", "internal/partition/kernel", "internal/partition/vfio"},
		tests: []string{"internal/partition/fakekernel"}},
	{path: "internal/partition/sriov", may: []string{"internal/gpu", "internal/gpu/intel", "internal/gpu/sysfs", "internal/partition", "internal/partition/kernel", "internal/partition/mig"},
		tests: []string{"internal/partition/fakekernel", "internal/partition/vfio"}},
	{path: "internal/partition/vgpu", may: []string{
		"internal/gpu", "internal/gpu/nvidia", "internal/gpu/nvml", "internal/gpu/sysfs", "internal/partition", "internal/partition/kernel", "internal/partition/mig", "internal/partition/sriov",
	}, tests: []string{"internal/partition/fakekernel", "internal/partition/vfio"}},
	{path: "internal/partition/mps", may: []string{"internal/mps", "internal/partition", "internal/partition/mig", "internal/process"}},
	{path: "internal/partition/replicas", may: []string{"internal/cdi", "internal/gpu", "internal/partition"}, tests: []string{"internal/partition/mig"}},
	{path: "internal/partition/guest", may: []string{"internal/partition", "internal/partition/sriov", "internal/partition/vfio", "internal/partition/vgpu"}, pure: true},
	{path: "internal/partition/machine", may: []string{
		"internal/api", "internal/cdi", "internal/gpu", "internal/gpu/descriptor", "internal/gpu/inventory", "internal/gpu/sysfs", "internal/journal", "internal/mig", "internal/partition",
		"internal/partition/amd", "internal/partition/kernel", "internal/partition/mig", "internal/partition/mps", "internal/partition/replicas", "internal/partition/sriov",
		"internal/partition/tool", "internal/partition/vfio", "internal/partition/vgpu",
	}, tests: []string{"internal/gpu/nvml", "internal/partition/fakekernel"}, thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/partition/fakekernel", may: []string{
		"internal/gpu", "internal/gpu/descriptor", "internal/gpu/inventory", "internal/gpu/nvml", "internal/gpu/sysfs", "internal/mig", "internal/partition", "internal/partition/kernel",
		"internal/partition/machine",
	}},
	{path: "internal/library", thirdParty: []string{"golang.org/x/sys"}},
	{path: "internal/environment", may: []string{"internal/library"}},
	{path: "internal/private", may: []string{"internal/api", "internal/client", "internal/process"}, thirdParty: []string{"golang.org/x/sys"}, executes: true},
	{path: "internal/bench", may: []string{"internal/api", "internal/client", "internal/lateness", "internal/process", "internal/share", "internal/simgpu", "internal/simgpu/condition"},
		thirdParty: []string{"golang.org/x/sys"}, executes: true},
	{
		path:     "internal/demo",
		may:      []string{"internal/api", "internal/bench", "internal/client", "internal/share", "internal/simgpu", "internal/size"},
		executes: true,
	},
	{
		path: "internal/cli",
		may: []string{
			"internal/advise", "internal/agent", "internal/api", "internal/audit", "internal/bench", "internal/cdi", "internal/client", "internal/demo",
			"internal/environment", "internal/errclass", "internal/estimate", "internal/estimate/check", "internal/estimate/reference", "internal/explain", "internal/gpu",
			"internal/gpu/descriptor", "internal/gpu/inventory", "internal/gpu/nvml", "internal/gpu/sysfs", "internal/history", "internal/lateness", "internal/library", "internal/mig", "internal/partition",
			"internal/partition/guest", "internal/partition/machine", "internal/partition/mig",
			"internal/placement", "internal/plan", "internal/plan/chart", "internal/plan/report", "internal/plan/trace", "internal/private", "internal/process", "internal/program", "internal/remote/certificates", "internal/remote/protocol", "internal/remote/relay", "internal/remote/server",
			"internal/selector", "internal/socket", "internal/share", "internal/signals", "internal/simgpu", "internal/simgpu/condition", "internal/simgpu/silicon", "internal/size", "internal/urgency", "internal/usage", "internal/web", "internal/wire",
		},
		tests:      []string{"internal/partition/fakekernel"},
		thirdParty: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys", "golang.org/x/term"},
		executes:   true,
	},
	{path: "tools/symgen"},
	{path: "tools/estimatefit", may: []string{"internal/estimate", "internal/estimate/check", "internal/estimate/reference"}},
	{path: "tools/machinegen"},
	{path: "tools/wiregen"},
	{path: "tools/placementbench", may: []string{"internal/placement", "internal/plan", "internal/plan/trace"}},
	{path: "tools/placementtune", may: []string{"internal/placement", "internal/plan", "internal/plan/trace"}},
	{path: "tools/ociimage"},
	{path: "tools/ptxfuzz"},
	{path: "tools/preparefront", may: []string{"internal/library"}},
	{path: "test/gates", may: []string{"internal/arbiter", "internal/share"}, executes: true},
	{path: "test/attacker", may: []string{"internal/api", "internal/client", "internal/share", "internal/wire"}, thirdParty: []string{"golang.org/x/sys"}, executes: true},
	{path: "test/fakemps", thirdParty: []string{"golang.org/x/sys"}, executes: true},
	{path: "test/cluster", thirdParty: []string{"golang.org/x/sys"}, executes: true},
	{path: "test/cluster/pause", thirdParty: []string{"golang.org/x/sys"}},
	{path: "test/e2e", tests: []string{"internal/api", "internal/arbiter", "internal/bench", "internal/cgroup", "internal/client", "internal/event", "internal/explain", "internal/library", "internal/mps", "internal/process", "internal/race", "internal/remote/certificates", "internal/remote/network", "internal/remote/protocol", "internal/share", "internal/simgpu", "internal/simgpu/condition", "internal/simgpu/simwire", "internal/wire"}},
	{path: "deploy/prometheus", thirdParty: []string{"go.yaml.in/yaml"}},
	{path: "cmd/divvy", may: []string{"internal/cli"}},
	{path: "cmd/divvy-agent", may: []string{"internal/cli", "internal/metrics"}, thirdParty: []string{"modernc.org/sqlite"}},
	{path: "cmd/divvy-plot", may: []string{"internal/plan/chart", "internal/plan/chart/draw"}},
}

// testThirdParty may be imported by any test.
var testThirdParty = []string{
	"github.com/NVIDIA/go-nvml",               // runs over the stand-in
	"github.com/opencontainers/runtime-spec",  // what CDI files change
	"tags.cncf.io/container-device-interface", // reads them as runtimes do
	"github.com/rogpeppe/go-internal",
	"golang.org/x/sys",
	"modernc.org/sqlite", // the driver of databases that a program is linked with
}

// impure is what a pure room has no use for: files, network, processes, locks,
// logs. Its clock is an argument, so time may be imported but not asked.
var impure = []string{
	"os", "os/exec", "os/signal", "io/fs", "io/ioutil", "net", "net/http", "syscall", "log", "log/slog",
	"sync", "sync/atomic", "path/filepath", "golang.org/x/sys",
}
