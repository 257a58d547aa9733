package pintle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const clockPath = "/simulation/clock"

// Clock is the time of a cluster that was started with ManualClock.
type Clock struct{ cluster *Cluster }

// Clock is the clock of the cluster.
func (c *Cluster) Clock() Clock { return Clock{c} }

// Pace gives programs outside of the cluster, such as a controller in the test, real time to react: the clock stops
// after each Step for Pause.
type Pace struct{ Step, Pause time.Duration }

// Change is an object that was changed while the clock moved.
type Change struct {
	Time      time.Time `json:"time"`
	Type      string    `json:"type"`     // ADDED, MODIFIED, DELETED
	Resource  string    `json:"resource"` // such as jobs.batch
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
}

// ClockMove is what happened while the clock moved.
type ClockMove struct {
	Now     time.Time `json:"now"`
	Changes []Change  `json:"changes"`
	// OmittedChanges is the number of further changes.
	OmittedChanges int `json:"omittedChanges"`

	settled *bool
}

// Now is the time of the cluster.
func (c Clock) Now(ctx context.Context) (time.Time, error) {
	state, err := c.send(ctx, http.MethodGet, nil, nil)
	if err != nil {
		return time.Time{}, err
	}
	return state.Now, nil
}

// Advance moves the clock forward. Every timer in between fires at its time.
func (c Clock) Advance(ctx context.Context, by time.Duration, pace ...Pace) (*ClockMove, error) {
	return c.send(ctx, http.MethodPost, url.Values{"advance": {by.String()}}, pace)
}

// Settle moves the clock forward until nothing has changed for 10 s of the cluster's time. It is an error if objects
// still change after limit.
func (c Clock) Settle(ctx context.Context, limit time.Duration, pace ...Pace) (*ClockMove, error) {
	move, err := c.send(ctx, http.MethodPost, url.Values{"settle": {limit.String()}}, pace)
	if err == nil && move.settled != nil && !*move.settled {
		return move, fmt.Errorf("the cluster still changes after %s", limit)
	}
	return move, err
}

func (c Clock) send(ctx context.Context, method string, query url.Values, pace []Pace) (*ClockMove, error) {
	for _, it := range pace {
		query.Set("step", it.Step.String())
		query.Set("pause", it.Pause.String())
	}
	body, err := c.cluster.Request(ctx, method, clockPath+"?"+query.Encode(), nil)
	var status *StatusError
	if errors.As(err, &status) && status.Code == http.StatusNotFound {
		return nil, errors.New("the cluster has a real clock: start it with ManualClock")
	}
	if err != nil {
		return nil, err
	}
	var state struct {
		ClockMove
		Settled *bool `json:"settled"`
	}
	if err := json.Unmarshal(body, &state); err != nil {
		return nil, err
	}
	state.ClockMove.settled = state.Settled
	return &state.ClockMove, nil
}
