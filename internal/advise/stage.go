// SPDX-License-Identifier: Apache-2.0

package advise

import "fmt"

// Needs are what a stage of a model's life needs of cards and frees on them.
type Needs struct {
	Stage string `json:"stage"`
	Needs string `json:"needs"`
	Frees string `json:"frees"`
	How   string `json:"how"`
	// Checkpoint is how long one takes, where its size is known.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// Checkpoint is what is written to a disk, and how long that takes.
type Checkpoint struct {
	Bytes          float64 `json:"bytes"`
	Of             string  `json:"of"`
	BytesPerSecond float64 `json:"bytesPerSecond"`
	Seconds        float64 `json:"seconds"`
	Pause          bool    `json:"pause"` // pausing the share meanwhile gives others time
}

// stageNeeds are printed with every advice on a stage.
var stageNeeds = map[string]Needs{
	"pretrain": {Stage: "pretrain", Needs: "whole GPUs with their link, all or none",
		Frees: "nothing", How: "a partition file without divisions; a scheduler that starts all processes or none (a gang)"},
	"finetune": {Stage: "finetune", Needs: "a part as large as the estimate says; several jobs side by side",
		Frees: "the rest of the GPU", How: "divvy share create NAME --mem ESTIMATE --policy weighted"},
	"validate": {Stage: "validate", Needs: "priority over batch jobs beside it, and memory that is promised",
		Frees: "the GPU's time between requests", How: "divvy share create NAME --mem ESTIMATE --priority 10"},
	"serve": {Stage: "serve", Needs: "priority over batch jobs beside it, and memory that is promised",
		Frees: "the GPU's time between requests", How: "divvy share create NAME --mem ESTIMATE --priority 10"},
	"checkpoint": {Stage: "checkpoint", Needs: "its memory, and none of the GPU's time",
		Frees: "the GPU's time while bytes go to the disk", How: "divvy share pause NAME, divvy share resume NAME; not for less than a turn of 10 ms"},
	"wait": {Stage: "wait", Needs: "nothing until somebody answers",
		Frees: "the GPU's time; the memory stays taken", How: "divvy share pause NAME, divvy share resume NAME"},
}

// NeedsOf is what a stage needs, as far as this version can give it.
func NeedsOf(stage string, built Built) Needs {
	n := stageNeeds[stage]
	if stage == "wait" && built.Movable {
		n.Frees, n.How = "the GPU's time and its memory", "divvy share freeze NAME, divvy share thaw NAME"
	}
	return n
}

// stageWorkload is what a stage counts as where no workload is given.
var stageWorkload = map[string]string{"pretrain": "train", "finetune": "finetune", "validate": "small-serve", "serve": "small-serve", "checkpoint": "train", "wait": "notebook"}

// contradict says that a workload is not at such a stage.
func contradict(stage, workload string) bool {
	serving := workload == "small-serve" || workload == "large-serve" || workload == "edge"
	switch stage {
	case "pretrain":
		return workload != "train"
	case "finetune":
		return workload != "finetune" && workload != "train"
	case "serve", "validate":
		return !serving && workload != "ci" && workload != "finetune" && workload != "train"
	case "checkpoint":
		return workload != "train" && workload != "finetune"
	}
	return false
}

// Step is one stage of a job with what is known of it.
type Step struct {
	Stage       string   `json:"stage"`
	Start       float64  `json:"startSeconds"` // after the job's
	Seconds     float64  `json:"seconds"`      // 0: it has no end of its own
	From        string   `json:"from,omitempty"`
	Cards       int      `json:"cards"`
	Bytes       uint64   `json:"bytes"`       // of memory on each card
	OthersBytes uint64   `json:"othersBytes"` // what others can have of each card
	Others      string   `json:"others"`
	Commands    []string `json:"commands"`
}

// Timetable lays the stages of a job one after the other on cards of so many
// bytes: what others can have meanwhile, which commands make it so, and which end it.
func Timetable(name string, steps []Step, cardBytes uint64) (table []Step, end []string) {
	h := holding{name: name}
	start := 0.0
	for _, s := range steps {
		s.Start, s.OthersBytes, s.Commands = start, 0, []string{}
		if cardBytes > s.Bytes {
			s.OthersBytes = cardBytes - s.Bytes
		}
		rest := "no memory"
		if s.OthersBytes >= 1<<20 {
			rest = sizeWords(s.OthersBytes) + " of each GPU"
		}
		switch s.Stage {
		case "pretrain":
			s.OthersBytes, s.Others = 0, "nothing"
			s.Commands = h.hold(s, " --cores 100")
		case "finetune":
			s.Others = rest + ", and idle time"
			s.Commands = h.hold(s, " --policy weighted --priority 0")
		case "validate", "serve":
			s.Others = rest + ", at a lower priority"
			s.Commands = h.hold(s, " --policy weighted --priority 10")
		case "checkpoint", "wait":
			s.Others = rest + ", and all of the time"
			if s.Stage == "wait" || s.Seconds*1000 >= quantumMs {
				s.Commands = h.pause()
			}
		}
		start += s.Seconds
		table = append(table, s)
	}
	return table, h.release()
}

// holding is the shares that a job has: one on each of its cards.
type holding struct {
	name   string
	cards  int
	paused bool
}

// on makes a command that is one for each card.
func (h *holding) on(verb, flags string) string {
	if h.cards > 1 {
		return fmt.Sprintf("for i in $(seq %d); do divvy share %s %s-$i%s; done", h.cards, verb, h.name, flags)
	}
	return "divvy share " + verb + " " + h.name + flags
}

// hold makes the shares what a stage takes.
func (h *holding) hold(s Step, time string) []string {
	var do []string
	if h.paused && h.cards == s.Cards {
		do = append(do, h.on("resume", ""))
		h.paused = false
	}
	if h.cards != s.Cards {
		do = append(do, h.release()...)
	}
	verb := "set"
	if h.cards == 0 {
		verb, h.cards = "create", s.Cards
	}
	mem := ""
	if s.Bytes > 0 {
		mem = " --mem " + mebibytes(s.Bytes)
	}
	return append(do, h.on(verb, mem+time))
}

func (h *holding) pause() []string {
	if h.cards == 0 || h.paused {
		return []string{}
	}
	h.paused = true
	return []string{h.on("pause", "")}
}

func (h *holding) release() []string {
	if h.cards == 0 {
		return []string{}
	}
	do := []string{h.on("delete", "")}
	h.cards, h.paused = 0, false
	return do
}

// Save says how long a checkpoint takes, and whether pausing the share pays.
func Save(bytes float64, of string, rate float64) Checkpoint {
	c := Checkpoint{Bytes: bytes, Of: of, BytesPerSecond: rate, Seconds: bytes / rate}
	c.Pause = c.Seconds*1000 >= quantumMs
	return c
}
