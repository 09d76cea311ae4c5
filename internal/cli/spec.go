// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/private"
)

// libraries finds what the build left.
func (a *app) libraries() (library.Dir, error) {
	dir, err := library.Find(a.getenv, self)
	if err != nil {
		return "", withHint(err, "make build, or set DIVVY_LIBDIR to the lib/divvy that was built")
	}
	return dir, nil
}

// frontFor returns the folder of the front that fits a driver.
func (a *app) frontFor(driverDirectory string) (string, error) {
	dir, err := a.libraries()
	if err != nil {
		return "", err
	}
	front, err := dir.FrontFor(driverDirectory, library.Caches(a.getenv, os.Geteuid())...)
	if err != nil {
		// Nobody has a home that can be written to: then where our sockets are.
		own, failed := a.privateRoot().Cache()
		if failed == nil {
			front, failed = dir.FrontFor(driverDirectory, own)
		}
		if failed != nil {
			return "", err
		}
	}
	return front.Dir, nil
}

// simulatedSpec is the private agent over the user's simulated cards.
func (a *app) simulatedSpec() (private.Spec, error) {
	dir, err := a.libraries()
	if err != nil {
		return private.Spec{}, err
	}
	driver, err := dir.Standin(a.target.driver)
	if err != nil {
		return private.Spec{}, err
	}
	return private.Spec{Cards: a.target.simulate, Driver: a.target.driver, DriverDirectory: driver}, nil
}

// errNoGPU says that there is nothing to share on this machine.
var errNoGPU = errors.New("no GPU and no agent on this machine")

// realSpec is the private agent over the cards of this machine.
func (a *app) realSpec() (private.Spec, error) {
	found, err := private.FindDriver("/")
	if errors.Is(err, private.ErrNoDriver) {
		return private.Spec{}, withHint(notThere(fmt.Errorf("%w: %w", errNoGPU, err)), "divvy run --simulate -- COMMAND uses a simulated GPU")
	}
	if err != nil {
		return private.Spec{}, err
	}
	folder, err := a.privateRoot().DriverFolder(found)
	if err != nil {
		return private.Spec{}, err
	}
	return private.Spec{DriverDirectory: folder}, nil
}
