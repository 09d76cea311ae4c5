// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/private"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// cdiList is `divvy cdi list --json` and `divvy cdi generate --json`.
type cdiList struct {
	Schema  string      `json:"schema"`
	Folders []string    `json:"folders"`
	Devices []cdiDevice `json:"devices"`
}

type cdiDevice struct {
	Device string `json:"device"` // divvy.dev/share=train; empty: no runtime accepts the file
	Class  string `json:"class"`
	ID     string `json:"id"`
	File   string `json:"file"`
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
}

const schemaCDI = "divvy.cdi/v1"

// Classes that generate makes; a part's class is its kind.
const classPart = "part"

func cdiClasses() []string { return []string{cdi.ClassShare, cdi.ClassCard, classPart} }

func (a *app) cdiCommand() *cobra.Command {
	return a.group("cdi", "Give shares, GPUs and parts of GPUs to containers", `  divvy cdi generate --output /etc/cdi`,
		a.cdiListCommand(), a.cdiGenerateCommand())
}

func (a *app) cdiListCommand() *cobra.Command {
	var asJSON bool
	var folders []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the devices that containers can have",
		Long: `Lists the devices that Divvy's CDI files offer to container runtimes, and whether
everything that they need on this machine is there.`,
		Example: `  divvy cdi list`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(*cobra.Command, []string) error {
		list := cdiList{Schema: schemaCDI, Folders: folders, Devices: []cdiDevice{}}
		for _, folder := range folders {
			found, err := cdi.Folder(folder).Devices()
			if err != nil {
				return err
			}
			list.add(found...)
		}
		return a.printCDI(list, asJSON)
	})
	cmd.Flags().StringSliceVar(&folders, "dir", []string{cdi.StaticFolder, cdi.DynamicFolder}, "`folders` that are looked at")
	complete(cmd, "dir", fileCompletion)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (l *cdiList) add(devices ...cdi.Device) {
	for _, d := range devices {
		l.Devices = append(l.Devices, cdiDevice{Device: d.Name, Class: d.Class, ID: d.ID, File: d.Path, State: d.State, Detail: d.Detail})
	}
}

func (a *app) printCDI(list cdiList, asJSON bool) error {
	if asJSON {
		return a.writeJSON(list)
	}
	t := newTable("DEVICE", "STATE", "FILE", "DETAIL")
	for _, d := range list.Devices {
		t.add(d.Device, d.State, d.File, d.Detail)
	}
	return t.write(a.stdout)
}

func (a *app) cdiGenerateCommand() *cobra.Command {
	var asJSON bool
	var output string
	var classes []string
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Write CDI files of shares, GPUs and parts of GPUs",
		Long: `Writes one CDI file for each declared share, GPU and part of a GPU (MIG, VF,
compute), and removes those of shares that are gone. An agent with --cdi-dir keeps
the files of its shares by itself. A whole GPU comes without the front: nothing
holds it, and no ledger counts it.`,
		Example: `  divvy cdi generate --class share --output /etc/cdi`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		for _, class := range classes {
			if !slices.Contains(cdiClasses(), class) {
				return usage(fmt.Errorf("--class: %q is not %s", class, strings.Join(cdiClasses(), ", ")))
			}
		}
		folder, err := filepath.Abs(output)
		if err != nil {
			return err
		}
		list, err := a.generate(cmd.Context(), folder, classes)
		if errors.Is(err, fs.ErrPermission) {
			return withHint(&codedError{code: exitNotAllowed, cause: err}, "run as root, or --output FOLDER")
		}
		if err != nil {
			return err
		}
		return a.printCDI(list, asJSON)
	})
	flags := cmd.Flags()
	flags.StringVar(&output, "output", cdi.StaticFolder, "`folder` to write to")
	flags.StringSliceVar(&classes, "class", cdiClasses(), "`what` to write: share, card, part")
	complete(cmd, "output", fileCompletion)
	complete(cmd, "class", words(cdiClasses()...))
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// generate writes the files of what an agent and the kernel know.
func (a *app) generate(ctx context.Context, folder string, classes []string) (cdiList, error) {
	list := cdiList{Schema: schemaCDI, Folders: []string{folder}, Devices: []cdiDevice{}}
	known, err := a.containerState(ctx)
	if err != nil {
		return list, err
	}
	o, err := a.offers(cdi.Folder(folder), known.version, a.target.simulate == "")
	if err != nil {
		return list, err
	}
	if known.sockets != "" && slices.Contains(classes, cdi.ClassShare) {
		o.Sockets = known.sockets
		if err := o.Shares(known.shares, known.devices.Cards, func(err error) { a.note("%v", err) }); err != nil {
			return list, err
		}
	}
	if slices.Contains(classes, cdi.ClassCard) {
		if err := o.Cards(known.devices.Cards); err != nil {
			return list, err
		}
	}
	if slices.Contains(classes, classPart) {
		if err := errors.Join(o.Parts(), simulatedMIG(ctx, o)); err != nil {
			return list, err
		}
	}
	made, err := o.Made()
	list.add(made...)
	return list, err
}

// offers returns what containers can have in a folder: of an agent's driver or, where
// it is not told, of the one that is installed; with the machine's hardware or without.
func (a *app) offers(folder cdi.Folder, v api.Version, hardware bool) (*cdi.Offers, error) {
	o := &cdi.Offers{Folder: folder}
	if hardware {
		machine, err := a.machine("")
		if err != nil {
			return nil, err
		}
		o.Devices = machine.Devices
	}
	cuda, nvml := filepath.Join(v.DriverDirectory, library.CUDAName), filepath.Join(v.DriverDirectory, library.NVMLName)
	if v.DriverDirectory == "" {
		found, err := private.FindDriver("/")
		if errors.Is(err, private.ErrNoDriver) {
			return o, nil // cards that need none remain
		}
		if err != nil {
			return nil, err
		}
		cuda, nvml = found.CUDA, found.NVML
	}
	driver, err := cdi.FindDriver(cuda, nvml, v.Simulator)
	if err != nil {
		return nil, err
	}
	o.Driver = &driver
	if v.DriverDirectory == "" {
		return o, nil // no agent: no shares, no front
	}
	libraries, err := a.libraries()
	if err != nil {
		return nil, err
	}
	front, err := a.frontFor(v.DriverDirectory)
	o.Front = cdi.Front{Library: filepath.Join(front, library.CUDAName), Preload: libraries.Preload()}
	return o, err
}

// simulatedMIG offers the MIG devices of simulated cards, where a simulator tells of
// them.
func simulatedMIG(ctx context.Context, o *cdi.Offers) (err error) {
	if o.Driver == nil || o.Driver.Simulator == "" {
		return nil
	}
	truth, err := simgpu.Dial(ctx, o.Driver.Simulator)
	if errors.Is(err, simgpu.ErrNotListening) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, truth.Close()) }()
	cards, err := truth.Cards(ctx)
	if err != nil {
		return err
	}
	var all []string
	for _, c := range cards {
		if !c.MIG {
			continue
		}
		devices, err := truth.MIGDevices(ctx, c.Index)
		if err != nil {
			return err
		}
		all = append(all, devices...)
	}
	return o.SimulatedMIG(all)
}

// agentState is what an agent knows; without one it is empty.
type agentState struct {
	sockets string // folder of the shares' folders
	version api.Version
	devices api.Devices
	shares  []api.Share
}

func (a *app) containerState(ctx context.Context) (s agentState, err error) {
	at, err := a.find(ctx)
	if errors.Is(err, errNoAgent) && a.target.simulate == "" {
		return s, nil // cards without an agent
	}
	if err != nil {
		return s, err
	}
	socket, err := filepath.Abs(at.client.Socket())
	if err != nil {
		return s, err
	}
	s.sockets = filepath.Join(filepath.Dir(socket), "shares")
	if s.version, err = at.client.Version(ctx); err != nil {
		return s, at.explain(err)
	}
	if s.devices, err = at.client.Devices(ctx); err != nil {
		return s, at.explain(err)
	}
	all, err := at.client.Shares(ctx)
	s.shares = all.Shares
	return s, at.explain(err)
}
