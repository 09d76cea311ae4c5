// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/remote/protocol"
	"github.com/divvy-gpu/divvy/internal/size"
)

func (a *app) remoteCommand() *cobra.Command {
	return a.group("remote", "Look at servers of remote calls", `  divvy remote status --remote gpu1`, a.remoteStatusCommand())
}

func (a *app) remoteStatusCommand() *cobra.Command {
	var asJSON bool
	var remote string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a server's runs, and the processes that use its GPUs",
		Long: `Shows the runs of a server: of one elsewhere (--remote), or of this machine's divvy
serve. Its owner and root see all runs, others those of their tenant.`,
		Example: `  divvy remote status --remote gpu1`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if remote == "" {
			socket, err := a.serveSocket()
			if err != nil {
				return err
			}
			remote = "unix:" + socket
		}
		status, err := a.remoteStatus(cmd.Context(), remote)
		if err != nil {
			return err
		}
		if asJSON {
			return a.writeJSON(status)
		}
		return a.writeRemoteStatus(status)
	})
	a.remoteFlags(cmd, &remote, "the `server`: HOST[:PORT] or unix:/path; default: this machine's")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// remoteStatus asks a server how it is.
func (a *app) remoteStatus(ctx context.Context, remote string) (protocol.StatusDocument, error) {
	var status protocol.StatusDocument
	conn, _, err := a.askServer(ctx, remote, func(server io.ReadWriter) (err error) {
		status, err = protocol.AskStatus(server)
		return err
	})
	if err != nil {
		return status, err
	}
	_ = conn.Close()
	if status.Runs == nil || status.Tenants == nil {
		return status, errors.New(remote + ": a status without runs")
	}
	return status, nil
}

// writeRemoteStatus prints it for people.
func (a *app) writeRemoteStatus(status protocol.StatusDocument) error {
	state := "serves"
	if status.Draining {
		state = "is about to end"
	}
	fmt.Fprintf(a.stdout, "divvy %s %s since %s: %d connections, %d of them have not said what they want, %d refused\n", oneLine(status.Version), state,
		status.Since.Local().Format(time.DateTime), status.Connections, status.Waiting, status.Refusals)
	rows := newTable("SHARE", "TENANT", "USER", "CLIENT", "COMMAND", "GPU", "PROCESS", "PID", "WORKER", "IN", "OUT", "CALLS", "ROUND TRIPS")
	for _, r := range status.Runs {
		rows.add(r.Share, r.Tenant, r.User, r.Client.User+"@"+r.Client.Host, r.Command, shortUUID(r.CardUUID), "", "", "", "", "",
			strconv.FormatUint(r.Calls, 10), strconv.FormatUint(r.RoundTrips, 10))
		for _, s := range r.Sessions {
			in, out := "direct", "direct"
			if s.Relayed {
				in, out = size.Short(s.InBytes), size.Short(s.OutBytes)
			}
			rows.add("", "", "", "", "", "", s.Program, strconv.FormatUint(uint64(s.PID), 10), strconv.Itoa(s.WorkerPID), in, out,
				strconv.FormatUint(s.Calls, 10), strconv.FormatUint(s.RoundTrips, 10))
		}
	}
	return rows.write(a.stdout)
}
