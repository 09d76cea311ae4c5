// SPDX-License-Identifier: Apache-2.0

package private

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"path/filepath"
)

// relaySocket is the name of a relay's socket in its folder, which is hidden: it is no agent's.
const relaySocket = "relay.sock"

// Relay returns the socket of the user's relay to a server with an identity, which key names,
// and starts it when there is none. program is the divvy binary, and arguments those of the
// relay, behind which its socket comes. It may leave again when it has been idle: callers that
// then find it gone call Relay again.
func (r Root) Relay(ctx context.Context, program, key string, arguments ...string) (string, error) {
	sum := sha256.Sum256([]byte(key))
	f, err := r.folder(".relay-" + hex.EncodeToString(sum[:5]))
	if err != nil {
		return "", err
	}
	path := filepath.Join(f.path, relaySocket)
	answers := func() bool {
		conn, err := net.DialTimeout("unix", path, askDeadline)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	}
	if answers() {
		return path, nil
	}
	for range attempts {
		if err = f.bringUpRelay(ctx, program, append(arguments, path), answers); err == nil || ctx.Err() != nil || !errors.Is(err, ErrNotStarted) {
			break
		}
	}
	return path, err
}

// bringUpRelay starts a relay, under the folder's lock. One that is leaving has taken its
// socket's name away before, and goes on with whom it serves.
func (f *Folder) bringUpRelay(ctx context.Context, program string, arguments []string, answers func() bool) error {
	unlock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if answers() {
		return nil // somebody was faster
	}
	next := record{}
	if next.Agent, err = f.startAndWait(ctx, program, "relay", arguments, answers); err != nil {
		return err
	}
	if err = f.writeRecord(next); err != nil {
		next.Agent.stop(ctx)
	}
	return err
}

// cleanRelays removes the folders of relays that have left; with force it ends the others.
func (r Root) cleanRelays(ctx context.Context, force bool) error {
	if checkPrivate(r.path) != nil {
		return nil
	}
	matches, err := filepath.Glob(filepath.Join(r.path, ".relay-*"))
	if err != nil {
		return err
	}
	for _, match := range matches {
		f := &Folder{path: match}
		unlock, err := f.lock(ctx)
		if err != nil {
			return err
		}
		known, err := f.readRecord()
		if err == nil && force {
			known.Agent.stop(ctx)
		}
		if err != nil || !known.Agent.alive() {
			err = os.RemoveAll(match)
		} else {
			err = nil
		}
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
