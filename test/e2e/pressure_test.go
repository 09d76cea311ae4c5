// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/bench"
)

// fromEnvironment is a number that make sets: short for test, long for soak.
func fromEnvironment(t testing.TB, name string, standard int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, text)
	}
	return number
}

// Every round has exactly one winner: never two, never none.
func TestRacesForTheLastRoom(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	rounds := fromEnvironment(t, "DIVVY_RACE_ROUNDS", 5000)
	h.resetPeak(t)
	report, err := bench.Races(t.Context(), bench.RacesOptions{Target: h.Target, Rounds: rounds})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
	if report.Rounds != rounds || report.One != rounds || report.None+report.More+report.Errors != 0 {
		t.Errorf("%+v: want one winner in each round", report)
	}
	if quota := 2*contextBytes + 3*mib; h.peak(t) > quota {
		t.Errorf("the driver saw %d bytes in use, quota %d", h.peak(t), quota)
	}
	t.Run("four racers", func(t *testing.T) {
		report, err := bench.Races(t.Context(), bench.RacesOptions{Target: h.Target, Rounds: rounds / 50, Racers: 4, Bytes: 8 * mib})
		if err != nil {
			t.Fatal(err)
		}
		if report.One != rounds/50 {
			t.Errorf("%+v: want one winner in each round", report)
		}
	})
	t.Run("control", func(t *testing.T) {
		report, err := bench.Races(t.Context(), bench.RacesOptions{Target: h.Target, Rounds: 200, Unheld: true})
		if err != nil {
			t.Fatal(err)
		}
		if report.More != 200 {
			t.Errorf("%+v: without the front all racers win each round", report)
		}
	})
}

func TestRecovery(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	report, err := bench.Recovery(t.Context(), bench.RecoveryOptions{Target: h.Target, Rounds: 10, Restarts: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
	if report.EarlyGrants != 0 {
		t.Errorf("%d grants before the driver had released the memory", report.EarlyGrants)
	}
	if report.AgentRestart.FailedCalls != 0 || report.AgentRestart.OverQuotaBytes != 0 || report.AgentRestart.Calls == 0 {
		t.Errorf("agent restarted: %+v, want no failed call and nothing over the quota", report.AgentRestart)
	}
}

// What an allocation waits for an agent that has gone, in ms.
const patienceMs = 3000

// Supervisor and worker die together: somebody starts the agent anew, and the
// clients come back to it. A busy host may start it later than an allocation waits.
func TestWholeAgentKilled(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	for range 5 {
		report, err := bench.AgentRestart(t.Context(), bench.RestartOptions{Target: h.Target, Restarts: 1,
			Kill: func(context.Context) error {
				h.killAgent(t)
				h.startAgent(t)
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", report)
		if report.OverQuotaBytes != 0 || report.Calls == 0 {
			t.Fatalf("%+v, want nothing over the quota", report)
		}
		if report.FailedCalls == 0 {
			return
		}
		if report.LongestCallMs < patienceMs {
			t.Fatalf("%+v, want no failed call while the agent is away for less than 3 s", report)
		}
	}
	t.Error("the agent was away for more than 3 s each time")
}

func TestManyProcessesAttachAtOnce(t *testing.T) {
	h := newHost(t, hostOptions{cards: "H100-80GB"})
	report, err := bench.Storm(t.Context(), bench.StormOptions{Target: h.Target, Clients: fromEnvironment(t, "DIVVY_STORM_CLIENTS", 300)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
	if report.Failed != 0 || report.Attached != report.Clients {
		t.Errorf("%+v: want all attached", report)
	}
}

// A program that starts while the agent is being started again by its
// supervisor waits for it, and does not fail.
func TestAttachWhileTheAgentRestarts(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "newcomers", 1024*mib)
	for range 4 {
		// Greeted already: it attaches at once when told.
		newcomer := h.holder(t, share)
		worker, err := h.client.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		do(t, newcomer, "start")
		alloc(t, newcomer, mib)
		newcomer.Kill()
	}
}
