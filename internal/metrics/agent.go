// SPDX-License-Identifier: Apache-2.0

package metrics

func agentMetrics() []metric {
	one := func(value func(*reading) float64) func(*reading, emit) {
		return func(r *reading, emit emit) { emit(value(r)) }
	}
	by := func(counts func(*reading) map[string]uint64) func(*reading, emit) {
		return func(r *reading, emit emit) {
			for what, n := range inOrder(counts(r)) {
				emit(float64(n), what)
			}
		}
	}
	return []metric{
		{"agent_info", "Which agent it is; always 1.", []string{"version"}, fromAgent, func(r *reading, emit emit) { emit(1, r.Agent.Version) }},
		{"agent_clients", "Processes attached to shares.", nil, fromCore, one(func(r *reading) float64 { return float64(r.Agent.Clients) })},
		{"agent_events_total", "Events, as far as they are kept.", []string{"kind"}, fromEvents, by(func(r *reading) map[string]uint64 { return r.Agent.Events })},
		{"agent_api_requests_total", "Requests that were answered, by HTTP status.", []string{"code"}, fromAgent,
			by(func(r *reading) map[string]uint64 { return r.Agent.Requests })},
		{"agent_turns_total", "Turns of the agent's loop: all who ask it for something wait while one takes.", nil, fromAgent,
			one(func(r *reading) float64 { return float64(r.Agent.Turns.Count) })},
		{"agent_turns_long_total", "Of them, those that took longer than a millisecond.", nil, fromAgent, one(func(r *reading) float64 { return float64(r.Agent.Turns.Long) })},
		{"agent_turn_longest_seconds", "How long the longest of them took since the agent began.", nil, fromAgent,
			one(func(r *reading) float64 { return float64(r.Agent.Turns.LongestNs) / 1e9 })},
		{"journal_failed", "Whether the journal cannot be written.", nil, fromAgent, one(func(r *reading) float64 { return truth(r.Agent.JournalFailed) })},
		{"events_failed", "Whether events cannot be kept for the next agent.", nil, fromAgent, one(func(r *reading) float64 { return truth(r.Agent.EventsFailed) })},
		{"usage_failed", "Whether usage cannot be written.", nil, fromAgent, one(func(r *reading) float64 { return truth(r.Agent.UsageFailed) })},
		{"usage_committed_timestamp_seconds", "When usage was written last.", nil, fromAgent, func(r *reading, emit emit) {
			if at := r.Agent.UsageWritten; at != nil {
				emit(float64(at.UnixNano()) / 1e9)
			}
		}},
		{"history_failed", "Whether the history of figures cannot be written.", nil, fromAgent, one(func(r *reading) float64 { return truth(r.Agent.HistoryFailed) })},
		{"history_bytes", "How large the files of that history are.", nil, fromAgent, func(r *reading, emit emit) {
			if n := r.Agent.HistoryBytes; n != nil {
				emit(float64(*n))
			}
		}},
		{"audit_failed", "Whether who did what cannot be written.", nil, fromAgent, one(func(r *reading) float64 { return truth(r.Agent.AuditFailed) })},
		{"audit_sequence", "Number of the last line of the audit: it never falls.", nil, fromAgent, func(r *reading, emit emit) {
			if n := r.Agent.AuditSequence; n != nil {
				emit(float64(*n))
			}
		}},
		{"snapshot_timestamp_seconds", "When what this scrape shows was measured.", nil, fromSampler,
			one(func(r *reading) float64 { return float64(r.Time.UnixNano()) / 1e9 })},
	}
}
