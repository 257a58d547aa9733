package pintle

import (
	"context"
	"encoding/json"
	"net/http"
)

const faultsPath = "/simulation/faults"

// FaultPlan is which faults requests meet. Its zero value is none.
type FaultPlan struct {
	// Seed decides which requests meet faults with a rate; 0 for one that is drawn.
	Seed uint64 `json:"seed,omitempty"`
	// Rules are tried in order; the first that fires counts.
	Rules []FaultRule `json:"rules,omitempty"`
}

// FaultRule selects requests, and says which fault meets them how often. Empty fields select everything. Durations are
// text, such as 15s. docs/testing.md describes each field.
type FaultRule struct {
	Name string `json:"name,omitempty"`

	Verbs      []string `json:"verbs,omitempty"`
	Groups     []string `json:"groups,omitempty"`
	Resources  []string `json:"resources,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Names      []string `json:"names,omitempty"`
	Users      []string `json:"users,omitempty"`
	UserAgents []string `json:"userAgents,omitempty"`
	Paths      []string `json:"paths,omitempty"`
	Webhooks   []string `json:"webhooks,omitempty"`
	// Components is whether control loops, scheduler and simulated nodes meet the fault, too.
	Components bool `json:"components,omitempty"`

	Skip  int     `json:"skip,omitempty"`
	Rate  float64 `json:"rate,omitempty"`
	Every int     `json:"every,omitempty"`
	Times int     `json:"times,omitempty"`

	Delay             string `json:"delay,omitempty"`
	Status            int    `json:"status,omitempty"`
	RetryAfterSeconds int    `json:"retryAfterSeconds,omitempty"`
	// Cut closes the connection: Request, before the request is handled, or Response, after it was.
	Cut   string      `json:"cut,omitempty"`
	Watch *WatchFault `json:"watch,omitempty"`
}

// WatchFault ends a watch.
type WatchFault struct {
	AfterEvents int    `json:"afterEvents,omitempty"`
	After       string `json:"after,omitempty"`
	// End is Close, Expired or Cut.
	End string `json:"end,omitempty"`
}

// FaultCount is how many requests a rule has selected, and how many of them met its fault.
type FaultCount struct {
	Matched  int `json:"matched"`
	Injected int `json:"injected"`
}

// Faults are those that requests to a cluster meet.
type Faults struct{ cluster *Cluster }

// Faults are the faults of the cluster.
func (c *Cluster) Faults() Faults { return Faults{c} }

// Set replaces all faults. A plan with mistakes is refused with all of them, and changes nothing.
func (f Faults) Set(ctx context.Context, plan FaultPlan) error {
	body, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	_, err = f.cluster.Request(ctx, http.MethodPut, faultsPath, body)
	return err
}

// Clear removes all faults.
func (f Faults) Clear(ctx context.Context) error {
	_, err := f.cluster.Request(ctx, http.MethodDelete, faultsPath, nil)
	return err
}

// Counts says how often each rule has matched and fired, in the order of the rules.
func (f Faults) Counts(ctx context.Context) ([]FaultCount, error) {
	var document struct {
		Status struct{ Rules []FaultCount }
	}
	err := f.cluster.getJSON(ctx, faultsPath, &document)
	return document.Status.Rules, err
}
