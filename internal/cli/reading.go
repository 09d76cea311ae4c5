// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/size"
)

func (a *app) psCommand() *cobra.Command {
	var asJSON bool
	var form string
	var labels []string
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the processes under shares",
		Long: `Lists the processes attached to shares. State "detached" lives on without its
socket, "dead" has ended while the driver still holds memory of it. With -o wide
also who runs them, on which GPU, and at what level each is held.`,
		Example: `  divvy ps -o wide`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		wide, err := isWide(form)
		if err != nil {
			return err
		}
		at, err := a.findLabelled(cmd.Context(), labels)
		if err != nil {
			return err
		}
		list, err := at.client.Clients(cmd.Context())
		if err != nil {
			return at.explain(err)
		}
		a.warnUnresponsive(list.Unresponsive)
		if asJSON {
			if list.Clients == nil {
				list.Clients = []api.Client{}
			}
			return a.writeJSON(list)
		}
		head := []string{"PID", "SHARE", "USED", "CONTEXTS", "DRIVER", "DENIED", "STATE"}
		if wide {
			head = append(head, "ENFORCED", "GPU", "UID")
		}
		rows := newTable(append(head, "COMMAND")...)
		for _, c := range list.Clients {
			row := []string{strconv.Itoa(c.PID), c.Share, size.Short(c.UsedBytes), size.Short(c.ContextBytes), driverBytes(c.DriverBytes),
				strconv.FormatUint(c.Denials, 10), c.State}
			if wide {
				row = append(row, string(c.Enforcement), onGPU(c.CardUUID, len(c.Cards)), strconv.Itoa(c.UID))
			}
			rows.add(append(row, c.Command)...)
			for i, of := range c.Cards {
				if wide {
					rows.add("", "GPU "+strconv.Itoa(i), size.Short(of.UsedBytes), size.Short(of.ContextBytes), driverBytes(of.DriverBytes), "", "", "",
						shortUUID(of.CardUUID), "", "")
				}
			}
		}
		return rows.write(a.stdout)
	})
	wideFlag(cmd, &form)
	labelFlag(cmd, &labels)
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// driverBytes is an amount that the driver need not tell.
func driverBytes(bytes *uint64) string {
	if bytes == nil {
		return "-"
	}
	return size.Short(*bytes)
}

func (a *app) eventsCommand() *cobra.Command {
	var asJSON, follow bool
	var since uint64
	var labels []string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happened: grants, denials, deaths, changes",
		Long: `Shows what the agent remembers, oldest first. With --follow it goes on until
interrupted; with --json then prints one event per line.`,
		Example: `  divvy events --follow`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		at, err := a.findLabelled(cmd.Context(), labels)
		if err != nil {
			return err
		}
		if follow {
			return a.followEvents(cmd.Context(), at, since, asJSON)
		}
		list, err := at.client.Events(cmd.Context(), since)
		if err != nil {
			return at.explain(err)
		}
		if asJSON {
			if list.Events == nil {
				list.Events = []api.Event{}
			}
			return a.writeJSON(list)
		}
		for _, event := range list.Events {
			a.writeEvent(event)
		}
		return nil
	})
	flags := cmd.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "go on with what happens")
	flags.Uint64Var(&since, "since", 0, "only after the event with this `number`")
	labelFlag(cmd, &labels)
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) writeEvent(e api.Event) {
	line := fmt.Sprintf("%s  %-18s", e.Time.Local().Format(time.DateTime), e.Kind)
	if e.Share != "" {
		line += " share=" + e.Share
	}
	if e.PID != 0 {
		line += " pid=" + strconv.Itoa(e.PID)
	}
	if e.Bytes != 0 {
		line += " bytes=" + strconv.FormatUint(e.Bytes, 10)
	}
	fmt.Fprintln(a.stdout, oneLine(line+"  "+e.Message))
}

// followEvents prints events until it is interrupted. An agent that restarts is
// waited for.
func (a *app) followEvents(ctx context.Context, at place, since uint64, asJSON bool) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	const patience = 10 * time.Second
	lost := time.Now()
	for {
		// An agent that was started anew goes on with the numbers of the one before.
		if _, err := at.client.Version(ctx); err == nil {
			lost = time.Now()
		}
		err := at.client.Follow(ctx, since, func(e api.Event) error {
			since, lost = e.Sequence, time.Now()
			if !asJSON {
				a.writeEvent(e)
				return nil
			}
			return json.NewEncoder(a.stdout).Encode(e)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, client.ErrUnreachable):
			return err
		case time.Since(lost) > patience:
			return at.explain(err)
		}
		if wait(ctx, 50*time.Millisecond) != nil {
			return nil
		}
	}
}

// wait sleeps unless ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
