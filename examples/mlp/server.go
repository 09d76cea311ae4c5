// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// bodyMost is the longest image that is read.
const bodyMost = 1 << 10

// server answers HTTP.
type server struct {
	card  *card
	model network

	answered, disagreed atomic.Uint64
}

// reply is what POST /classify answers.
type reply struct {
	Digit         int           `json:"digit"`
	Probabilities Probabilities `json:"probabilities"`
	// BatchSize is how many images went through the card together.
	BatchSize int `json:"batchSize"`
	// AgreesWithCPU says that the CPU came to the same within 1e-5.
	AgreesWithCPU bool `json:"agreesWithCpu"`
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "digits on %s\n\nPOST /classify   an image: 8 lines of 8 characters, # for ink and . for paper\n"+
			"GET /stats       what was answered\n", s.card.Name)
	})
	mux.HandleFunc("POST /classify", s.classify)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]any{"device": s.card.Name, "answered": s.answered.Load(), "disagreed": s.disagreed.Load()})
	})
	return mux
}

func (s *server) classify(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMost))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	image, err := ReadImage(string(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a, err := s.card.classify(r.Context(), image)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	agrees := a.probabilities.Distance(s.model.cpu(image)) <= Tolerance
	s.answered.Add(1)
	if !agrees {
		s.disagreed.Add(1)
	}
	write(w, reply{Digit: a.probabilities.Digit(), Probabilities: a.probabilities, BatchSize: a.batch, AgreesWithCPU: agrees})
}

func write(w http.ResponseWriter, document any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document) // the client may be gone
}
