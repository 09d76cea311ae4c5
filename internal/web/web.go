// SPDX-License-Identifier: Apache-2.0

// Package web passes on to a port of this machine what an agent tells on its socket: the agent
// of a machine is root's and may use unix sockets only. It is a client like any other, with the
// rights of whoever runs it. It listens on loopback addresses alone: there is no login.
//
//	listener, err := web.Listen(ctx, "127.0.0.1:7180")
//	err = web.Serve(ctx, listener, client.New(socket))
package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// ErrAddress says that an address is not one to listen on.
var ErrAddress = errors.New("not an address of this machine alone")

const (
	scrapeDeadline  = 10 * time.Second
	stopDeadline    = 2 * time.Second
	maxScrapeBytes  = 64 << 20
	maxHeaderBytes  = 16 << 10
	scrapesAtOnce   = 16
	metricsPath     = "/metrics"
	dcgmPath        = "/metrics/dcgm"
	plainText       = "text/plain; charset=utf-8"
	nosniffHeader   = "X-Content-Type-Options"
	contentTypeName = "Content-Type"
)

// Agent is what is asked; *client.Client is one.
type Agent interface {
	// Metrics asks for metrics in one of the formats that accept names, and returns them with
	// their type.
	Metrics(ctx context.Context, accept string) (body io.ReadCloser, contentType string, err error)
	// DCGMMetrics are those with dcgm-exporter's names.
	DCGMMetrics(ctx context.Context, accept string) (body io.ReadCloser, contentType string, err error)
}

// Check says whether an address is one of this machine alone, with a port.
func Check(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return fmt.Errorf("%w: %q is not HOST:PORT", ErrAddress, address)
	}
	if !loopback(host) {
		return fmt.Errorf("%w: %q", ErrAddress, address)
	}
	return nil
}

func loopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Listen listens on an address of this machine alone.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if err := Check(address); err != nil {
		return nil, err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	// What localhost means is for the machine to say.
	if at, ok := listener.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		_ = listener.Close()
		return nil, fmt.Errorf("%w: %q is %v", ErrAddress, address, listener.Addr())
	}
	return listener, nil
}

// Serve answers until ctx ends.
func Serve(ctx context.Context, listener net.Listener, agent Agent) error {
	server := &http.Server{
		Handler: Handler(agent), ReadHeaderTimeout: scrapeDeadline, ReadTimeout: scrapeDeadline, WriteTimeout: 2 * scrapeDeadline, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %v: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopDeadline)
	defer cancel()
	if server.Shutdown(ending) != nil {
		_ = server.Close()
	}
	<-served
	return nil
}

// Handler answers GET /metrics and /metrics/dcgm.
func Handler(agent Agent) http.Handler {
	room := make(chan struct{}, scrapesAtOnce)
	mux := http.NewServeMux()
	pass := func(w http.ResponseWriter, r *http.Request, ask func(context.Context, string) (io.ReadCloser, string, error)) {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		default:
			http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), scrapeDeadline)
		defer cancel()
		body, contentType, err := ask(ctx, r.Header.Get("Accept"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer body.Close()
		w.Header().Set(contentTypeName, contentType)
		_, _ = io.Copy(w, io.LimitReader(body, maxScrapeBytes)) // the reader may be gone
	}
	mux.HandleFunc("GET "+metricsPath, func(w http.ResponseWriter, r *http.Request) { pass(w, r, agent.Metrics) })
	mux.HandleFunc("GET "+dcgmPath, func(w http.ResponseWriter, r *http.Request) { pass(w, r, agent.DCGMMetrics) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(contentTypeName, plainText)
		_, _ = io.WriteString(w, "divvy web: "+metricsPath+"\n")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(nosniffHeader, "nosniff")
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		// A page of somebody else's that has its name lead here would see all.
		if !loopback(strings.Trim(host, "[]")) {
			http.Error(w, "asked for by a name that is not this machine's", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
