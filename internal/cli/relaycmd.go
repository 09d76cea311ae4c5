// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/remote/certificates"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// relayingCommand is the daemon that leads a user's programs to a server.
const relayingCommand = "relaying"

// relayPatience is how long a relay waits for a server, and for who connects.
const relayPatience = 10 * time.Second

// identityFile is the certificate of a user, in the folder of certificates.
const identityFile = "identity.pem"

// relayTo is the socket of the user's relay to a server.
func (a *app) relayTo(ctx context.Context, at server.Address) (string, error) {
	identity, path, err := a.readIdentity()
	if err != nil {
		return "", err
	}
	program, err := self()
	if err != nil {
		return "", err
	}
	// Another certificate is another relay, also in the same file.
	sum := sha256.Sum256(identity.Leaf.Raw)
	key := net.JoinHostPort(at.Host, at.Port) + " " + hex.EncodeToString(sum[:])
	return a.privateRoot().Relay(ctx, program, key, relayingCommand, at.Host, at.Port, path)
}

// readIdentity is the user's certificate, and its file.
func (a *app) readIdentity() (certificates.Bundle, string, error) {
	none := certificates.Bundle{}
	path := a.target.identity
	if path == "" {
		dir, err := a.remoteFolder()
		if err != nil {
			return none, "", err
		}
		path = filepath.Join(dir, identityFile)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return none, "", err
	}
	identity, err := certificates.ReadBundle(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, "", withHint(&codedError{code: exitNotAllowed, cause: fmt.Errorf("no certificate: %w", err)},
			"have one issued (divvy certs issue), and name it: --identity FILE")
	}
	if err != nil {
		return none, "", certsFailed(err)
	}
	return identity, path, nil
}

func (a *app) relayingCommand() *cobra.Command {
	cmd := &cobra.Command{Use: relayingCommand + " HOST PORT IDENTITY SOCKET", Hidden: true, Args: cobra.ExactArgs(4), DisableFlagParsing: true}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		closeInherited()
		identity, err := certificates.ReadBundle(args[2])
		if err != nil {
			return certsFailed(err)
		}
		listener, err := socket.Listen(socket.Stream, args[3], 0o600)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		cfg := relay.Config{
			Server: net.JoinHostPort(args[0], args[1]), TLS: identity.ClientTLS(args[0]), Idle: privateIdle, Patience: relayPatience,
			Logger: slog.New(slog.NewTextHandler(a.stderr, nil)),
		}
		return relay.Run(ctx, listener, cfg, func() { _ = os.Remove(args[3]) })
	})
	return cmd
}

// revocations ends what a server has open of certificates that are revoked, until ctx ends.
func revocations(ctx context.Context, dir string, s *server.Server, log *slog.Logger) {
	ticker := time.NewTicker(revocationEvery)
	defer ticker.Stop()
	for {
		revoked, err := certificates.Revoked(dir)
		if err != nil {
			log.Error("look at what is revoked", "error", err)
			revoked = nil
		}
		if len(revoked) > 0 {
			s.Revoke(func(serial string) bool { return revoked[serial] })
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// revocationEvery is how often a server looks what is revoked.
const revocationEvery = 2 * time.Second

// isRevoked says whether a certificate is revoked now. Where that cannot be known, none is
// good.
func isRevoked(dir string, log *slog.Logger) func(serial string) bool {
	return func(serial string) bool {
		_, err := os.Lstat(filepath.Join(dir, "revoked", serial))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Error("look at what is revoked", "error", err)
		}
		return !errors.Is(err, fs.ErrNotExist)
	}
}
