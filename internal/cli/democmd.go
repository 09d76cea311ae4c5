// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/demo"
)

const maxDemoSeconds = 3600

func (a *app) demoCommand() *cobra.Command {
	var asJSON, control bool
	seconds := 5
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show three programs share one simulated GPU",
		Long: `Starts a simulated H100 and an agent of its own, and under shares of 20, 30 and
50 percent of its time and 8, 16 and 40 GiB the same programs: one multiplies
matrices and compares with the CPU, one takes all the memory it can get, checks
what it wrote and asks for more, and one takes all the time it can get. Exit code
0 when every share was held to its part by the simulator's own account, else 1.
--slow-host plays a host that wakes threads late: half of them later than usual,
one in a thousand later than rare, none later than most; a launch takes launch
longer: --slow-host=usual=100us,rare=2ms,most=5ms,launch=60us, which is also what
slow means.`,
		Example: `  divvy demo --seconds 3`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if seconds < 1 || seconds > maxDemoSeconds {
			return usage(fmt.Errorf("--seconds: %d is not between 1 and %d", seconds, maxDemoSeconds))
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		report, err := a.demo(ctx, seconds, control, !asJSON && isTerminal(a.stdout))
		if err != nil {
			return err
		}
		if asJSON {
			err = a.writeJSON(report)
		} else {
			demo.Write(a.stdout, report)
		}
		if err == nil && !report.Pass {
			err = &exitError{code: exitFailed}
		}
		return err
	})
	cmd.Flags().IntVar(&seconds, "seconds", seconds, "how long the programs run")
	cmd.Flags().BoolVar(&control, "control", false, "the same without Divvy in between, which fails")
	a.slowHostFlag(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// demo runs it on an agent and a simulator of its own.
func (a *app) demo(ctx context.Context, seconds int, control, live bool) (demo.Report, error) {
	session, err := a.bareSession(ctx, defaultCards, defaultDriver)
	if err != nil {
		return demo.Report{}, err
	}
	defer session.end(ctx)
	if session.front == "" && !control {
		fmt.Fprintf(a.stderr, "divvy: warning: the front library is not in %s: nothing holds the programs (make build makes it)\n", session.dir)
		control = true
	}
	o := demo.Options{
		Agent: session.client, Simulator: session.endpoint.SimulatorSocket, Seconds: seconds, Control: control,
		Program: session.tool("memload"), Burn: session.tool("burn"), Compute: session.dir.Example("matmul"),
		Environ: func(share api.Share) []string { return session.target().Environ(share.Socket) },
	}
	if control {
		o.Environ = func(api.Share) []string { return session.target().Unheld() }
	}
	if live {
		view := liveBars{w: a.stdout}
		o.Watch = view.draw
		defer view.erase() // the report says it all
	}
	return demo.Run(ctx, o)
}

// liveBars draws the same lines again and again.
type liveBars struct {
	w     io.Writer
	drawn int // lines on the screen
}

func (b *liveBars) draw(now demo.Report) {
	b.erase()
	demo.Bars(b.w, now.Card.MemoryBytes, now.Shares, demo.ShareReport.NowBytes)
	demo.Times(b.w, now.Shares)
	b.drawn = 2 * len(now.Shares)
}

func (b *liveBars) erase() {
	if b.drawn > 0 {
		fmt.Fprintf(b.w, "\x1b[%dA\x1b[J", b.drawn)
	}
	b.drawn = 0
}
