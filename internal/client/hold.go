// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
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
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
}

// Hold takes hold of a share and returns when the agent has confirmed it. The
// hold lasts until Close, or until ctx ends.
func (c *Client) Hold(ctx context.Context, name string) (*Hold, error) {
	ctx, cancel := context.WithCancel(ctx)
	response, err := c.hold(ctx, name)
	if err != nil {
		cancel()
		return nil, err
	}
	return c.holdOn(ctx, cancel, name, response), nil
}

// holdOn is the hold that a connection is.
func (c *Client) holdOn(ctx context.Context, cancel context.CancelFunc, name string, response *http.Response) *Hold {
	h := &Hold{cancel: cancel, done: make(chan struct{})}
	go h.keep(ctx, c, name, response)
	return h
}

// Run asks for all that a command needs to run under a share, and puts this process
// under it. An ephemeral one is held; for others the hold is nil.
func (c *Client) Run(ctx context.Context, spec api.RunSpec) (api.Run, *Hold, error) {
	ctx, cancel := context.WithCancel(ctx)
	slow := time.AfterFunc(requestTimeout, cancel)
	var run api.Run
	response, err := c.do(ctx, http.MethodPost, "/v1/runs", spec)
	if err == nil {
		if err = json.NewDecoder(response.Body).Decode(&run); err != nil {
			_ = response.Body.Close()
			err = c.unreachable(fmt.Errorf("read the answer: %w", err))
		}
	}
	if !slow.Stop() && err != nil {
		err = c.unreachable(fmt.Errorf("no answer in %v", requestTimeout))
	}
	switch {
	case err != nil:
		cancel()
		return run, nil, err
	case !run.Share.Ephemeral:
		_ = response.Body.Close()
		cancel()
		return run, nil, nil
	}
	return run, c.holdOn(ctx, cancel, run.Share.Name, response), nil
}

// Done is closed when the hold has ended: closed, or the share is gone.
func (h *Hold) Done() <-chan struct{} { return h.done }

// Close lets the share go and waits until the connection is closed.
func (h *Hold) Close() {
	h.once.Do(h.cancel)
	<-h.done
}

func (c *Client) hold(ctx context.Context, name string) (*http.Response, error) {
	path, err := sharePath(name)
	if err != nil {
		return nil, err
	}
	return c.do(ctx, http.MethodPost, path+"/hold", nil)
}

// keep waits on the connection and takes the hold again when it breaks.
func (h *Hold) keep(ctx context.Context, c *Client, name string, response *http.Response) {
	defer close(h.done)
	wait := holdRetryFirst
	for {
		if response != nil {
			_, _ = io.Copy(io.Discard, response.Body) // until the connection breaks
			_ = response.Body.Close()
			response = nil
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
		next, err := c.hold(ctx, name)
		var failure *api.Error
		if errors.As(err, &failure) && failure.Code != api.CodeUnavailable {
			return // the share is gone
		}
		response = next
	}
}
