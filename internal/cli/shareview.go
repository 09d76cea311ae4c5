// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	"github.com/divvy-gpu/divvy/internal/size"
)

// shareDevices is `divvy devices --json` under a share: what any program there
// would see.
type shareDevices struct {
	Schema      string      `json:"schema"`
	Simulated   bool        `json:"simulated"`
	InsideShare bool        `json:"insideShare"`
	Cards       []shareCard `json:"cards"`
}

// shareCard is a card as the share sees it.
type shareCard struct {
	UUID          string `json:"uuid"`
	Name          string `json:"name"`
	PCIAddress    string `json:"pciAddress"`
	Simulated     bool   `json:"simulated"`
	DriverVersion string `json:"driverVersion"`
	MemoryBytes   uint64 `json:"memoryBytes"` // the share's limit
	UsedBytes     uint64 `json:"usedBytes"`   // by all processes of the share
	FreeBytes     uint64 `json:"freeBytes"`
}

// shareView prints what the driver library tells this process. The environment
// that divvy run made lets the library's name lead to the front.
func (a *app) shareView(asJSON bool) (err error) {
	source, err := nvml.Open("")
	if errors.Is(err, gpu.ErrNoDriver) {
		return withHint(notThere(err), "divvy doctor")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	cards, err := source.Cards()
	if err != nil {
		return err
	}
	list := shareDevices{Schema: api.SchemaDevices, InsideShare: true, Cards: []shareCard{}}
	for _, c := range cards {
		account, err := source.Account(c.UUID)
		if err != nil {
			return err
		}
		list.Simulated = list.Simulated || c.Simulated
		list.Cards = append(list.Cards, shareCard{
			UUID: c.UUID, Name: c.Name, PCIAddress: c.PCIAddress, Simulated: c.Simulated, DriverVersion: c.DriverVersion,
			MemoryBytes: c.MemoryBytes, UsedBytes: account.UsedBytes, FreeBytes: c.MemoryBytes - min(c.MemoryBytes, account.UsedBytes),
		})
	}
	if asJSON {
		return a.writeJSON(list)
	}
	rows := newTable("UUID", "NAME", "MEMORY", "USED", "FREE", "DRIVER")
	for _, c := range list.Cards {
		rows.add(c.UUID, c.Name, size.Short(c.MemoryBytes), size.Short(c.UsedBytes), size.Short(c.FreeBytes), c.DriverVersion)
	}
	return rows.write(a.stdout)
}
