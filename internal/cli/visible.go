// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/environment"
	"github.com/divvy-gpu/divvy/internal/library"
)

// startDriver is how long a driver may take to start, which is seconds where nothing
// keeps the GPUs' state.
const startDriver = time.Minute

// heed keeps a run to the GPUs that a batch system, a user or an outer share has left in
// the variable.
func (a *app) heed(ctx context.Context, p place, wanted *api.RunSpec) error {
	list, set := os.LookupEnv(environment.Visible)
	if !set {
		return nil
	}
	const anyGPU = "unset " + environment.Visible + ", or set it to GPUs of divvy devices"
	kind, err := readVisible(list)
	if err != nil {
		return withHint(usage(fmt.Errorf("%s=%s %w", environment.Visible, list, err)), anyGPU)
	}
	version, err := p.client.Version(ctx)
	if err != nil {
		return err
	}
	shown, err := a.driverShows(ctx, version)
	switch {
	case err != nil:
		return fmt.Errorf("ask the driver what %s=%s means: %w", environment.Visible, list, err)
	case len(shown) == 0 && namedTwice(list) != "":
		return withHint(usage(fmt.Errorf("%s=%s names one GPU twice, the second time as %s, by which the driver shows none", environment.Visible, list, namedTwice(list))), anyGPU)
	case len(shown) == 0:
		return withHint(notThere(fmt.Errorf("%s=%s shows no GPU here, so none can be chosen", environment.Visible, list)), anyGPU)
	case kind == kindMIG:
		return withHint(&codedError{code: exitNotAllowed, cause: fmt.Errorf("%s=%s is a MIG device, and shares are on whole GPUs", environment.Visible, list)},
			"run the command without divvy run, or "+anyGPU)
	}
	if wanted.New != nil {
		wanted.New.Among = shown
		return nil
	}
	share, err := p.client.Share(ctx, wanted.Share)
	if err != nil {
		return err
	}
	for _, uuid := range share.CardUUIDs() {
		if !slices.Contains(shown, uuid) {
			return withHint(notThere(fmt.Errorf("share %s is on %s, which %s=%s hides", share.Name, uuid, environment.Visible, list)), anyGPU)
		}
	}
	return nil
}

// limitedChoice tells whoever gets no GPU that the variable has left few to choose from.
func limitedChoice(err error, among []string) error {
	if len(among) == 0 || exitCode(err) != exitNotThere {
		return err
	}
	return withHint(err, fmt.Sprintf("%s=%s leaves %s: unset it to choose from all", environment.Visible, os.Getenv(environment.Visible), strings.Join(among, " and ")))
}

// Kinds of names in the variable.
const (
	kindNumber = "number"
	kindUUID   = "UUID"
	kindMIG    = "MIG device"
)

// readVisible says what kind of names a list has, and refuses one that contradicts
// itself, of which the driver would take a part or nothing without a word. What the
// entries mean, only the driver knows; what is no name ends the list.
func readVisible(list string) (kind string, err error) {
	var seen []string
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.ToLower(strings.TrimSpace(entry))
		is := ""
		switch _, notNumber := strconv.ParseUint(entry, 10, 64); {
		case notNumber == nil:
			is = kindNumber
		case strings.HasPrefix(entry, "gpu-"):
			is = kindUUID
		case strings.HasPrefix(entry, "mig-"):
			is = kindMIG
		}
		switch {
		case is == "":
			return kind, nil
		case kind != "" && is != kind:
			return kind, fmt.Errorf("names GPUs by %s and by %s: it takes one or the other", kind, is)
		case slices.Contains(seen, entry):
			return kind, fmt.Errorf("names %s twice, by which the driver shows none", entry)
		}
		kind, seen = is, append(seen, entry)
	}
	return kind, nil
}

// namedTwice is the entry of a list of which the driver shows none that may name a GPU once
// more, in other digits or by less of its UUID; empty: none.
func namedTwice(list string) string {
	type name struct {
		number uint64
		uuid   string
	}
	var seen []name
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.ToLower(strings.TrimSpace(entry))
		number, err := strconv.ParseUint(entry, 10, 64)
		is := name{number: number}
		if err != nil {
			if is.uuid = entry; !strings.HasPrefix(entry, "gpu-") {
				return ""
			}
		}
		if slices.ContainsFunc(seen, func(other name) bool {
			if is.uuid == "" || other.uuid == "" {
				return is == other
			}
			return strings.HasPrefix(is.uuid, other.uuid) || strings.HasPrefix(other.uuid, is.uuid)
		}) {
			return entry
		}
		seen = append(seen, is)
	}
	return ""
}

// driverShows are the GPUs that the driver shows a program with our environment: of the
// machine, or of the share that we are in.
func (a *app) driverShows(ctx context.Context, version api.Version) ([]string, error) {
	dir, err := a.libraries()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startDriver)
	defer cancel()
	driver, env := library.CUDAName, os.Environ()
	if a.getenv("DIVVY_SOCKET") == "" {
		driver = filepath.Join(version.DriverDirectory, library.CUDAName)
		if version.Simulator != "" {
			env = append(env, "DIVVY_SIMULATOR="+version.Simulator)
		}
	}
	var said bytes.Buffer
	ask := exec.CommandContext(ctx, dir.Tool("visible"), driver)
	ask.Env, ask.Stderr = env, &said
	shown, err := ask.Output()
	if err != nil {
		if line := strings.TrimSpace(said.String()); line != "" {
			err = errors.New(line)
		}
		return nil, err
	}
	return strings.Fields(string(shown)), nil
}
