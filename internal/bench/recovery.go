// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// SchemaRecovery names the version of RecoveryReport.
const SchemaRecovery = "divvy.bench.recovery/v1"

// RecoveryOptions says how often to kill what.
type RecoveryOptions struct {
	Target
	Rounds   int    // killed clients, killed and stopped holders of the card; 0: 200
	Resident uint64 // bytes of host memory that a killed client holds besides; 0: 16 MiB
	Clients  int    // that run while the agent dies; 0: 20
	Restarts int    // of the agent; 0: 3
}

// RecoveryReport says how soon memory is usable again, and what an agent's
// death costs.
type RecoveryReport struct {
	Schema    string `json:"schema"`
	Simulated bool   `json:"simulated"`
	Rounds    int    `json:"rounds"`
	// From the kill to the moment another process of the share had the memory.
	MemoryReturnedMs Quantiles `json:"memoryReturnedMs"`
	// From the driver's release of the dead client's memory to that moment.
	FromDriverReleaseMs Quantiles `json:"fromDriverReleaseMs"`
	// The same two without Divvy, on the bare simulated card, in the same run:
	// what the kernel, the driver and this machine's load take.
	Control struct {
		MemoryReturnedMs    Quantiles `json:"memoryReturnedMs"`
		FromDriverReleaseMs Quantiles `json:"fromDriverReleaseMs"`
	} `json:"control"`
	// Grants that came before the driver had released the memory: must be 0.
	EarlyGrants  int          `json:"earlyGrants"`
	LeaseHolders LeaseHolders `json:"leaseHolders"`
	AgentRestart Restart      `json:"agentRestart"`
}

// Recovery kills clients and measures when others can use their memory, and
// their time; then it kills the agent under running clients.
func Recovery(ctx context.Context, o RecoveryOptions) (RecoveryReport, error) {
	report := RecoveryReport{Schema: SchemaRecovery, Simulated: true}
	if err := o.Validate(); err != nil {
		return report, err
	}
	if o.Rounds == 0 {
		o.Rounds = 200
	}
	if o.Resident == 0 {
		o.Resident = 16 * mib
	}
	if err := killedClients(ctx, o, &report); err != nil {
		return report, err
	}
	var err error
	if report.LeaseHolders, err = leaseHolders(ctx, o); err != nil {
		return report, err
	}
	report.AgentRestart, err = AgentRestart(ctx, RestartOptions{Target: o.Target, Clients: o.Clients, Restarts: o.Restarts})
	return report, err
}

// killedClients kills one process after the other that holds most of a share,
// and then as many that hold most of the bare card.
func killedClients(ctx context.Context, o RecoveryOptions, report *RecoveryReport) error {
	const held = 128 * mib
	account, err := openAccount(ctx, o.SimulatorSocket)
	if err != nil {
		return err
	}
	defer account.close()
	contextBytes, err := o.contextBytes(ctx)
	if err != nil {
		return err
	}
	// The victim's context and memory, the heir's context, and less than the
	// memory once more.
	share, remove, err := o.share(ctx, "bench-recovery", 2*contextBytes+held+held/2)
	if err != nil {
		return err
	}
	defer remove()
	deaths, err := killMany(ctx, o, o.Environ(share.Socket), account, func(*Holder) (uint64, error) { return held, nil })
	if err != nil {
		return err
	}
	report.Rounds = len(deaths)
	for _, d := range deaths {
		if d.granted < d.released {
			report.EarlyGrants++
		}
	}
	report.MemoryReturnedMs, report.FromDriverReleaseMs = summary(deaths)
	deaths, err = killMany(ctx, o, o.Unheld(), account, func(heir *Holder) (uint64, error) {
		numbers, err := heir.Numbers("info")
		if err != nil {
			return 0, err
		}
		if numbers[0] < 2*(contextBytes+mib) {
			return 0, fmt.Errorf("the bare GPU has %d bytes free", numbers[0])
		}
		return numbers[0] - contextBytes - mib, nil
	})
	if err != nil {
		return fmt.Errorf("control without the front: %w", err)
	}
	report.Control.MemoryReturnedMs, report.Control.FromDriverReleaseMs = summary(deaths)
	return nil
}

func summary(deaths []death) (fromKill, fromRelease Quantiles) {
	var returned, released []time.Duration
	for _, d := range deaths {
		returned = append(returned, d.granted-d.killed)
		released = append(released, d.granted-d.released)
	}
	return quantiles(returned), quantiles(released)
}

// killMany kills processes of the environment env one after the other; an heir
// waits for the memory of each. size says how much that is.
func killMany(ctx context.Context, o RecoveryOptions, env []string, account *account, size func(heir *Holder) (uint64, error)) ([]death, error) {
	heir, err := o.StartHolder(ctx, env)
	if err != nil {
		return nil, err
	}
	defer heir.Kill()
	if _, err := heir.Do("start"); err != nil {
		return nil, err
	}
	held, err := size(heir)
	if err != nil {
		return nil, err
	}
	var deaths []death
	for range o.Rounds {
		one, err := killOne(ctx, o, env, heir, held, account)
		if err != nil {
			return nil, err
		}
		deaths = append(deaths, one)
	}
	return deaths, nil
}

// death is one killed client: all times are CLOCK_MONOTONIC.
type death struct{ killed, released, granted time.Duration }

func killOne(ctx context.Context, o RecoveryOptions, env []string, heir *Holder, held uint64, account *account) (death, error) {
	var d death
	victim, err := o.StartHolder(ctx, env)
	if err != nil {
		return d, err
	}
	defer victim.Kill()
	for _, command := range []string{"start", fmt.Sprintf("alloc %d", held), fmt.Sprintf("resident %d", o.Resident)} {
		if _, err := victim.Do("%s", command); err != nil {
			return d, fmt.Errorf("victim: %w", err)
		}
	}
	// The heir is refused while the victim lives.
	if _, err := heir.Do("alloc %d", held); !errors.Is(err, ErrRefused) {
		return d, fmt.Errorf("the heir was not refused beside the victim: %v", err)
	}
	if err := heir.send(fmt.Sprintf("grab %d", held)); err != nil {
		return d, err
	}
	if d.killed, err = now(); err != nil {
		return d, err
	}
	victim.Kill()
	words, err := heir.answer("grab")
	if err != nil {
		return d, err
	}
	var address, granted uint64
	if len(words) != 2 {
		return d, fmt.Errorf("heir: unexpected answer %q", words)
	}
	if _, err := fmt.Sscan(words[0]+" "+words[1], &address, &granted); err != nil {
		return d, fmt.Errorf("heir: %w", err)
	}
	d.granted = time.Duration(granted)
	if _, err := heir.Do("free %d", address); err != nil {
		return d, err
	}
	d.released, err = account.released(ctx, victim.PID)
	return d, err
}
