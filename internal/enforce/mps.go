// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/share"
)

// MPS holds each process of a share by NVIDIA's MPS, on cards whose control daemon
// runs. It holds processes one by one: their sum is the front library's to hold.
type MPS struct {
	folder       string        // has a directory for each card's daemon, by UUID
	lasts        time.Duration // how long an answer of a daemon stands
	environments *process.Environments

	mutex sync.Mutex         // guards said, not what is in it
	said  map[string]*answer // by card
}

// answer is what the daemon of a card said last.
type answer struct {
	mutex sync.Mutex // guards what stands below; held while the daemon is asked
	pid   int        // of the daemon
	at    time.Time
	err   error
}

// answerLasts is short for who looks now and then, and long for who looks at all
// shares at once: to ask is to run a program, and a daemon that hangs takes its time.
const answerLasts = time.Second

var _ interface {
	Enforcer
	Container
} = (*MPS)(nil)

// NewMPS holds shares by the daemons that run in folder. It starts none.
func NewMPS(folder string) *MPS {
	return &MPS{folder: folder, lasts: answerLasts, environments: process.NewEnvironments(process.New("/proc")), said: map[string]*answer{}}
}

// Level is that of MPS.
func (m *MPS) Level() share.Enforcement { return share.EnforcedMPS }

// daemon is that of the share's card. A process has one daemon, which serves one card.
func (m *MPS) daemon(s Share) (*mps.Daemon, error) {
	if len(s.CardUUIDs) > 1 {
		return nil, fmt.Errorf("the share has %d GPUs, and a control daemon serves one", len(s.CardUUIDs))
	}
	return mps.New(mps.Config{UUID: s.CardUUIDs[0], Directory: filepath.Join(m.folder, s.CardUUIDs[0]), Environments: m.environments})
}

func limitsOf(s Share) mps.Limits {
	return mps.Limits{ActiveThreadPercentage: s.ThreadsPercent, PinnedBytes: s.MemoryBytes}
}

// Hold looks whether the card's daemon answers; its clients carry their limits. A
// share without any is under MPS too: other programs may not reach the card.
func (m *MPS) Hold(ctx context.Context, s Share) error { return m.Holds(ctx, s) }

// Offers looks whether the card's daemon answers.
func (m *MPS) Offers(ctx context.Context, cardUUID string) error {
	return m.Holds(ctx, Share{CardUUIDs: []string{cardUUID}})
}

// Serves says whether the card's daemon answers.
func (m *MPS) Serves(ctx context.Context, cardUUID string) bool {
	return m.Offers(ctx, cardUUID) == nil
}

// Holds looks whether the card's daemon answers.
func (m *MPS) Holds(ctx context.Context, s Share) error {
	d, err := m.daemon(s)
	if err == nil {
		err = limitsOf(s).Validate()
	}
	if err == nil {
		err = m.answers(ctx, s.CardUUIDs[0], d)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCannot, err)
	}
	return nil
}

// answers says why the daemon of a card does not answer. One that does not run is
// not asked, nor is one that has just answered.
func (m *MPS) answers(ctx context.Context, card string, d *mps.Daemon) error {
	pid, err := d.PID()
	if err != nil {
		return err
	}
	m.mutex.Lock()
	a := m.said[card]
	if a == nil {
		a = &answer{}
		m.said[card] = a
	}
	m.mutex.Unlock()
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.pid == pid && time.Since(a.at) < m.lasts {
		return a.err
	}
	_, err = d.ActiveThreadPercentage(ctx)
	if ctx.Err() == nil { // else it was not given its time
		a.pid, a.at, a.err = pid, time.Now(), err
	}
	return err
}

// Enter says what the environment of the share's programs is.
func (m *MPS) Enter(_ context.Context, s Share, _ int) ([]string, error) {
	d, err := m.daemon(s)
	if err != nil {
		return nil, err
	}
	return d.ClientEnvironment(nil, limitsOf(s)), nil
}

// Inside says what a container's programs need to be clients of the card's daemon,
// as NVIDIA's device plugin for Kubernetes gives it to them: the folder of the
// daemon's sockets, at the same path, and the environment. Not /dev/shm, which that
// plugin shares as well: it would show the container every other program's.
func (m *MPS) Inside(s Share) (folder string, environment []string, err error) {
	d, err := m.daemon(s)
	if err != nil {
		return "", nil, err
	}
	return d.PipeDirectory(), d.Environment(limitsOf(s)), nil
}

// Admit looks whether a process has the environment that puts it under MPS, and
// whether it would wait for another user's processes.
func (m *MPS) Admit(ctx context.Context, s Share, pid, uid int) error {
	d, err := m.daemon(s)
	if err != nil {
		return err
	}
	status, err := d.Status(ctx)
	if err != nil {
		return err
	}
	if err := d.CheckProcess(ctx, pid, limitsOf(s)); err != nil {
		return outside(err) // it will not connect either
	}
	if err := status.Admit(uid); err != nil {
		return fmt.Errorf("%w: %w", ErrBlocked, err)
	}
	return nil
}

// Verify asks the daemon whether it has the process as a client.
func (m *MPS) Verify(ctx context.Context, s Share, pid int) error {
	d, err := m.daemon(s)
	if err != nil {
		return err
	}
	return outside(d.Verify(ctx, pid, limitsOf(s)))
}

func outside(err error) error {
	if errors.Is(err, mps.ErrNotInForce) {
		return fmt.Errorf("%w of MPS: %w", ErrOutside, err)
	}
	return err
}

// Rest has nothing to let go of.
func (m *MPS) Rest(Share) error { return nil }

// Drop has nothing to undo: limits are in the environment of clients.
func (m *MPS) Drop(context.Context, Share) error { return nil }
