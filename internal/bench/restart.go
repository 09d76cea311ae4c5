// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// RestartOptions says how to kill an agent under running clients.
type RestartOptions struct {
	Target
	Clients  int // 0: 20
	Restarts int // 0: 3
	// Kill ends the agent; nil: SIGKILL to the process that answers on its
	// socket, which a supervisor starts again.
	Kill func(ctx context.Context) error
}

// Restart says what the agent's deaths cost its clients.
type Restart struct {
	Clients        int     `json:"clients"`
	Restarts       int     `json:"restarts"`
	Calls          uint64  `json:"calls"`          // made by the clients meanwhile
	FailedCalls    uint64  `json:"failedCalls"`    // that would have succeeded with an agent
	OverQuotaBytes uint64  `json:"overQuotaBytes"` // most that was held over the quota, by the driver's account
	ReconnectMs    float64 `json:"reconnectMs"`    // longest, from the kill until all clients were attached again
	LongestCallMs  float64 `json:"longestCallMs"`
}

const (
	reconnectDeadline = 30 * time.Second
	reconnectPoll     = 2 * time.Millisecond
)

// AgentRestart lets clients allocate, copy and free, kills the agent several
// times meanwhile, and counts what went wrong. First the clients ask for no
// more than their share has, so that every refusal is a failed call; then for
// more, so that a restarted agent that forgets a charge shows as use over the
// quota.
func AgentRestart(ctx context.Context, o RestartOptions) (Restart, error) {
	if err := o.Validate(); err != nil {
		return Restart{}, err
	}
	if o.Clients == 0 {
		o.Clients = 20
	}
	if o.Restarts == 0 {
		o.Restarts = 3
	}
	if o.Kill == nil {
		o.Kill = func(ctx context.Context) error { return killAgent(ctx, o.Target) }
	}
	report := Restart{Clients: o.Clients, Restarts: 2 * o.Restarts}
	for _, pressed := range []bool{false, true} {
		if err := restartUnder(ctx, o, pressed, &report); err != nil {
			return report, err
		}
	}
	return report, nil
}

func killAgent(ctx context.Context, t Target) error {
	version, err := t.client().Version(ctx)
	if err != nil {
		return fmt.Errorf("find the agent: %w", err)
	}
	if err := syscall.Kill(version.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill agent %d: %w", version.PID, err)
	}
	return nil
}

func restartUnder(ctx context.Context, o RestartOptions, pressed bool, report *Restart) error {
	const each = 32 * mib // a client holds at most
	contextBytes, err := o.contextBytes(ctx)
	if err != nil {
		return err
	}
	account, err := openAccount(ctx, o.SimulatorSocket)
	if err != nil {
		return err
	}
	defer account.close()
	if err := account.awaitEmpty(ctx); err != nil { // of those of the last time
		return err
	}
	clients := uint64(o.Clients)
	quota := clients * (contextBytes + each)
	if pressed {
		quota = clients*contextBytes + clients*each/4
	}
	name := "bench-restart"
	if pressed {
		name += "-pressed"
	}
	share, remove, err := o.share(ctx, name, quota)
	if err != nil {
		return err
	}
	defer remove()
	holders, err := o.spawnAll(ctx, o.Environ(share.Socket), o.Clients)
	defer holders.kill()
	if err != nil {
		return err
	}
	if _, failed := startAll(holders); len(failed) > 0 {
		return fmt.Errorf("start clients: %w", errors.Join(failed...))
	}
	if err := account.reset(ctx); err != nil {
		return err
	}
	for _, h := range holders {
		if _, err := h.Do("churn %d", each); err != nil {
			return err
		}
	}
	for range o.Restarts {
		took, err := restartOnce(ctx, o, share.Name)
		if err != nil {
			return err
		}
		report.ReconnectMs = max(report.ReconnectMs, milliseconds(took))
	}
	for _, h := range holders {
		n, err := h.Numbers("") // ends the churn
		if err != nil {
			return err
		}
		if len(n) != 4 {
			return fmt.Errorf("holder %d: unexpected answer %v", h.PID, n)
		}
		report.Calls += n[0]
		report.FailedCalls += n[1]
		if !pressed {
			report.FailedCalls += n[2]
		}
		report.LongestCallMs = max(report.LongestCallMs, float64(n[3])/1e6)
	}
	peak, err := account.peak(ctx, share.CardUUID)
	if err != nil {
		return err
	}
	if peak > quota {
		report.OverQuotaBytes = max(report.OverQuotaBytes, peak-quota)
	}
	return nil
}

// restartOnce kills the agent and waits until all clients are back.
func restartOnce(ctx context.Context, o RestartOptions, share string) (time.Duration, error) {
	before, err := o.client().Version(ctx)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := o.Kill(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, reconnectDeadline)
	defer cancel()
	tick := time.NewTicker(reconnectPoll)
	defer tick.Stop()
	var last string
	for {
		version, err := o.client().Version(ctx)
		if err == nil && version.PID != before.PID {
			attached, err := o.client().Share(ctx, share)
			if err == nil && attached.Clients == o.Clients {
				return time.Since(start), nil
			}
			last = fmt.Sprintf("%d of %d attached (%v)", attached.Clients, o.Clients, err)
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("the clients did not come back to the agent: %s: %w", last, ctx.Err())
		case <-tick.C:
		}
	}
}

// contextBytes is what a context costs on the first card.
func (t Target) contextBytes(ctx context.Context) (uint64, error) {
	devices, err := t.client().Devices(ctx)
	if err != nil {
		return 0, err
	}
	if len(devices.Cards) == 0 {
		return 0, errors.New("the agent has no GPU")
	}
	return devices.Cards[0].ContextBytes, nil
}
