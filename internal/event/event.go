// SPDX-License-Identifier: Apache-2.0

// Package event names the kinds of events that an agent tells of. Each stands in
// docs/events.md with what it means; programs depend on them, so none is renamed and
// none changes its meaning.
package event

// Kind is what an event is about.
type Kind string

// Of shares.
const (
	ShareCreated       Kind = "share-created"
	ShareChanged       Kind = "share-changed"
	SharePaused        Kind = "share-paused"
	ShareResumed       Kind = "share-resumed"
	ShareShrinking     Kind = "share-shrinking"
	ShareShrunk        Kind = "share-shrunk"
	ShrinkOverdue      Kind = "shrink-overdue"
	ShareRevoked       Kind = "share-revoked"
	ShareDeleted       Kind = "share-deleted"
	EnforcementChanged Kind = "enforcement-changed"
	ShareLost          Kind = "share-lost"
)

// Of programs.
const (
	ClientAttached     Kind = "client-attached"
	ClientLeft         Kind = "client-left"
	Denied             Kind = "denied"
	ClientDetached     Kind = "client-detached"
	ClientReturned     Kind = "client-returned"
	ClientMissing      Kind = "client-missing"
	ClientRefused      Kind = "client-refused"
	NotEnforced        Kind = "not-enforced"
	ClientBroken       Kind = "client-broken"
	MemoryHeld         Kind = "memory-held"
	DriverOutOfMemory  Kind = "driver-out-of-memory"
	UnclassifiedSymbol Kind = "unclassified-symbol"
	CardHidden         Kind = "card-hidden"
	CardsForeign       Kind = "cards-foreign"
	NoDriver           Kind = "no-driver"
	FrontOpenedItself  Kind = "front-opened-itself"
	ClientStuck        Kind = "client-stuck"
)

// Of cards and of the agent.
const (
	UnledgeredMemory      Kind = "unledgered-memory"
	DriverBlind           Kind = "driver-blind"
	LeaseOverrun          Kind = "lease-overrun"
	CardFault             Kind = "card-fault"
	CardLost              Kind = "card-lost"
	CardNeedsReset        Kind = "card-needs-reset"
	CardDegraded          Kind = "card-degraded"
	CardUnshareable       Kind = "card-unshareable"
	CardUnresponsive      Kind = "card-unresponsive"
	CardWell              Kind = "card-well"
	CardCordoned          Kind = "card-cordoned"
	CardUncordoned        Kind = "card-uncordoned"
	ShareUnusable         Kind = "share-unusable"
	ShareUsable           Kind = "share-usable"
	DriverAway            Kind = "driver-away"
	AgentRecovered        Kind = "agent-recovered"
	ContainerDeviceFailed Kind = "container-device-failed"
	JournalCut            Kind = "journal-cut"
	JournalFailed         Kind = "journal-failed"
	JournalWritten        Kind = "journal-written"
	JournalSlow           Kind = "journal-slow"
	UsageFailed           Kind = "usage-failed"
	UsageWritten          Kind = "usage-written"
	HistoryFailed         Kind = "history-failed"
	HistoryWritten        Kind = "history-written"
	HistoryCut            Kind = "history-cut"
	AuditFailed           Kind = "audit-failed"
	AuditWritten          Kind = "audit-written"
	EventsDropped         Kind = "events-dropped"
)

// Kinds lists all of them, as docs/events.md does.
func Kinds() []Kind {
	return []Kind{
		ShareCreated, ShareChanged, SharePaused, ShareResumed, ShareShrinking, ShareShrunk, ShrinkOverdue, ShareRevoked, ShareDeleted,
		EnforcementChanged, ShareLost,
		ClientAttached, ClientLeft, Denied, ClientDetached, ClientReturned, ClientMissing, ClientRefused, NotEnforced, ClientBroken,
		MemoryHeld, DriverOutOfMemory, UnclassifiedSymbol, CardHidden, CardsForeign, NoDriver, FrontOpenedItself, ClientStuck,
		UnledgeredMemory, DriverBlind, LeaseOverrun, CardFault, CardLost, CardNeedsReset, CardDegraded, CardUnshareable,
		CardUnresponsive, CardWell, CardCordoned, CardUncordoned,
		ShareUnusable, ShareUsable, DriverAway, AgentRecovered, ContainerDeviceFailed, JournalCut, JournalFailed, JournalWritten, JournalSlow,
		UsageFailed, UsageWritten, HistoryFailed, HistoryWritten, HistoryCut, AuditFailed, AuditWritten,
		EventsDropped,
	}
}
