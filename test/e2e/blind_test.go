// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// blindScript plays an agent and a program of a share in one container, whose driver
// counts processes outside of it. It ends by itself, and everything with it.
const blindScript = `
"$DIVVY" agent --directory "$D" --driver-dir "$DRIVER" --simulator "$SIMULATOR" 2>"$D/agent.log" &
export DIVVY_AGENT=$D/agent.sock
tries=0
until "$DIVVY" devices >/dev/null 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || exit 1
	sleep 0.1
done
"$DIVVY" share create s --mem 1GiB >/dev/null
mkfifo "$D/in"
"$DIVVY" run --share s -- "$HOLDER" <"$D/in" &
exec 3>"$D/in"
echo start >&3
echo alloc 300000000 >&3
echo alloc 1000000000 >&3
tries=0
while [ $tries -lt ${WAIT:-100} ] && ! "$DIVVY" events --json | grep -q driver-blind; do
	tries=$((tries + 1))
	sleep 0.1
	echo info >&3 # something happens
done
"$DIVVY" events --json
"$DIVVY" devices --json
`

// Kinds 8 and 13: where the driver cannot name a share's programs, the quota
// holds, an event says what is not seen, and nobody is taken for a stranger.
func TestDriverThatCannotNameOurProcesses(t *testing.T) {
	t.Parallel()
	outer := newHost(t, hostOptions{}) // for its simulator
	play := func(namespace []string, wait string) outcome {
		directory, err := os.MkdirTemp("/tmp", "dv-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(directory) })
		// Its processes end with process 1 of the namespace, or with this one.
		words := append(namespace, "bash", "-c", blindScript+"kill $(jobs -p)\nwait\n")
		command := exec.CommandContext(t.Context(), words[0], words[1:]...)
		return finish(t, command, append(outer.Bare(), "D="+directory, "DIVVY="+divvy(t), "DRIVER="+outer.DriverDirectory,
			"SIMULATOR="+outer.SimulatorSocket, "HOLDER="+built(t, "lib", "divvy", "tools", "holder"), "WAIT="+wait))
	}
	unshare := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	if os.Geteuid() != 0 {
		unshare = append(unshare, "--user", "--map-root-user")
	}
	blind, control := play(unshare, "100"), play(nil, "25")
	for _, o := range []outcome{blind, control} {
		if !strings.Contains(o.stdout, "\nerror 2\n") || !strings.Contains(o.stdout, "\nok\nok ") {
			t.Errorf("an allocation within the quota and one over it: %+v", o)
		}
	}
	if !strings.Contains(blind.stdout, `"driver-blind"`) || strings.Contains(blind.stdout, "unledgered-memory") ||
		!strings.Contains(blind.stdout, `"driftBytes": 0`) {
		t.Errorf("in a namespace of their own: %+v", blind)
	}
	if strings.Contains(control.stdout, `"driver-blind"`) {
		t.Errorf("control: a driver that names them is called blind: %+v", control)
	}
}
