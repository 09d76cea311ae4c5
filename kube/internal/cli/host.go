// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/kube/internal/host"
)

// hostFlags are what `divvy-kube host` is told.
type hostFlags struct{ files, root, prefix string }

func hostCommand() *cobra.Command {
	var f hostFlags
	command := &cobra.Command{
		Use:   "host [flags] -- ARGUMENTS",
		Short: "Run divvy on the node, out of a container",
		Long: `Copies the Divvy of this image to the node, under a name of its own version, and runs
it there in this process's place: the node's root is its root. Versions of before stay, since
programs of shares have them mapped. The container must be privileged, in the node's process
namespace, and have the node's root mounted.`,
		Example: "  divvy-kube host -- agent --creation owner --cdi-dir /run/cdi",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			version, err := host.Install(f.files, f.root, f.prefix)
			if err != nil {
				return err
			}
			return host.Exec(f.root, filepath.Join(version, "bin", "divvy"), args, hostEnvironment)
		},
	}
	command.Flags().StringVar(&f.files, "files", "/opt/divvy", "`folder` of the image with one version of Divvy")
	command.Flags().StringVar(&f.root, "root", "/host", "`folder` that the node's root is mounted at")
	command.Flags().StringVar(&f.prefix, "prefix", "/opt/divvy", "`folder` of the node to install to")
	return command
}

// hostEnvironment is a service's on the node: nothing of the container's holds there.
var hostEnvironment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
