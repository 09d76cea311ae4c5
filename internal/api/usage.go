// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// SchemaUsageHours names the document of GET /v1/usage.
const SchemaUsageHours = "divvy.usage.hours/v1"

// UsageHours answers GET /v1/usage?from=TIME&to=TIME, at most 31 days: the hours that begin
// within.
type UsageHours struct {
	Schema string      `json:"schema"`
	Rows   []UsageHour `json:"rows"`
	Cards  []UsageCard `json:"cards"`
	Gaps   []UsageGap  `json:"gaps"`
}

// UsageHour is what a share booked and used of a GPU within an hour. Shares of divvy run without
// a name are added up as "-".
type UsageHour struct {
	Hour            time.Time `json:"hour"`
	Share           string    `json:"share"`
	Tenant          string    `json:"tenant"`
	OwnerUID        int       `json:"ownerUid"`
	CardUUID        string    `json:"cardUuid"`
	Ms              int64     `json:"ms"` // that it was there
	BookedKiBMs     int64     `json:"bookedKiBMs"`
	BookedPercentMs int64     `json:"bookedPercentMs"`
	UsedKiBMs       int64     `json:"usedKiBMs"`
	CardTimeNs      int64     `json:"cardTimeNs"`
	WaitNs          int64     `json:"waitNs"`
	EnergyUJ        int64     `json:"energyUJ"`
}

// UsageCard is a GPU within an hour.
type UsageCard struct {
	Hour      time.Time `json:"hour"`
	UUID      string    `json:"uuid"`
	Model     string    `json:"model"`
	MemoryKiB int64     `json:"memoryKiB"`
	Ms        int64     `json:"ms"` // that it was there
	EnergyUJ  int64     `json:"energyUJ"`
}

// UsageGap is a time for which no agent was there.
type UsageGap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}
