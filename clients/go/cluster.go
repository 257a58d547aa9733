// Package pintle starts clusters for tests: a whole Kubernetes control plane in a process of its own, with simulated
// nodes and a clock that the test holds. It uses the standard library alone; a test brings the client that it likes and
// gives it the kubeconfig.
//
//	cluster := pintle.StartT(t, pintle.Options{Nodes: 3})
//	config, err := clientcmd.BuildConfigFromFlags("", cluster.KubeconfigPath())
//
// A cluster goes with its test: when Stop is called, when the test ends (StartT), and when the test process dies.
package pintle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// BinaryVariable is the environment variable with the path of the program.
const BinaryVariable = "PINTLE"

// Options say which cluster is started. The zero value is a control plane without nodes.
type Options struct {
	// Binary is the path of the program. If it is empty, it is that of the variable PINTLE, or else pintle in PATH.
	Binary string
	// Nodes is the number of simulated nodes.
	Nodes int
	// Profile is the file with a SimulationProfile: shapes of nodes, and how pods behave.
	Profile string
	// ManualClock makes the time of the cluster stand still until Cluster.Clock moves it.
	ManualClock bool
	// Seed makes names and placements follow from the requests, with ManualClock. 0 is none.
	Seed uint64
	// Components are those of `pintle up --components`; empty for the default.
	Components []string
	// Faults are what requests meet from the start; Cluster.Faults changes them.
	Faults FaultPlan
	// Args are further arguments of `pintle up`.
	Args []string
	// Log gets all output of the server, beside Cluster.Log.
	Log io.Writer
	// StartTimeout is how long a start may take; 60 s if it is 0.
	StartTimeout time.Duration
}

func (o Options) arguments() ([]string, error) {
	faults, err := json.Marshal(o.Faults)
	if err != nil {
		return nil, err
	}
	arguments := []string{"up", "--ephemeral", "--secure-port", "0", "--exit-on-stdin-close", "--faults", string(faults)}
	if o.Nodes > 0 {
		arguments = append(arguments, "--nodes", strconv.Itoa(o.Nodes))
	}
	if o.Profile != "" {
		arguments = append(arguments, "--simulation-profile", o.Profile)
	}
	if o.ManualClock {
		arguments = append(arguments, "--clock", "manual")
	}
	if o.Seed != 0 {
		arguments = append(arguments, "--seed", strconv.FormatUint(o.Seed, 10))
	}
	if len(o.Components) > 0 {
		arguments = append(arguments, "--components", strings.Join(o.Components, ","))
	}
	return append(arguments, o.Args...), nil
}

// Cluster is a running cluster.
type Cluster struct {
	process *process
	// fork is what a copy of another cluster has; nil for a cluster with a process of its own.
	fork       *fork
	stop       sync.Once
	isStopped  atomic.Bool
	stopError  error
	path       string
	kubeconfig []byte
	server     string
	http       *http.Client
}

// process is the server of a cluster and its forks.
type process struct {
	command   *exec.Cmd
	stdin     io.Closer
	output    *output
	ended     chan struct{}
	waitError error
}

// Start starts a cluster, and returns when it is ready for pods. The context is for the start alone.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	binary, err := findBinary(options.Binary)
	if err != nil {
		return nil, err
	}
	arguments, err := options.arguments()
	if err != nil {
		return nil, err
	}
	timeout := options.StartTimeout
	if timeout == 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	p := &process{output: newOutput(options.Log), ended: make(chan struct{})}
	p.command = exec.Command(binary, arguments...)
	p.command.Stdout = p.output
	p.command.Stderr = p.output
	// the server ends when this pipe is closed, by Stop or by the death of this process
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("pintle: cannot start %s: %w", binary, err)
	}
	go func() {
		p.waitError = p.command.Wait()
		close(p.ended)
	}()
	c := &Cluster{process: p}
	if err := c.ready(ctx, options); err != nil {
		_ = c.Stop()
		return nil, fmt.Errorf("pintle: the cluster did not start: %w; its output:\n%s", err, c.Log())
	}
	return c, nil
}

// ready waits for the greeting, the service account without which pods are refused, and the nodes.
func (c *Cluster) ready(ctx context.Context, options Options) error {
	select {
	case c.path = <-c.process.output.kubeconfig:
	case <-c.process.ended:
		return fmt.Errorf("it ended: %s", c.process.command.ProcessState)
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	if c.kubeconfig, err = os.ReadFile(c.path); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if runsControllers(options.Components) {
		if err := c.until(ctx, c.hasServiceAccount); err != nil {
			return fmt.Errorf("the default service account: %w", err)
		}
	}
	if options.Nodes > 0 {
		hasNodes := func(ctx context.Context) (bool, error) { return c.hasReadyNodes(ctx, options.Nodes) }
		if err := c.until(ctx, hasNodes); err != nil {
			return fmt.Errorf("the nodes: %w", err)
		}
	}
	return nil
}

func runsControllers(components []string) bool {
	for _, component := range components {
		if component == "controller-manager" {
			return true
		}
	}
	return len(components) == 0
}

func (c *Cluster) hasServiceAccount(ctx context.Context) (bool, error) {
	_, err := c.Request(ctx, http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", nil)
	var status *StatusError
	if errors.As(err, &status) && status.Code == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}

func (c *Cluster) hasReadyNodes(ctx context.Context, count int) (bool, error) {
	var list struct {
		Items []struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := c.getJSON(ctx, "/api/v1/nodes", &list); err != nil {
		return false, err
	}
	for _, node := range list.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" {
				count--
			}
		}
	}
	return count <= 0, nil
}

// until repeats a check until it holds or fails.
func (c *Cluster) until(ctx context.Context, holds func(context.Context) (bool, error)) error {
	for {
		if done, err := holds(ctx); done || err != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-c.process.ended:
			return errors.New("the server ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stop stops the cluster and its forks, and waits until it is gone. Only the first call does something.
func (c *Cluster) Stop() error {
	c.stop.Do(func() {
		defer c.isStopped.Store(true)
		if c.http != nil {
			c.http.CloseIdleConnections()
		}
		if c.fork != nil {
			c.stopError = c.fork.stop(c.path)
		} else {
			c.stopError = c.process.stop()
		}
	})
	return c.stopError
}

func (p *process) stop() error {
	_ = p.stdin.Close()
	select {
	case <-p.ended:
		return p.waitError
	case <-time.After(30 * time.Second):
		_ = p.command.Process.Kill()
		<-p.ended
		return errors.New("pintle: the cluster did not stop within 30 s, and was killed")
	}
}

// KubeconfigPath is the path of the administrator's kubeconfig. The file is deleted when the cluster stops.
func (c *Cluster) KubeconfigPath() string { return c.path }

// Kubeconfig is the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() []byte { return append([]byte(nil), c.kubeconfig...) }

// URL is the address of the API server.
func (c *Cluster) URL() string { return c.server }

// Log is the end of what the server has written to its standard output and error.
func (c *Cluster) Log() string { return c.process.output.String() }

// TB is the part of testing.TB that StartT uses.
type TB interface {
	Helper()
	Fatal(args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
	Cleanup(func())
}

// StartT starts a cluster for a test, and stops it when the test ends. The log of the server is shown if the test fails.
func StartT(t TB, options Options) *Cluster {
	t.Helper()
	cluster, err := Start(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	cluster.stopWith(t)
	return cluster
}

func (c *Cluster) stopWith(t TB) {
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("the cluster did not stop cleanly: %v", err)
		}
		if t.Failed() {
			t.Logf("the output of the server:\n%s", c.Log())
		}
	})
}

func findBinary(given string) (string, error) {
	const advice = "build it (packaging/build), then set the variable " + BinaryVariable + " to its path, or add it to PATH"
	if given == "" {
		given = os.Getenv(BinaryVariable)
	}
	if given == "" {
		given = "pintle"
	}
	path, err := exec.LookPath(given)
	if err != nil {
		return "", fmt.Errorf("pintle: there is no program %s: %s", given, advice)
	}
	return path, nil
}
