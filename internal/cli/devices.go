// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/descriptor"
	"github.com/divvy-gpu/divvy/internal/gpu/inventory"
	"github.com/divvy-gpu/divvy/internal/mig"
)

// Forms in which devices prints.
const (
	formTable = "table"
	formWide  = "wide"
	formJSON  = "json"
	formTree  = "tree"
	formNFD   = "nfd"
)

// deviceList is `divvy devices --json`.
type deviceList struct {
	Schema    string       `json:"schema"`
	Simulated bool         `json:"simulated"`
	Cards     []deviceCard `json:"cards"`
	// Unresponsive are the cards whose driver does not answer, by UUID.
	Unresponsive []string   `json:"unresponsive,omitempty"`
	Links        []gpu.Link `json:"links"`
	// Ways says how the cards with hardware reach each other, in the order of
	// their addresses.
	Ways ways `json:"ways"`
}

// deviceCard is a card as its agent knows it, as the kernel shows it, or both.
type deviceCard struct {
	api.Card
	Managed  bool        `json:"managed"` // an agent looks after it
	Hardware *gpu.Device `json:"hardware,omitempty"`
}

type ways struct {
	Addresses []string   `json:"addresses"`
	Rows      [][]string `json:"rows"`
}

func (a *app) devicesCommand() *cobra.Command {
	var asJSON bool
	var form, root string
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List GPUs of all vendors; inside a share, the share's view",
		Long: `Lists this machine's GPUs of all vendors: what they are, what is in use, what an
agent has promised, how they are connected (-o wide), what each can do (-o tree).
Under a share (divvy run) it asks the driver library instead, as any program
would, and so shows the share's view.`,
		Example: `  divvy run --simulate --mem 2GiB -- divvy devices
  divvy devices -o wide`,
		Args: noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if asJSON {
			form = formJSON
		}
		switch form {
		case formTable, formWide, formJSON, formTree, formNFD:
		default:
			return usage(fmt.Errorf("--output: %q is not table, wide, json, tree or nfd", form))
		}
		if root == "" && form != formNFD && a.insideShare(cmd) {
			return a.shareView(form == formJSON)
		}
		return a.printDevices(cmd.Context(), form, root)
	})
	flags := cmd.Flags()
	flags.StringVarP(&form, "output", "o", formTable, "`form`: table, wide, json, tree, nfd (labels)")
	flags.StringVar(&root, "root", "", "show the machine whose root is this `folder`, or a recorded one")
	complete(cmd, "output", words(formTable, formWide, formJSON, formTree, formNFD))
	complete(cmd, "root", fileCompletion)
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	for _, change := range []*cobra.Command{a.cordonCommand(), a.uncordonCommand()} {
		change.Flags().SortFlags = false
		cmd.AddCommand(change)
	}
	return cmd
}

func (a *app) printDevices(ctx context.Context, form, root string) error {
	if root != "" && (a.target.socket != "" || a.target.simulate != "") {
		return usage(errors.New("--root shows a machine without its agent: it cannot go with --agent or --simulate"))
	}
	machine := inventory.Machine{Devices: []gpu.Device{}, Links: []gpu.Link{}}
	var err error
	if a.target.simulate == "" {
		if machine, err = a.machine(root); err != nil {
			return err
		}
	}
	if form == formNFD {
		_, err := fmt.Fprint(a.stdout, machine.FeatureFile())
		return err
	}
	var known api.Devices
	if root == "" {
		known, err = a.devices(ctx)
		if err != nil && !(errors.Is(err, errNoGPU) && len(machine.Devices) > 0) {
			return err
		}
	}
	list := merge(known, machine)
	a.warnUnresponsive(list.Unresponsive)
	switch form {
	case formJSON:
		return a.writeJSON(list)
	case formTree:
		return a.deviceTree(list)
	case formWide:
		return a.deviceWide(list)
	}
	return a.deviceTable(list)
}

// machine reads the cards that the kernel shows, below a root or here.
func (a *app) machine(root string) (m inventory.Machine, err error) {
	own, err := a.descriptors()
	if err != nil {
		return m, err
	}
	products, err := mig.Default()
	if err != nil {
		return m, err
	}
	from := inventory.Sources{Products: products, Descriptors: own}
	if root == "" && a.getenv("DIVVY_SOCKET") == "" { // else the library is our own
		library := &driverLibrary{}
		from.Library = library
		defer func() {
			if library.silent {
				fmt.Fprintln(a.stderr, "divvy: warning: the driver's library does not answer: what it alone knows is left out")
			}
			err = errors.Join(err, library.Close())
		}()
	}
	tree, err := a.openTree(root)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	from.Tree = tree
	return inventory.Read(from), nil
}

// descriptors are the built-in ones, those of the machine, and the user's.
func (a *app) descriptors() ([]descriptor.Descriptor, error) {
	all, err := descriptor.BuiltIn()
	if err != nil {
		return nil, err
	}
	folders := []string{"/etc/divvy/vendors"}
	switch config, home := a.getenv("XDG_CONFIG_HOME"), a.getenv("HOME"); {
	case filepath.IsAbs(config):
		folders = append(folders, filepath.Join(config, "divvy/vendors"))
	case filepath.IsAbs(home):
		folders = append(folders, filepath.Join(home, ".config/divvy/vendors"))
	}
	for _, folder := range folders {
		own, err := descriptor.Load(os.DirFS(folder))
		if err != nil {
			return nil, withHint(fmt.Errorf("%s: %w", folder, err), "docs/devices.md says how a vendor is described")
		}
		all = descriptor.Merge(all, own)
	}
	return all, nil
}

// merge puts what an agent knows of a card and what the kernel shows of it into
// one entry: agents' cards first, as the agent lists them.
func merge(known api.Devices, machine inventory.Machine) deviceList {
	list := deviceList{Schema: api.SchemaDevices, Simulated: known.Simulated, Cards: []deviceCard{}, Unresponsive: known.Unresponsive, Links: machine.Links}
	taken := map[string]bool{}
	for _, c := range known.Cards {
		entry := deviceCard{Card: c, Managed: true}
		for i := range machine.Devices {
			d := &machine.Devices[i]
			if !c.Simulated && (d.Address == c.PCIAddress || d.UUID.Known && d.UUID.Value == c.UUID) {
				entry.Hardware, taken[d.Address] = d, true
			}
		}
		list.Cards = append(list.Cards, entry)
	}
	for i := range machine.Devices {
		d := &machine.Devices[i]
		if taken[d.Address] {
			continue
		}
		list.Cards = append(list.Cards, deviceCard{Hardware: d, Card: api.Card{
			UUID: d.UUID.Value, Name: d.Name, PCIAddress: d.Address, DriverVersion: d.DriverVersion.Value,
			MemoryBytes: d.MemoryBytes.Value, UsedBytes: d.Use.MemoryUsedBytes.Value,
		}})
	}
	list.Ways = ways{Addresses: []string{}, Rows: machine.Matrix()}
	for _, d := range machine.Devices {
		list.Ways.Addresses = append(list.Ways.Addresses, d.Address)
	}
	return list
}

// devices asks the agent that is running, and starts one where none is.
func (a *app) devices(ctx context.Context) (api.Devices, error) {
	at, err := a.find(ctx)
	if err == nil {
		list, err := at.client.Devices(ctx)
		if !errors.Is(err, client.ErrUnreachable) || a.chosenSocket() != "" {
			return list, at.explain(err)
		}
	} else if !errors.Is(err, client.ErrUnreachable) {
		return api.Devices{}, err
	}
	var list api.Devices
	err = a.withAgent(ctx, func(p place) error {
		var err error
		list, err = p.client.Devices(ctx)
		return err
	})
	return list, err
}

// insideShare says whether this process was started under a share, and no
// agent was named.
func (a *app) insideShare(cmd *cobra.Command) bool {
	return a.getenv("DIVVY_SOCKET") != "" && !cmd.Flags().Changed("agent") && !cmd.Flags().Changed("simulate")
}

// id is what a card goes by.
func (c deviceCard) id() string {
	if c.UUID != "" && strings.HasPrefix(c.UUID, "GPU-") {
		return c.UUID
	}
	return c.PCIAddress
}
