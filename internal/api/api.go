// SPDX-License-Identifier: Apache-2.0

// Package api is the contract between the agent and everything that talks to
// it: the JSON documents, the paths and the error codes of the HTTP interface
// on the agent's unix socket. It holds no behaviour beyond validation.
//
//	GET    /v1/version              Version
//	GET    /v1/devices              Devices
//	GET    /v1/shares               Shares; with ?label=KEY=VALUE, as often as wanted, those that have all of them
//	POST   /v1/shares               ShareSpec -> Share
//	PUT    /v1/shares/{name}        ShareSpec -> Share: 201 made, 200 there already as asked for
//	GET    /v1/shares/{name}        Share
//	PATCH  /v1/shares/{name}        ShareChange -> Share
//	DELETE /v1/shares/{name}        -> 204; refused while processes are attached, unless ?force=1
//	POST   /v1/shares/{name}/enter  -> Entry; puts the asking process under the share
//	POST   /v1/shares/{name}/hold   keeps an ephemeral share alive while the connection is open; with
//	                                ?run=1 as the connection of a run does
//	POST   /v1/runs                 RunSpec -> Run, then a stream of Notice; all that a command needs to
//	                                run under a share, which is held while the connection is open
//	GET    /v1/runs/notices         Notices: what runs that the asking process holds have been told
//	GET    /v1/instances            Instances; ?label= as above
//	PUT    /v1/instances/{name}     InstanceSpec -> Instance: 201 made, 200 there already as asked for
//	DELETE /v1/instances/{name}     -> 204; refused while a program uses it
//	GET    /v1/clients              Clients; ?label= as above, of their shares
//	GET    /v1/snapshot             Snapshot; with ?follow=1 a stream of them, one per line
//	GET    /metrics                 the same for Prometheus
//	GET    /v1/events?since=N       Events; with &follow=1 a stream, one Event per line; &label= as above
//
// Errors come as Error with the matching HTTP status.
package api

import (
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/share"
)

// Schema names of the documents; fields are only ever added to a version.
const (
	SchemaVersion = "divvy.version/v1"
	SchemaCordon  = "divvy.cordon/v1"
	SchemaDevices = "divvy.devices/v1"
	SchemaShares  = "divvy.shares/v1"
	SchemaClients = "divvy.ps/v1"
	SchemaEvents  = "divvy.events/v1"

	SchemaInstances = "divvy.instances/v1"
)

// Code says what kind of failure an Error is; the command line maps it to an
// exit code.
type Code string

const (
	CodeUsage       Code = "usage"       // the request makes no sense: exit 2
	CodeNotFound    Code = "not-found"   // no such share or card: exit 3
	CodeNotAllowed  Code = "not-allowed" // over a bound, not yours: exit 4
	CodeExists      Code = "exists"      // a share or instance of that name is there, and another one: exit 4
	CodeNoRoom      Code = "no-room"     // less is left than is asked for: exit 4
	CodeUnavailable Code = "unavailable" // the agent cannot do it now: exit 5
)

// Error is the body of every failed request.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // an exact command or change that helps
	// Missing is how much more would have to be left; with CodeNoRoom alone.
	Missing *Missing `json:"missing,omitempty"`
	// Differs are the fields in which what exists is not as asked for; with
	// CodeExists alone.
	Differs []string `json:"differs,omitempty"`
	// Leaving is true when the agent is on its way out: ask the one that comes next.
	Leaving bool `json:"leaving,omitempty"`
	// Busy is true when nothing was read of the request, for who asks has too many
	// connections: ask again.
	Busy bool `json:"busy,omitempty"`
}

// Missing is what a card would have to have left besides for what was asked of it. Where
// no card was named it is that of the card that has the most left.
type Missing struct {
	MemoryBytes  uint64 `json:"memoryBytes,omitempty"`
	CoresPercent int    `json:"coresPercent,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Version answers GET /v1/version.
type Version struct {
	Schema  string `json:"schema"`
	Version string `json:"version"`
	Wire    int    `json:"wire"` // of the pages and messages shared with the front library
	PID     int    `json:"pid"`
	// Life is another one each time that an agent starts.
	Life      string `json:"life"`
	Simulated bool   `json:"simulated"`
	// DriverDirectory holds the driver that the processes of a share use, and
	// Simulator is the socket of the simulator behind it, if it is a stand-in.
	DriverDirectory string `json:"driverDirectory,omitempty"`
	Simulator       string `json:"simulator,omitempty"`
}

// Card is one physical or simulated GPU.
type Card struct {
	UUID            string `json:"uuid"` // GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx
	Name            string `json:"name"`
	PCIAddress      string `json:"pciAddress"`
	Simulated       bool   `json:"simulated"`
	DriverVersion   string `json:"driverVersion"`
	MemoryBytes     uint64 `json:"memoryBytes"`     // usable, as the driver reports it
	UsedBytes       uint64 `json:"usedBytes"`       // by the driver's own account
	BookedBytes     uint64 `json:"bookedBytes"`     // promised to shares with a memory quota
	FreeToBookBytes uint64 `json:"freeToBookBytes"` // what a new share can still be promised
	ContextBytes    uint64 `json:"contextBytes"`    // overhead of one context
	CoresBooked     int    `json:"coresBooked"`     // percent promised by fixed shares
	Shares          int    `json:"shares"`          // on this card
	UnledgeredBytes uint64 `json:"unledgeredBytes"` // held by processes on no ledger, or past theirs
	DriftBytes      int64  `json:"driftBytes"`      // driver's figure minus ledger, attached processes
	Health          string `json:"health"`          // ok, degraded, unshareable, needs-reset, lost; empty: not looked at yet
	HealthDetail    string `json:"healthDetail,omitempty"`
	// What a scheduler chooses by. Enforcement is the strongest level that a new share with
	// a quota would get. Cards of one Island are linked (NVLink), directly or by others.
	Enforcement  share.Enforcement `json:"enforcement,omitempty"`
	Architecture string            `json:"architecture,omitempty"` // Hopper; absent: unknown
	NUMANode     *int              `json:"numaNode,omitempty"`     // absent: unknown
	PCIeRoot     string            `json:"pcieRoot,omitempty"`     // pci0000:c0; empty: unknown
	Island       *int              `json:"island,omitempty"`
	MIG          string            `json:"mig,omitempty"`          // on, off, when the agent began; absent: the card has none
	MemoryShared bool              `json:"memoryShared,omitempty"` // it is the host's
	// Time is what became of the card's time while launches needed leases; nil: they
	// never did.
	Time *CardTime `json:"time,omitempty"`
	// Cordon keeps new shares off the card; nil: none does.
	Cordon *Cordon `json:"cordon,omitempty"`
}

// Cordon keeps new shares off a card; what is on it goes on.
type Cordon struct {
	Since     time.Time `json:"since"`
	Reason    string    `json:"reason"`
	UID       *int      `json:"uid"`       // who did it; null: a fault
	Automatic bool      `json:"automatic"` // a fault did
	Class     string    `json:"class"`     // of that fault; empty: none did, or it is not known any more
	// LiftSeconds is for how long the card must have been well until an automatic one ends;
	// 0: by hand only.
	LiftSeconds float64 `json:"liftSeconds"`
}

// Cordoned answers a change of one.
type Cordoned struct {
	Schema   string  `json:"schema"`
	CardUUID string  `json:"cardUuid"`
	Cordon   *Cordon `json:"cordon"` // null: there is none
}

// CordonRequest asks for one: PUT /v1/devices/{uuid}/cordon. DELETE ends it.
type CordonRequest struct {
	Reason string `json:"reason,omitempty"`
}

// CardTime is what became of a card's time while launches needed leases. All of it is
// charged to shares, or idle.
type CardTime struct {
	AtNs      uint64   `json:"atNs"` // CLOCK_MONOTONIC of the host: when that was so
	PassedNs  uint64   `json:"passedNs"`
	ChargedNs uint64   `json:"chargedNs"`
	Idle      IdleTime `json:"idle"`
}

// IdleTime is for how long a card had nothing to do, by cause.
type IdleTime struct {
	UnwantedNs    uint64 `json:"unwantedNs"`    // no share wanted it
	IneligibleNs  uint64 `json:"ineligibleNs"`  // the shares that wanted it had used up their parts
	RemainderNs   uint64 `json:"remainderNs"`   // the next share waited for work that had ended
	AgentLateNs   uint64 `json:"agentLateNs"`   // the next share's lease came late: the host did not let the agent run
	ProcessLateNs uint64 `json:"processLateNs"` // its first launch came late: the host did not let its process run
	RanDryNs      uint64 `json:"ranDryNs"`      // the share that had the card launched too little
}

// Devices answers GET /v1/devices.
type Devices struct {
	Schema    string `json:"schema"`
	Simulated bool   `json:"simulated"`
	Cards     []Card `json:"cards"`
	// Unresponsive are the cards whose driver does not answer, by UUID: what is said of
	// them is from before.
	Unresponsive []string `json:"unresponsive,omitempty"`
}

// ShareSpec asks for a share.
type ShareSpec struct {
	Name         string            `json:"name,omitempty"`         // empty: the agent makes one up
	GPU          string            `json:"gpu,omitempty"`          // UUID, its prefix, PCI address, or several after commas; empty: most free
	GPUs         int               `json:"gpus,omitempty"`         // how many; 0: one, or those that are named. What follows is of each
	Among        []string          `json:"among,omitempty"`        // UUIDs of the GPUs to choose from; empty: all. Not kept
	MemoryBytes  uint64            `json:"memoryBytes,omitempty"`  // 0: the card, without a promise
	CoresPercent int               `json:"coresPercent,omitempty"` // 0: 100
	Policy       share.Policy      `json:"policy,omitempty"`       // empty: best-effort, fixed when cores are given
	Weight       int               `json:"weight,omitempty"`
	Priority     int               `json:"priority,omitempty"`
	Tenant       string            `json:"tenant,omitempty"`
	Labels       share.Labels      `json:"labels,omitempty"`
	Enforce      share.Enforcement `json:"enforce,omitempty"` // at least this level, or refuse
	// ThreadsPercent is the most of a card's processors that each of its processes
	// gets at once, by MPS; 0: no limit.
	ThreadsPercent int  `json:"threadsPercent,omitempty"`
	Exclusive      bool `json:"exclusive,omitempty"` // no other share on its GPUs; without what promises a part
	Ephemeral      bool `json:"ephemeral,omitempty"` // goes with its last holder and client
	// Whose processes may attach, besides the owner's and root's: everybody's, or
	// one user's. A share that an administrator declares without JoinUID is open.
	Open    bool `json:"open,omitempty"`
	JoinUID *int `json:"joinUid,omitempty"`
}

// ShareChange changes a share in place; nil fields stay.
type ShareChange struct {
	MemoryBytes  *uint64       `json:"memoryBytes,omitempty"`
	CoresPercent *int          `json:"coresPercent,omitempty"`
	Policy       *share.Policy `json:"policy,omitempty"`
	Weight       *int          `json:"weight,omitempty"`
	Priority     *int          `json:"priority,omitempty"`
	Paused       *bool         `json:"paused,omitempty"`
}

// Share is a named promise on a card and what became of it, or on several: then figures
// are sums over them.
type Share struct {
	ShareSpec
	CardUUID       string            `json:"cardUuid"` // of the first
	CardName       string            `json:"cardName"`
	Socket         string            `json:"socket"`                   // where its processes attach
	Enforcement    share.Enforcement `json:"enforcement"`              // in force
	EnforcementWhy string            `json:"enforcementWhy,omitempty"` // why no stronger level is
	MPS            *MPS              `json:"mps,omitempty"`            // absent: it is not held by MPS
	State          string            `json:"state"`                    // active, paused, shrinking
	LimitBytes     uint64            `json:"limitBytes"`               // the quota, or the card's total
	UsedBytes      uint64            `json:"usedBytes"`
	ContextBytes   uint64            `json:"contextBytes"` // part of usedBytes
	PeakBytes      uint64            `json:"peakBytes"`
	Clients        int               `json:"clients"`
	Denials        uint64            `json:"denials"`
	Launches       uint64            `json:"launches"`
	CardTimeNs     uint64            `json:"cardTimeNs"`   // that its processes used, as they measured it
	CardTimeAtNs   uint64            `json:"cardTimeAtNs"` // until when: CLOCK_MONOTONIC of the host
	WaitNs         uint64            `json:"waitNs"`       // that their launches waited for a lease
	Overruns       uint64            `json:"overruns"`     // how often its work outlasted a lease for so long that others went on beside it
	Created        time.Time         `json:"created"`
	OwnerUID       int               `json:"ownerUid"` // besides root, may change and delete it
	// Cards are those of a share of several, by their number inside the share. Absent: it
	// has one.
	Cards []ShareCard `json:"cards,omitempty"`
}

// CardUUIDs lists the cards of a share by number.
func (s Share) CardUUIDs() []string {
	if len(s.Cards) == 0 {
		return []string{s.CardUUID}
	}
	var uuids []string
	for _, c := range s.Cards {
		uuids = append(uuids, c.CardUUID)
	}
	return uuids
}

// ShareCard is one card of a share and what became of it. The fields are those of Share.
type ShareCard struct {
	CardUUID     string `json:"cardUuid"`
	CardName     string `json:"cardName"`
	Health       string `json:"health"` // of the card, as devices have it
	LimitBytes   uint64 `json:"limitBytes"`
	UsedBytes    uint64 `json:"usedBytes"`
	ContextBytes uint64 `json:"contextBytes"`
	PeakBytes    uint64 `json:"peakBytes"`
	Denials      uint64 `json:"denials"`
	Launches     uint64 `json:"launches"`
	CardTimeNs   uint64 `json:"cardTimeNs"`
	WaitNs       uint64 `json:"waitNs"`
	Overruns     uint64 `json:"overruns"`
}

// MPS is what programs need to be held by MPS that come to a share past `divvy run`,
// as in containers.
type MPS struct {
	PipeDirectory string   `json:"pipeDirectory"` // of the card's control daemon
	Environment   []string `json:"environment"`
}

// Shares answers GET /v1/shares.
type Shares struct {
	Schema    string  `json:"schema"`
	Simulated bool    `json:"simulated"`
	Shares    []Share `json:"shares"`
	// Unresponsive are the cards whose driver does not answer, by UUID: what is said of
	// them is from before.
	Unresponsive []string `json:"unresponsive,omitempty"`
}

// InstanceSpec asks for a MIG instance of a GPU in MIG mode, made for who asks, or for a MIG device
// that is there and stays. Its name is of the same kind as a share's.
type InstanceSpec struct {
	Name    string       `json:"name,omitempty"`   // that of the path
	GPU     string       `json:"gpu"`              // UUID
	Device  string       `json:"device,omitempty"` // UUID (MIG-...) of one that is there; absent: it is made
	Profile string       `json:"profile"`          // 1g.5gb; of one that is there it may be absent
	Start   *int         `json:"start,omitempty"`  // placement unit; absent: where it leaves the most room
	Labels  share.Labels `json:"labels,omitempty"`
}

// Instance is a MIG instance that was made for somebody; it lasts until it is deleted, over
// restarts of the agent. One that a reset or a reboot has taken is made anew by the next PUT.
type Instance struct {
	InstanceSpec
	Devices   []string `json:"devices"`             // UUIDs (MIG-...) by which programs ask for it
	CDIDevice string   `json:"cdiDevice,omitempty"` // for container runtimes; absent: the agent writes no CDI files
}

// Instances answers GET /v1/instances.
type Instances struct {
	Schema    string     `json:"schema"`
	Instances []Instance `json:"instances"`
	// Cards are the GPUs in MIG mode; nil: their driver does not answer.
	Cards []MIGCard `json:"cards"`
}

// MIGCard is what MIG instances a GPU has, and which it can have.
type MIGCard struct {
	CardUUID string       `json:"cardUuid"`
	Units    int          `json:"units"` // placement units
	All      MIGAmounts   `json:"all"`
	Profiles []MIGProfile `json:"profiles"`
	Has      []MIGPart    `json:"has"`
}

// MIGAmounts is what instances take of a GPU besides placement units.
type MIGAmounts struct {
	Slices   int `json:"slices"` // of compute
	Decoders int `json:"decoders"`
	Encoders int `json:"encoders"`
	JPEG     int `json:"jpeg"`
	OFA      int `json:"ofa"`
}

// MIGProfile is one kind of instance.
type MIGProfile struct {
	Name        string     `json:"name"`
	MemoryBytes uint64     `json:"memoryBytes"`
	Takes       MIGAmounts `json:"takes"`
	Size        int        `json:"size"`   // placement units
	Starts      []int      `json:"starts"` // that it may have
	Most        int        `json:"most"`   // of them on a GPU
}

// MIGPart is an instance that a GPU has.
type MIGPart struct {
	Profile string   `json:"profile"`
	Start   int      `json:"start"`
	Devices []string `json:"devices"`
	Name    string   `json:"name,omitempty"` // of the Instance that it was made as; absent: somebody else made it
}

// Client is one process attached to a share, or one that died and whose memory
// the driver has not released yet.
type Client struct {
	PID          int          `json:"pid"`
	UID          int          `json:"uid"`
	Command      string       `json:"command"`
	Share        string       `json:"share"`
	Labels       share.Labels `json:"labels,omitempty"` // of the share
	CardUUID     string       `json:"cardUuid"`         // the first of its share's
	State        string       `json:"state"`            // attached, detached (lives on without its socket), dead (driver still holds memory)
	UsedBytes    uint64       `json:"usedBytes"`
	ContextBytes uint64       `json:"contextBytes"`
	DriverBytes  *uint64      `json:"driverBytes,omitempty"` // by the driver's account, where it tells
	Allocations  uint64       `json:"allocations"`
	Denials      uint64       `json:"denials"`
	Launches     uint64       `json:"launches"`
	Since        time.Time    `json:"since"`
	// Enforcement is what holds this process; weaker than its share's when it came
	// past what holds that, as from a container.
	Enforcement share.Enforcement `json:"enforcement"`
	// Cards are what it holds of each card of a share of several, by number; the figures
	// above are sums over them. Absent: the share has one.
	Cards []ClientCard `json:"cards,omitempty"`
}

// ClientCard is what a client holds of one card. The fields are those of Client.
type ClientCard struct {
	CardUUID     string  `json:"cardUuid"`
	UsedBytes    uint64  `json:"usedBytes"`
	ContextBytes uint64  `json:"contextBytes"`
	DriverBytes  *uint64 `json:"driverBytes,omitempty"`
	Allocations  uint64  `json:"allocations"`
	Launches     uint64  `json:"launches"`
}

// Entry answers POST /v1/shares/{name}/enter: the process that asked, and what it
// starts from then on, is under the share. Programs it starts need Environment,
// besides what leads them to the front library.
type Entry struct {
	Enforcement share.Enforcement `json:"enforcement"`
	Environment []string          `json:"environment,omitempty"`
	Why         string            `json:"why,omitempty"` // it is held less than the share
}

// RunSpec asks for what a command needs to run under a share: a declared one, or a new
// one.
type RunSpec struct {
	Share string     `json:"share,omitempty"` // the name of the declared one
	New   *ShareSpec `json:"new,omitempty"`
}

// Run answers POST /v1/runs. The process that asked is under the share.
type Run struct {
	Version Version `json:"version"`
	Share   Share   `json:"share"`
	Entry   Entry   `json:"entry"`
}

// Notice tells a run that a process of it uses the GPU and is held less than its share.
type Notice struct {
	PID      int               `json:"pid"`
	Start    uint64            `json:"start"` // in clock ticks since boot: tells it from a later one with its number
	Command  string            `json:"command"`
	Bytes    uint64            `json:"bytes"`
	Level    share.Enforcement `json:"level"`              // that it is held at
	Demanded share.Enforcement `json:"demanded,omitempty"` // that the share demands and this is not; the run is to end
}

// Notices answers GET /v1/runs/notices: a run whose command has ended asks what was seen
// of it, as the stream of them may lag behind.
type Notices struct {
	Notices []Notice `json:"notices"`
}

// Clients answers GET /v1/clients.
type Clients struct {
	Schema    string   `json:"schema"`
	Simulated bool     `json:"simulated"`
	Clients   []Client `json:"clients"`
	// Unresponsive are the cards whose driver does not answer, by UUID: what is said of
	// them is from before.
	Unresponsive []string `json:"unresponsive,omitempty"`
}

// Event is one thing that happened.
type Event struct {
	Sequence uint64       `json:"sequence"`
	Time     time.Time    `json:"time"`
	Kind     event.Kind   `json:"kind"`
	Share    string       `json:"share,omitempty"`
	Labels   share.Labels `json:"labels,omitempty"` // of the share
	CardUUID string       `json:"cardUuid,omitempty"`
	PID      int          `json:"pid,omitempty"`
	UID      *int         `json:"uid,omitempty"` // whose the process is, of memory that no ledger knows
	Bytes    uint64       `json:"bytes,omitempty"`
	XID      uint64       `json:"xid,omitempty"`   // of card-fault
	Class    string       `json:"class,omitempty"` // of card-fault, and of a cordon that one made
	Life     string       `json:"life,omitempty"`  // of the agent that told it, as in Version
	Message  string       `json:"message"`
}

// LookHeader says of a GET that who asks only looks: that keeps no private agent.
const LookHeader = "Divvy-Look"

// LifeHeader says the agent's life beside a stream of events.
const LifeHeader = "Divvy-Life"

// Events answers GET /v1/events without follow.
type Events struct {
	Schema string  `json:"schema"`
	Life   string  `json:"life"` // as in Version
	Events []Event `json:"events"`
}
