// SPDX-License-Identifier: Apache-2.0

package gpu

// Activity is whose kernels a card ran lately, by its driver's account.
type Activity struct {
	BusyPercent Fact[float64] // of the time some kernel ran
	Processes   []ProcessActivity
}

// ProcessActivity is how long a process's kernels ran, in percent of the time.
type ProcessActivity struct {
	PID     int
	Percent float64
}

// Percents is that of each process, by number.
func (a Activity) Percents() map[int]float64 {
	of := make(map[int]float64, len(a.Processes))
	for _, p := range a.Processes {
		of[p.PID] = p.Percent
	}
	return of
}
