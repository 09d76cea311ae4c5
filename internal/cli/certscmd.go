// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/remote/certificates"
)

const schemaCertificates = "divvy.certs/v1"

// certificateList is what `divvy certs` tells as JSON.
type certificateList struct {
	Schema       string                `json:"schema"`
	Certificates []certificates.Issued `json:"certificates"`
}

func (a *app) certsCommand() *cobra.Command {
	return a.group("certs", "Make and revoke certificates for servers and those who use them",
		`  divvy certs issue --tenant vision --user ann`,
		a.certsInitCommand(), a.certsIssueCommand(), a.certsListCommand(), a.certsRevokeCommand())
}

// remoteFolder is where certificates are: of the machine, or of the user.
func (a *app) remoteFolder() (string, error) {
	if os.Geteuid() == 0 {
		return "/etc/divvy/remote", nil
	}
	if dir := a.getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "divvy", "remote"), nil
	}
	if dir := a.getenv("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, ".config", "divvy", "remote"), nil
	}
	return "", withHint(usage(errors.New("no folder for certificates: neither XDG_CONFIG_HOME nor HOME is set")), "name it: --dir FOLDER")
}

// certsFolder adds --dir; what it returns is called when flags are read.
func (a *app) certsFolder(cmd *cobra.Command) func() (string, error) {
	var dir string
	cmd.Flags().StringVar(&dir, "dir", "", "`folder` of the authority; default: /etc/divvy/remote, or below ~/.config")
	complete(cmd, "dir", fileCompletion)
	return func() (string, error) {
		if dir != "" {
			return filepath.Abs(dir)
		}
		return a.remoteFolder()
	}
}

// openAuthority opens the authority in a folder.
func openAuthority(folder func() (string, error)) (*certificates.Authority, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	authority, err := certificates.Open(dir)
	if err != nil {
		return nil, certsFailed(err)
	}
	return authority, nil
}

// certsFailed words errors of certificates.
func certsFailed(err error) error {
	switch {
	case errors.Is(err, certificates.ErrExists):
		return withHint(&codedError{code: exitNotAllowed, cause: err}, "divvy certs issue uses it")
	case errors.Is(err, certificates.ErrUnsafe):
		return withHint(&codedError{code: exitNotAllowed, cause: err}, "divvy certs list shows what to revoke, if others have read it")
	case errors.Is(err, certificates.ErrName):
		return usage(err)
	case errors.Is(err, certificates.ErrNotThere):
		return withHint(notThere(err), "divvy certs list")
	case errors.Is(err, fs.ErrNotExist):
		return withHint(notThere(err), "divvy certs init makes an authority")
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrPermission):
		return &codedError{code: exitNotAllowed, cause: err}
	}
	return err
}

func (a *app) certsInitCommand() *cobra.Command {
	var hosts []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make an authority, and a server's certificate",
		Long: `Makes an authority and the certificate of a server (server.pem), in a folder that
only its owner can read. Whoever has the folder can let anybody in: keep it on the
server, or copy only server.pem and the folder revoked to there.`,
		Example: `  divvy certs init --host gpu1 --host 10.0.0.7`,
		Args:    noArguments,
	}
	folder := a.certsFolder(cmd)
	cmd.RunE = a.action(func(*cobra.Command, []string) error {
		dir, err := folder()
		if err != nil {
			return err
		}
		if len(hosts) == 0 {
			name, err := os.Hostname()
			if err != nil {
				return err
			}
			hosts = []string{name, "localhost", "127.0.0.1"}
		}
		now := time.Now()
		authority, err := certificates.Init(dir, now)
		if err != nil {
			return certsFailed(err)
		}
		return a.issued(filepath.Join(dir, "server.pem"), asJSON, func() (certificates.Issued, []byte, error) {
			return authority.IssueServer(hosts, serverDays, now)
		})
	})
	cmd.Flags().StringArrayVar(&hosts, "host", nil, "`name` or address of the server; may be repeated; default: this machine's")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// For how many days certificates are good where nothing is said.
const (
	serverDays = 825
	clientDays = 90
)

// issued issues a certificate into a file and says so.
func (a *app) issued(path string, asJSON bool, issue func() (certificates.Issued, []byte, error)) error {
	if _, err := os.Lstat(path); err == nil {
		return withHint(&codedError{code: exitNotAllowed, cause: fmt.Errorf("%s is there already", path)}, "--out FILE")
	}
	is, raw, err := issue()
	if err == nil {
		err = certificates.Write(path, raw)
	}
	if err != nil {
		return certsFailed(err)
	}
	if asJSON {
		return a.writeJSON(certificateList{Schema: schemaCertificates, Certificates: []certificates.Issued{is}})
	}
	_, err = fmt.Fprintf(a.stdout, "%s: certificate and key of %s until %s\n", path, holderOf(is), is.Expires.Local().Format(time.DateOnly))
	return err
}

// holderOf is whose a certificate is.
func holderOf(is certificates.Issued) string {
	if is.Kind == certificates.KindServer {
		return "server " + strings.Join(is.Hosts, ", ")
	}
	return is.Tenant + "/" + is.User
}

func (a *app) certsIssueCommand() *cobra.Command {
	var tenant, user, out string
	var hosts []string
	var days int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "issue",
		Short: "Issue a certificate to a tenant's user, or to a server",
		Long: `Issues a certificate: a file with its key, which whoever has it can use until it
expires or is revoked. Bring it to its user by a safe way, as identity.pem into
~/.config/divvy/remote, or name it by divvy run --identity.`,
		Example: `  divvy certs issue --tenant vision --user ann --out ann.pem`,
		Args:    noArguments,
	}
	folder := a.certsFolder(cmd)
	cmd.RunE = a.action(func(*cobra.Command, []string) error {
		if (len(hosts) > 0) == (tenant != "" || user != "") || (tenant == "") != (user == "") {
			return withHint(usage(errors.New("a certificate is for --tenant and --user, or for the --host of a server")), "divvy certs issue --tenant vision --user ann")
		}
		authority, err := openAuthority(folder)
		if err != nil {
			return err
		}
		now := time.Now()
		if out == "" {
			out = strings.ReplaceAll(tenant+"-"+user, "/", "_") + ".pem"
			if len(hosts) > 0 {
				out = "server.pem"
			}
		}
		return a.issued(out, asJSON, func() (certificates.Issued, []byte, error) {
			if len(hosts) > 0 {
				return authority.IssueServer(hosts, days, now)
			}
			return authority.IssueClient(tenant, user, days, now)
		})
	})
	flags := cmd.Flags()
	flags.StringVar(&tenant, "tenant", "", "`name` of who pays")
	flags.StringVar(&user, "user", "", "`name` of who uses it")
	flags.StringArrayVar(&hosts, "host", nil, "`name` or address of a server; may be repeated")
	flags.IntVar(&days, "days", clientDays, "`number` of days for which it is good")
	flags.StringVar(&out, "out", "", "`file` to make; default: TENANT-USER.pem")
	complete(cmd, "out", fileCompletion)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) certsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the certificates that were issued",
		Example: `  divvy certs list --json`,
		Args:    noArguments,
	}
	folder := a.certsFolder(cmd)
	cmd.RunE = a.action(func(*cobra.Command, []string) error {
		authority, err := openAuthority(folder)
		if err != nil {
			return err
		}
		list, err := authority.List()
		if err != nil {
			return certsFailed(err)
		}
		return a.writeCertificates(list, asJSON)
	})
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) writeCertificates(list []certificates.Issued, asJSON bool) error {
	if asJSON {
		if list == nil {
			list = []certificates.Issued{}
		}
		return a.writeJSON(certificateList{Schema: schemaCertificates, Certificates: list})
	}
	rows := newTable("SERIAL", "KIND", "HOLDER", "EXPIRES", "STATE")
	for _, is := range list {
		state := "good"
		switch {
		case is.Revoked:
			state = "revoked"
		case time.Now().After(is.Expires):
			state = "expired"
		}
		rows.add(is.Serial, is.Kind, holderOf(is), is.Expires.Local().Format(time.DateOnly), state)
	}
	return rows.write(a.stdout)
}

func (a *app) certsRevokeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "revoke SERIAL|TENANT/USER",
		Short: "Take certificates back",
		Long: `Takes a certificate back, by its serial number, or all of a tenant's user. A server
that uses the folder notices within 5 seconds and ends what is open of them.`,
		Example: `  divvy certs revoke vision/ann`,
		Args:    oneName,
	}
	folder := a.certsFolder(cmd)
	cmd.RunE = a.action(func(_ *cobra.Command, args []string) error {
		authority, err := openAuthority(folder)
		if err != nil {
			return err
		}
		taken, err := authority.Revoke(args[0])
		if err != nil {
			return certsFailed(err)
		}
		return a.writeCertificates(taken, asJSON)
	})
	jsonFlag(cmd, &asJSON)
	return cmd
}
