package pintle

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"time"
)

const clustersPath = "/simulation/clusters"

// fork is a copy of a cluster in the same process.
type fork struct {
	name   string
	parent *Cluster
}

// Fork starts a copy of the cluster in the same process: all its objects, keys and certificates, with a port, a clock and
// faults of its own. Prepare a cluster once, and give each test a fork of it. A fork stops with its parent at the latest.
func (c *Cluster) Fork(ctx context.Context) (*Cluster, error) {
	body, err := c.Request(ctx, http.MethodPost, clustersPath, nil)
	if err != nil {
		return nil, err
	}
	var answer struct{ Name, Kubeconfig string }
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	copied := &Cluster{process: c.process, fork: &fork{answer.Name, c}, kubeconfig: []byte(answer.Kubeconfig)}
	err = copied.writeKubeconfig()
	if err == nil {
		err = copied.connect()
	}
	if err != nil {
		return nil, errors.Join(err, copied.Stop())
	}
	return copied, nil
}

// ForkT starts a fork for a test, and stops it when the test ends.
func (c *Cluster) ForkT(t TB) *Cluster {
	t.Helper()
	copied, err := c.Fork(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	copied.stopWith(t)
	return copied
}

func (c *Cluster) writeKubeconfig() error {
	file, err := os.CreateTemp("", "pintle-*.kubeconfig")
	if err != nil {
		return err
	}
	c.path = file.Name()
	_, err = file.Write(c.kubeconfig)
	return errors.Join(err, file.Close())
}

// stop stops the fork whose kubeconfig is at path. One whose parent has ended has stopped.
func (f *fork) stop(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := f.parent.Request(ctx, http.MethodDelete, clustersPath+"/"+f.name, nil)
	if f.parent.hasEnded() {
		err = nil
	}
	return errors.Join(err, os.Remove(path))
}

// hasEnded is whether the cluster was stopped, or what it runs in has ended.
func (c *Cluster) hasEnded() bool {
	select {
	case <-c.process.ended:
		return true
	default:
		return c.isStopped.Load() || c.fork != nil && c.fork.parent.hasEnded()
	}
}
