// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/web"
)

func (a *app) webCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "web",
		Short: "Pass the agent's metrics on to a port of this machine",
		Long: `Listens on an address of this machine alone and answers GET /metrics with what the
agent tells on its socket, until interrupted. It prints where. Addresses that
others can reach are refused (exit code 2): there is no login.`,
		Example: `  divvy web --listen 127.0.0.1:7180`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if err := web.Check(listen); err != nil {
			return withHint(usage(err), "divvy web --listen "+webAddress)
		}
		looking := client.Looking(cmd.Context())
		at, err := a.find(looking)
		if err != nil {
			return err
		}
		if _, err := at.client.Version(looking); err != nil {
			return at.explain(err)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		listener, err := web.Listen(ctx, listen)
		if errors.Is(err, web.ErrAddress) {
			return withHint(usage(err), "divvy web --listen "+webAddress)
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "http://%s/metrics\n", listener.Addr())
		return web.Serve(ctx, listener, at.client)
	})
	cmd.Flags().StringVar(&listen, "listen", webAddress, "this machine's own `address` to use")
	complete(cmd, "listen", words(webAddress, "localhost:7180", "[::1]:7180"))
	a.targetFlags(cmd)
	return cmd
}

const webAddress = "127.0.0.1:7180"
