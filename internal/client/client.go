// SPDX-License-Identifier: Apache-2.0

// Package client is the typed Go client of the agent's HTTP interface: one
// method per path of package api, errors as *api.Error. It starts no agent and
// keeps no connection between calls, except for Run, Hold and Follow. Each call is a
// connection and no goroutine: commands that ask once start by the hundred.
//
//	c := client.New("/run/divvy/agent.sock")
//	share, err := c.CreateShare(ctx, api.ShareSpec{Name: "a", MemoryBytes: 8 << 30})
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
)

// ErrUnreachable says that no agent answered on the socket: nobody listens, it is
// about to leave, or the connection broke before the answer. It comes wrapped beside an *api.Error
// with CodeUnavailable; a request that changes something may have been carried
// out when the connection broke.
var ErrUnreachable = errors.New("agent not reachable")

const (
	requestTimeout = 30 * time.Second
	firstRetry     = time.Millisecond // of an agent that is too busy to listen
	lastRetry      = 50 * time.Millisecond
	maxHeaderBytes = 64 << 10
	maxBodyBytes   = 16 << 20
)

// Client talks to one agent. It is safe for concurrent use.
type Client struct {
	socket string
	labels share.Labels
}

type lookKey struct{}

// Looking is a context whose requests that read keep no private agent.
func Looking(ctx context.Context) context.Context { return context.WithValue(ctx, lookKey{}, true) }

// New returns a client of the agent that listens on socket. It does not
// connect.
func New(socket string) *Client { return &Client{socket: socket} }

// Labelled returns a client of the same agent for which Shares, Clients, Events and Follow
// tell of shares that have all of these labels; events of no share come in any case.
func (c *Client) Labelled(labels share.Labels) *Client {
	return &Client{socket: c.socket, labels: labels}
}

// query is what follows a path: values, and the labels that are wanted.
func (c *Client) query(values url.Values) string {
	if values == nil {
		values = url.Values{}
	}
	for key, value := range c.labels {
		values.Add("label", key+"="+value)
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

// Socket is the path the client was made for.
func (c *Client) Socket() string { return c.socket }

// Version asks who answers.
func (c *Client) Version(ctx context.Context) (api.Version, error) {
	var v api.Version
	err := c.call(ctx, http.MethodGet, "/v1/version", nil, &v)
	return v, err
}

// Devices lists the cards.
func (c *Client) Devices(ctx context.Context) (api.Devices, error) {
	var d api.Devices
	err := c.call(ctx, http.MethodGet, "/v1/devices", nil, &d)
	return d, err
}

// Shares lists the shares.
func (c *Client) Shares(ctx context.Context) (api.Shares, error) {
	var s api.Shares
	err := c.call(ctx, http.MethodGet, "/v1/shares"+c.query(nil), nil, &s)
	return s, err
}

// Share returns one share.
func (c *Client) Share(ctx context.Context, name string) (api.Share, error) {
	var s api.Share
	path, err := sharePath(name)
	if err == nil {
		err = c.call(ctx, http.MethodGet, path, nil, &s)
	}
	return s, err
}

// CreateShare makes a share.
func (c *Client) CreateShare(ctx context.Context, spec api.ShareSpec) (api.Share, error) {
	var s api.Share
	err := c.call(ctx, http.MethodPost, "/v1/shares", spec, &s)
	return s, err
}

// EnsureShare makes a share, or finds it there as asked for; made says which. It may be
// asked again when it is not known what came of it. A share of that name that is not as
// asked for is an *api.Error with CodeExists.
func (c *Client) EnsureShare(ctx context.Context, spec api.ShareSpec) (s api.Share, made bool, err error) {
	path, err := sharePath(spec.Name)
	if err != nil {
		return s, false, err
	}
	status, err := c.exchangeJSON(ctx, http.MethodPut, path, spec, &s)
	return s, status == http.StatusCreated, err
}

// Enter puts this process, and what it starts from then on, under a share.
func (c *Client) Enter(ctx context.Context, name string) (api.Entry, error) {
	var entry api.Entry
	path, err := sharePath(name)
	if err != nil {
		return entry, err
	}
	return entry, c.call(ctx, http.MethodPost, path+"/enter", nil, &entry)
}

// ChangeShare changes a share in place.
func (c *Client) ChangeShare(ctx context.Context, name string, change api.ShareChange) (api.Share, error) {
	var s api.Share
	path, err := sharePath(name)
	if err == nil {
		err = c.call(ctx, http.MethodPatch, path, change, &s)
	}
	return s, err
}

// DeleteShare removes a share. With force it does so though processes are
// attached: their share is revoked and their allocations fail from then on.
func (c *Client) DeleteShare(ctx context.Context, name string, force bool) error {
	path, err := sharePath(name)
	if err != nil {
		return err
	}
	if force {
		path += "?force=1"
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

// Cordon keeps new shares off a card, by UUID, its start, or PCI address.
func (c *Client) Cordon(ctx context.Context, card, reason string) (api.Cordoned, error) {
	return c.cordon(ctx, http.MethodPut, card, api.CordonRequest{Reason: reason})
}

// Uncordon lets them come again.
func (c *Client) Uncordon(ctx context.Context, card string) (api.Cordoned, error) {
	return c.cordon(ctx, http.MethodDelete, card, nil)
}

func (c *Client) cordon(ctx context.Context, method, card string, in any) (api.Cordoned, error) {
	var is api.Cordoned
	switch card {
	case "", ".", "..": // a path would not keep these
		return is, &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("no GPU %q", card), Hint: "divvy devices"}
	}
	err := c.call(ctx, method, "/v1/devices/"+url.PathEscape(card)+"/cordon", in, &is)
	return is, err
}

// Instances lists the MIG instances that were made by name, and what GPUs in MIG mode can have.
func (c *Client) Instances(ctx context.Context) (api.Instances, error) {
	var i api.Instances
	err := c.call(ctx, http.MethodGet, "/v1/instances"+c.query(nil), nil, &i)
	return i, err
}

// EnsureInstance makes a MIG instance, or finds it, as EnsureShare does a share.
func (c *Client) EnsureInstance(ctx context.Context, spec api.InstanceSpec) (i api.Instance, made bool, err error) {
	path, err := instancePath(spec.Name)
	if err != nil {
		return i, false, err
	}
	status, err := c.exchangeJSON(ctx, http.MethodPut, path, spec, &i)
	return i, status == http.StatusCreated, err
}

// DeleteInstance destroys one that no program uses.
func (c *Client) DeleteInstance(ctx context.Context, name string) error {
	path, err := instancePath(name)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

// Clients lists the attached processes.
func (c *Client) Clients(ctx context.Context) (api.Clients, error) {
	var l api.Clients
	err := c.call(ctx, http.MethodGet, "/v1/clients"+c.query(nil), nil, &l)
	return l, err
}

// Events returns what the agent still remembers after sequence number since.
func (c *Client) Events(ctx context.Context, since uint64) (api.Events, error) {
	var e api.Events
	err := c.call(ctx, http.MethodGet, "/v1/events"+c.query(url.Values{"since": {strconv.FormatUint(since, 10)}}), nil, &e)
	return e, err
}

// Follow calls handle for every event after sequence number since, as they
// happen, until ctx ends, handle fails or the agent goes away
// (ErrUnreachable). Continue with the last sequence number seen.
func (c *Client) Follow(ctx context.Context, since uint64, handle func(api.Event) error) error {
	path := "/v1/events" + c.query(url.Values{"follow": {"1"}, "since": {strconv.FormatUint(since, 10)}})
	return follow(ctx, c, path, "events", handle)
}

// follow calls handle for each document of an answer that has no end.
func follow[T any](ctx context.Context, c *Client, path, what string, handle func(T) error) error {
	response, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	all := newDocuments(response.Body)
	for {
		var next T
		if err := all.next(&next); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return c.unreachable(fmt.Errorf("follow %s: %w", what, err))
		}
		if err := handle(next); err != nil {
			return err
		}
	}
}

// Snapshot returns all that the agent measured, no older than a second as a rule.
func (c *Client) Snapshot(ctx context.Context) (api.Snapshot, error) {
	var s api.Snapshot
	err := c.call(ctx, http.MethodGet, "/v1/snapshot", nil, &s)
	return s, err
}

// Metrics returns the same for Prometheus, in one of the formats that accept names, and its type.
func (c *Client) Metrics(ctx context.Context, accept string) (body io.ReadCloser, contentType string, err error) {
	return c.metrics(ctx, "/metrics", accept)
}

// DCGMMetrics returns it with dcgm-exporter's names, where the agent has them.
func (c *Client) DCGMMetrics(ctx context.Context, accept string) (body io.ReadCloser, contentType string, err error) {
	return c.metrics(ctx, "/metrics/dcgm", accept)
}

func (c *Client) metrics(ctx context.Context, path, accept string) (body io.ReadCloser, contentType string, err error) {
	response, err := c.doWith(ctx, http.MethodGet, path, nil, http.Header{"Accept": {accept}})
	if err != nil {
		return nil, "", err
	}
	return response.Body, response.Header.Get("Content-Type"), nil
}

// Usage returns what shares booked and used in the hours that begin within a time.
func (c *Client) Usage(ctx context.Context, from, to time.Time) (api.UsageHours, error) {
	var u api.UsageHours
	query := url.Values{"from": {from.UTC().Format(time.RFC3339)}, "to": {to.UTC().Format(time.RFC3339)}}
	err := c.call(ctx, http.MethodGet, "/v1/usage?"+query.Encode(), nil, &u)
	return u, err
}

// History returns how a figure was over time: what is asked is in the values of GET /v1/history.
func (c *Client) History(ctx context.Context, asked url.Values) (api.History, error) {
	var h api.History
	err := c.call(ctx, http.MethodGet, "/v1/history?"+asked.Encode(), nil, &h)
	return h, err
}

// HistoryEvents returns what happened within a time: what is asked is in the values of GET /v1/history/events.
func (c *Client) HistoryEvents(ctx context.Context, asked url.Values) (api.HistoryEvents, error) {
	var h api.HistoryEvents
	err := c.call(ctx, http.MethodGet, "/v1/history/events?"+asked.Encode(), nil, &h)
	return h, err
}

// Audit returns lines of the audit after one, the latest so many; with a verb only those, or those that begin so where
// it ends with a dot.
func (c *Client) Audit(ctx context.Context, since uint64, last int, verb string) (api.Audit, error) {
	var a api.Audit
	asked := url.Values{"since": {strconv.FormatUint(since, 10)}, "last": {strconv.Itoa(last)}, "verb": {verb}}
	err := c.call(ctx, http.MethodGet, "/v1/audit?"+asked.Encode(), nil, &a)
	return a, err
}

// AuditHead returns the last line's number and hash.
func (c *Client) AuditHead(ctx context.Context) (api.AuditHead, error) {
	var h api.AuditHead
	err := c.call(ctx, http.MethodGet, "/v1/audit/head", nil, &h)
	return h, err
}

// FollowSnapshots calls handle for each snapshot, one a second, until ctx ends, handle fails or
// the agent goes away (ErrUnreachable). One that comes while handle takes its time is left out.
func (c *Client) FollowSnapshots(ctx context.Context, handle func(api.Snapshot) error) error {
	return follow(ctx, c, "/v1/snapshot?follow=1", "snapshots", handle)
}

// sharePath leads to one share.
func sharePath(name string) (string, error) {
	return namedPath("/v1/shares/", "share", name, "divvy share list")
}

// instancePath leads to one MIG instance.
func instancePath(name string) (string, error) {
	return namedPath("/v1/instances/", "instance", name, "")
}

// namedPath leads to what has a name below a folder. A path would not keep some names, which nothing has.
func namedPath(folder, what, name, hint string) (string, error) {
	switch name {
	case "", ".", "..":
		return "", &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("no %s %q", what, name), Hint: hint}
	}
	return folder + url.PathEscape(name), nil
}

// call does one request and decodes its answer into out, if out is not nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	_, err := c.exchangeJSON(ctx, method, path, in, out)
	return err
}

// exchangeJSON is call that says with which status the answer came.
func (c *Client) exchangeJSON(ctx context.Context, method, path string, in, out any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := c.do(ctx, method, path, in)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if out == nil {
		return response.StatusCode, nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxBodyBytes)).Decode(out); err != nil {
		return 0, c.unreachable(fmt.Errorf("%s %s: read the answer: %w", method, path, err))
	}
	return response.StatusCode, nil
}

// do sends a request; a response that is returned has a 2xx status. While the agent is
// too busy to read it, it asks again, for as long as a request may take.
func (c *Client) do(ctx context.Context, method, path string, in any) (*http.Response, error) {
	return c.doWith(ctx, method, path, in, nil)
}

// doWith is do with more headers.
func (c *Client) doWith(ctx context.Context, method, path string, in any, headers http.Header) (*http.Response, error) {
	for begun, wait := time.Now(), firstRetry; ; wait = min(2*wait, lastRetry) {
		response, err := c.try(ctx, method, path, in, headers)
		if !busy(err) || time.Since(begun)+wait > requestTimeout {
			return response, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = ctx.Err()
			}
			return nil, err
		}
	}
}

// busy says whether an agent is there, and has not read the request.
func busy(err error) bool {
	var failure *api.Error
	return errors.Is(err, syscall.EAGAIN) || errors.As(err, &failure) && failure.Busy
}

// try sends a request once.
func (c *Client) try(ctx context.Context, method, path string, in any, headers http.Header) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://divvy"+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	maps.Copy(request.Header, headers)
	if ctx.Value(lookKey{}) != nil {
		request.Header.Set(api.LookHeader, "1")
	}
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.exchange(request)
	if err != nil {
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, ctx.Err()
		}
		return nil, c.unreachable(err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	failure := &api.Error{}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxBodyBytes))
	if err != nil {
		return nil, c.unreachable(err)
	}
	if json.Unmarshal(raw, failure) != nil || failure.Code == "" {
		failure = &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("agent answered %s", response.Status)}
	}
	if failure.Leaving {
		return nil, c.unreachable(failure)
	}
	return nil, failure
}

// exchange sends a request on a connection of its own, which the response's body is
// read from and which ends with it, or with the request's context.
func (c *Client) exchange(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	var dialer net.Dialer // to connect to a unix socket never waits: a full queue is EAGAIN
	conn, err := dialer.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, err
	}
	forget := context.AfterFunc(ctx, func() { _ = conn.Close() })
	end := func() error {
		forget()
		return conn.Close()
	}
	request.Close = true
	bound := &io.LimitedReader{R: conn, N: maxHeaderBytes}
	unsent := request.Write(conn)
	// An agent that is too busy says so, and hangs up, before it has read anything.
	response, err := http.ReadResponse(bufio.NewReader(bound), request)
	if err != nil {
		_ = end()
		return nil, errors.Join(unsent, err)
	}
	bound.N = math.MaxInt64 // what is a body's to have, its reader says
	response.Body = body{Reader: response.Body, end: end}
	return response, nil
}

// body is a response's: to close it closes the connection.
type body struct {
	io.Reader
	end func() error
}

func (b body) Close() error { return b.end() }

// unreachable is both ErrUnreachable and an *api.Error for the caller.
func (c *Client) unreachable(cause error) error {
	return &unreachableError{
		Failure: &api.Error{Code: api.CodeUnavailable, Message: "agent not reachable at " + c.socket},
		cause:   cause,
	}
}

type unreachableError struct {
	Failure *api.Error
	cause   error
}

func (e *unreachableError) Error() string { return e.Failure.Message + ": " + e.cause.Error() }

func (e *unreachableError) Unwrap() []error { return []error{ErrUnreachable, e.Failure, e.cause} }
