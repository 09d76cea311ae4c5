// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/wire"
)

const (
	maxBodyBytes   = 64 << 10
	streamDeadline = 10 * time.Second // for a reader to take one portion
	stopDeadline   = 2 * time.Second
)

type askerKey struct{}

// handlers answer the requests of the HTTP interface.
type handlers struct {
	*daemon
	ending <-chan struct{} // closed when the agent is to end
}

// serveAPI answers HTTP requests on the agent's socket.
func (d *daemon) serveAPI(ctx context.Context) *http.Server {
	server := &http.Server{
		Handler:           handlers{d, ctx.Done()}.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       d.cfg.RequestDeadline,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(d.cfg.Logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if known, ok := conn.(*apiConn); ok {
				return context.WithValue(ctx, askerKey{}, known.asker)
			}
			return ctx
		},
	}
	server.SetKeepAlivesEnabled(false)
	listener := d.newAPIListener(ctx)
	d.task(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			d.cfg.Logger.Error("serve the interface", "error", err)
		}
	})
	return server
}

// stopAPI lets the requests that are being answered end, and breaks the rest.
func stopAPI(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopDeadline)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

// leave takes the socket's path away, so that the next to come finds nobody
// and starts an agent, and refuses those who have connected already.
func (d *daemon) leave(ctx context.Context) {
	if err := os.Remove(d.cfg.APISocket()); err != nil {
		d.cfg.Logger.Warn("remove socket", "error", err)
	}
	if d.store != nil {
		_ = d.store.Leave(leaveIdle)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopDeadline)
	defer cancel()
	for !(d.api.Idle() && d.acceptor.idle()) && pauseFor(ctx, time.Millisecond) {
	}
}

func (h handlers) handler() http.Handler {
	mux := http.NewServeMux()
	type answerer func(http.ResponseWriter, *http.Request, asker) error
	serve := func(pattern, verb string, looks, bare bool, answer answerer) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			asker, ok := r.Context().Value(askerKey{}).(asker)
			line := h.auditRequest(r, asker, verb)
			r = r.WithContext(context.WithValue(r.Context(), auditedKey{}, line))
			err := error(&api.Error{Code: api.CodeUnavailable, Message: "the agent cannot see who asks"})
			noted := &notedWriter{ResponseWriter: w, status: http.StatusOK, before: func(status int) { line.tell(r.Context(), status, err) }}
			w = noted
			defer func() { h.requests.add(noted.status) }()
			if ok {
				err = h.authorise(r, asker, looks || r.Method == http.MethodGet && r.Header.Get(api.LookHeader) != "")
			}
			if err == nil && bare {
				err = line.ask(r.Context())
			}
			if err == nil {
				err = answer(w, r, asker)
			}
			if err != nil {
				h.fail(w, err)
			}
		})
	}
	handle := func(pattern string, answer answerer) { serve(pattern, "", false, false, answer) }
	look := func(pattern string, answer answerer) { serve(pattern, "", true, false, answer) } // who looks is no reason to stay
	change := func(pattern, verb string, answer answerer) { serve(pattern, verb, false, false, answer) }
	changeBare := func(pattern, verb string, answer answerer) { serve(pattern, verb, false, true, answer) } // has no body
	handle("GET /v1/version", h.getVersion)
	handle("GET /v1/devices", h.getDevices)
	change("PUT /v1/devices/{card}/cordon", "card.cordon", h.putCordon)
	changeBare("DELETE /v1/devices/{card}/cordon", "card.uncordon", h.deleteCordon)
	handle("GET /v1/shares", h.getShares)
	change("POST /v1/shares", "share.create", h.postShare)
	handle("GET /v1/shares/{name}", h.getShare)
	change("PUT /v1/shares/{name}", "share.create", h.putShare)
	change("PATCH /v1/shares/{name}", "share.change", h.patchShare)
	changeBare("DELETE /v1/shares/{name}", "share.delete", h.deleteShare)
	changeBare("POST /v1/shares/{name}/enter", "share.enter", h.enterShare)
	changeBare("POST /v1/shares/{name}/hold", "share.hold", h.holdShare)
	change("POST /v1/runs", "share.run", h.postRun)
	handle("GET /v1/runs/notices", h.getNotices)
	handle("GET /v1/instances", h.getInstances)
	change("PUT /v1/instances/{name}", "instance.create", h.putInstance)
	changeBare("DELETE /v1/instances/{name}", "instance.delete", h.deleteInstance)
	handle("GET /v1/clients", h.getClients)
	handle("GET /v1/events", h.getEvents)
	look("GET /v1/snapshot", h.getSnapshot)
	look("GET /v1/usage", h.getUsage)
	look("GET /v1/history", h.getHistory)
	look("GET /v1/history/events", h.getHistoryEvents)
	look("GET /v1/audit", h.getAudit)
	look("GET /v1/audit/head", h.getAuditHead)
	look("GET /metrics", h.export(h.cfg.Metrics, api.Error{Message: "this agent exports no metrics"}))
	look("GET /metrics/dcgm", h.export(h.cfg.DCGMMetrics, api.Error{
		Message: "metrics under dcgm-exporter's names are off: beside a dcgm-exporter sums would be twice as large", Hint: "divvy agent --dcgm-metrics",
	}))
	handle("/", func(_ http.ResponseWriter, r *http.Request, _ asker) error {
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("the agent has no %s %s", r.Method, r.URL.Path),
			Hint: "divvy version shows whether command and agent are of one version"}
	})
	return mux
}

// export answers scrapes, or says why it does not.
func (h handlers) export(by Exporter, off api.Error) func(http.ResponseWriter, *http.Request, asker) error {
	if by == nil {
		off.Code = api.CodeNotFound
		return func(http.ResponseWriter, *http.Request, asker) error { return &off }
	}
	exporter := by(h.samples.snapshot)
	return func(w http.ResponseWriter, r *http.Request, _ asker) error {
		exporter.ServeHTTP(w, r)
		return nil
	}
}

// notedWriter knows what was answered, and has something done before.
type notedWriter struct {
	http.ResponseWriter
	status int
	before func(status int)
}

func (w *notedWriter) WriteHeader(status int) {
	w.status = status
	w.before(status)
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the connection.
func (w *notedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// requestCounts is how many requests were answered, by status.
type requestCounts struct {
	mutex sync.Mutex // guards everything below
	by    map[int]uint64
}

func (c *requestCounts) add(status int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.by == nil {
		c.by = map[int]uint64{}
	}
	c.by[status]++
}

func (c *requestCounts) all() map[string]uint64 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	all := map[string]uint64{}
	for status, n := range c.by {
		all[strconv.Itoa(status)] = n
	}
	return all
}

// authorise lets everybody read a machine's agent, and only its owner use a
// private one, which stays for requests that do more than look.
func (h handlers) authorise(r *http.Request, peer asker, looks bool) error {
	if h.cfg.Private && peer.UID != h.uid && peer.UID != 0 {
		return &api.Error{Code: api.CodeNotAllowed, Message: fmt.Sprintf("this agent serves uid %d only", h.uid)}
	}
	if looks {
		return nil
	}
	return h.ask(r, func(l *loop) error {
		l.lastRequest = l.now
		return nil
	})
}

// mayCreate says whether a user may make this share.
func (h handlers) mayCreate(peer asker, spec api.ShareSpec) error {
	if h.trusted(peer) || h.cfg.Creation == CreateAll || h.cfg.Creation == CreateEphemeral && spec.Ephemeral {
		return h.mayHavePriority(peer, spec.Priority)
	}
	e := &api.Error{Code: api.CodeNotAllowed, Message: "on this machine only root declares shares"}
	if h.cfg.Creation == CreateEphemeral {
		e.Hint = "divvy run makes a share that goes with the command"
	}
	return e
}

// ask runs f in the loop for a request.
func (h handlers) ask(r *http.Request, f func(*loop) error) error {
	var failed error
	err := h.do(r.Context(), func(l *loop) {
		if l.leaving {
			failed = errLeaving
			return
		}
		failed = f(l)
	})
	if err != nil {
		return errLeaving
	}
	return failed
}

var errLeaving = &api.Error{Code: api.CodeUnavailable, Message: "the agent is leaving", Hint: "ask again", Leaving: true}

func (h handlers) fail(w http.ResponseWriter, err error) {
	e := apiError(err)
	status := map[api.Code]int{
		api.CodeUsage: http.StatusBadRequest, api.CodeNotFound: http.StatusNotFound,
		api.CodeNotAllowed: http.StatusForbidden, api.CodeUnavailable: http.StatusServiceUnavailable,
		api.CodeExists: http.StatusConflict, api.CodeNoRoom: http.StatusInsufficientStorage,
	}[e.Code]
	write(w, status, e)
}

// apiError is what the interface says of a failure.
func apiError(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	var f *core.Failure
	if errors.As(err, &f) {
		e := &api.Error{Code: api.Code(f.Kind), Message: f.Message, Hint: f.Hint, Differs: f.Differs}
		if f.Missing != (core.Missing{}) {
			missing := api.Missing(f.Missing)
			e.Missing = &missing
		}
		return e
	}
	return &api.Error{Code: api.CodeUnavailable, Message: err.Error()}
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the reader may be gone
}

// read decodes the body of a request; fields that we do not know are refused,
// because ignoring them would not be what was asked for.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil && decoder.Decode(&struct{}{}) != io.EOF {
		err = errors.New("more than one document")
	}
	if err != nil {
		return &api.Error{Code: api.CodeUsage, Message: "the request is not understood: " + err.Error()}
	}
	return nil
}

func (h handlers) version() api.Version {
	v := api.Version{
		Schema: api.SchemaVersion, Version: h.cfg.ProductVersion, Wire: wire.Version, PID: os.Getpid(), Life: h.life,
		Simulated: simulated(h.cards), DriverDirectory: h.cfg.DriverDirectory,
	}
	if v.Simulated {
		v.Simulator = simulatorSocket()
	}
	return v
}

func (h handlers) getVersion(w http.ResponseWriter, _ *http.Request, _ asker) error {
	write(w, http.StatusOK, h.version())
	return nil
}

func (h handlers) getEvents(w http.ResponseWriter, r *http.Request, _ asker) error {
	since := uint64(0)
	if text := r.URL.Query().Get("since"); text != "" {
		var err error
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			return &api.Error{Code: api.CodeUsage, Message: fmt.Sprintf("since=%q is not a sequence number", text)}
		}
	}
	wanted, err := wantedLabels(r)
	if err != nil {
		return err
	}
	w.Header().Set(api.LifeHeader, h.life)
	if r.URL.Query().Get("follow") == "" {
		events, _, _ := h.events.after(since, h.cfg.MaxEvents)
		answer := api.Events{Schema: api.SchemaEvents, Life: h.life, Events: []api.Event{}}
		for _, e := range events {
			if concerns(e, wanted) {
				answer.Events = append(answer.Events, e)
			}
		}
		write(w, http.StatusOK, answer)
		return nil
	}
	h.follow(w, r, since, wanted)
	return nil
}

// concerns says whether an event is for who wants those of shares with these labels: those
// of GPUs, and that some are forgotten, are for everybody.
func concerns(e api.Event, wanted share.Labels) bool {
	return e.Share == "" || e.Labels.Match(wanted)
}

// patient lets a request stay for as long as the asker does.
func patient(stream *http.ResponseController) bool {
	return stream.SetReadDeadline(time.Time{}) == nil
}

// follow streams events until the reader is gone or does not read.
func (h handlers) follow(w http.ResponseWriter, r *http.Request, since uint64, wanted share.Labels) {
	stream := http.NewResponseController(w)
	if !patient(stream) {
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	for {
		events, more, ended := h.events.after(since, eventsAtOnce)
		_ = stream.SetWriteDeadline(time.Now().Add(streamDeadline))
		for _, e := range events {
			since = e.Sequence
			if concerns(e, wanted) && encoder.Encode(e) != nil {
				return
			}
		}
		if stream.Flush() != nil {
			return
		}
		if len(events) > 0 {
			continue
		}
		if ended {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}
