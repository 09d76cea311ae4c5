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
	{path: "internal/api"},
	{path: "internal/client", may: []string{"internal/api"}},
	{path: "internal/agent"},
	{path: "internal/cli"},
	{path: "internal/library"},
	{path: "tools/symgen"},
	{path: "tools/wiregen"},
	{path: "tools/preparefront", may: []string{"internal/library"}},
	{path: "cmd/divvy", may: []string{"internal/cli"}},
}

// testThirdParty may be imported by any test.
var testThirdParty = []string{
	"github.com/rogpeppe/go-internal",
	"golang.org/x/sys",
}

// impure is what a pure room has no use for: files, network, processes, locks,
// logs. Its clock is an argument, so time may be imported but not asked.
var impure = []string{
	"os", "os/exec", "os/signal", "io/fs", "io/ioutil", "net", "net/http", "syscall", "log", "log/slog",
	"sync", "sync/atomic", "path/filepath", "golang.org/x/sys",
}
