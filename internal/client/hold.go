// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

const (
	holdRetryFirst = 20 * time.Millisecond
	holdRetryLast  = 250 * time.Millisecond
)

// Hold keeps an ephemeral share alive. It survives an agent restart: the hold
// is taken again as soon as the agent is back.
type Hold struct {
	client  *Client
	cancel  context.CancelFunc
	done    chan struct{}
	once    sync.Once
	path    string
	notices chan api.Notice
}

// mostNotices that nobody has taken are kept.
const mostNotices = 16

// Hold takes hold of a share and returns when the agent has confirmed it. The
// hold lasts until Close, or until ctx ends.
func (c *Client) Hold(ctx context.Context, name string) (*Hold, error) {
	ctx, cancel := context.WithCancel(ctx)
	path, err := sharePath(name)
	var held *holding
	if err == nil {
		held, err = c.hold(ctx, path+"/hold", nil)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return c.holdOn(ctx, cancel, path+"/hold", held), nil
}

// holding is a connection that holds a share, and what reads the rest of its answer.
type holding struct {
	body io.Closer
	said *documents
}

// holdOn is the hold that a connection is.
func (c *Client) holdOn(ctx context.Context, cancel context.CancelFunc, path string, held *holding) *Hold {
	h := &Hold{client: c, cancel: cancel, done: make(chan struct{}), path: path, notices: make(chan api.Notice, mostNotices)}
	go h.keep(ctx, held)
	return h
}

// Run asks for all that a command needs to run under a share, puts this process under it
// and holds it.
func (c *Client) Run(ctx context.Context, spec api.RunSpec) (api.Run, *Hold, error) {
	ctx, cancel := context.WithCancel(ctx)
	slow := time.AfterFunc(requestTimeout, cancel)
	var run api.Run
	held, err := c.hold(ctx, "/v1/runs", spec)
	if err == nil {
		if err = held.said.next(&run); err != nil {
			_ = held.body.Close()
			err = c.unreachable(fmt.Errorf("read the answer: %w", err))
		}
	}
	if !slow.Stop() && err != nil {
		err = c.unreachable(fmt.Errorf("no answer in %v", requestTimeout))
	}
	if err == nil {
		var path string
		if path, err = sharePath(run.Share.Name); err == nil {
			return run, c.holdOn(ctx, cancel, path+"/hold?run=1", held), nil
		}
	}
	cancel()
	return run, nil, err
}

// Notices tells of processes of a run that are held less than its share. What is not
// taken is forgotten at last.
func (h *Hold) Notices() <-chan api.Notice { return h.notices }

// Noticed asks for all notices until now of the runs of this process, those included that
// have not come yet.
func (h *Hold) Noticed(ctx context.Context) ([]api.Notice, error) {
	var all api.Notices
	err := h.client.call(ctx, http.MethodGet, "/v1/runs/notices", nil, &all)
	return all.Notices, err
}

// Done is closed when the hold has ended: closed, or the share is gone.
func (h *Hold) Done() <-chan struct{} { return h.done }

// Close lets the share go and waits until the connection is closed.
func (h *Hold) Close() {
	h.once.Do(h.cancel)
	<-h.done
}

// hold asks for what keeps its connection.
func (c *Client) hold(ctx context.Context, path string, spec any) (*holding, error) {
	response, err := c.do(ctx, http.MethodPost, path, spec)
	if err != nil {
		return nil, err
	}
	return &holding{body: response.Body, said: newDocuments(response.Body)}, nil
}

// listen reads what the agent has to say until the connection breaks.
func (h *Hold) listen(held *holding) {
	defer held.body.Close()
	for {
		var n api.Notice
		if held.said.next(&n) != nil {
			return
		}
		if n.PID == 0 {
			continue // the share, which comes first
		}
		select {
		case h.notices <- n:
		default:
		}
	}
}

// keep waits on the connection and takes the hold again when it breaks.
func (h *Hold) keep(ctx context.Context, held *holding) {
	defer close(h.done)
	wait := holdRetryFirst
	for {
		if held != nil {
			h.listen(held)
			held = nil
			wait = holdRetryFirst
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, holdRetryLast)
		next, err := h.client.hold(ctx, h.path, nil)
		var failure *api.Error
		if errors.As(err, &failure) && failure.Code != api.CodeUnavailable {
			return // the share is gone
		}
		held = next
	}
}
