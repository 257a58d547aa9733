package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?limit=1"
	pods   = "/api/v1/namespaces/default/pods"
)

// scale is a load of many pods: Deployments of equal size.
type scale struct{ nodes, pods, deployments int }

// process is the resource usage of the server.
type process struct{ cpuSeconds, megabytes float64 }

// get reads a path of the cluster.
func (c *cluster) get(path string, read func(io.Reader) error) error {
	response, err := c.client.Get(c.url + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return read(response.Body)
}

// usage reads the metrics of the server's process.
func (c *cluster) usage() (process, error) {
	var used process
	err := c.get("/metrics", func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			number, _ := strconv.ParseFloat(value, 64)
			switch name {
			case "process_cpu_seconds_total":
				used.cpuSeconds = number
			case "process_resident_memory_bytes":
				used.megabytes = number / 1e6
			}
		}
		return lines.Err()
	})
	return used, err
}

// until asks four times a second whether a count has reached a goal.
func until(count func() (int, error), goal int) error {
	for {
		reached, err := count()
		if err != nil || reached >= goal {
			return err
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// leaseCount is the number of nodes that have a lease.
func (c *cluster) leaseCount() (int, error) {
	var list struct {
		Metadata struct{ RemainingItemCount int }
		Items    []struct{}
	}
	err := c.get(leases, func(body io.Reader) error { return json.NewDecoder(body).Decode(&list) })
	return len(list.Items) + list.Metadata.RemainingItemCount, err
}

// available is the number of available replicas of all Deployments.
func (c *cluster) available() (int, error) {
	var list struct {
		Items []struct {
			Status struct{ AvailableReplicas int }
		}
	}
	err := c.get(deployments, func(body io.Reader) error { return json.NewDecoder(body).Decode(&list) })
	sum := 0
	for _, item := range list.Items {
		sum += item.Status.AvailableReplicas
	}
	return sum, err
}

// starts is when pods ran, in the whole seconds of their statuses.
type starts struct {
	pods int
	// last is the second in which the last pod began to run.
	last time.Time
	// longest is the most time of a pod from its creation.
	longest time.Duration
}

// running reads when the pods of the Deployments ran. It is one list, after the measurement: a watch of all pods would
// cost the server more than it measures.
func (c *cluster) running() (starts, error) {
	var all starts
	for next := ""; ; {
		var page struct {
			Metadata struct{ Continue string }
			Items    []struct {
				Metadata struct {
					Name              string
					CreationTimestamp time.Time
				}
				Status struct {
					Phase             string
					ContainerStatuses []struct {
						State struct {
							Running *struct{ StartedAt time.Time }
						}
					}
				}
			}
		}
		path := pods + "?limit=500&continue=" + url.QueryEscape(next)
		if err := c.get(path, func(body io.Reader) error { return json.NewDecoder(body).Decode(&page) }); err != nil {
			return all, err
		}
		for _, pod := range page.Items {
			if pod.Status.Phase != "Running" {
				return all, fmt.Errorf("pod %s is %s", pod.Metadata.Name, pod.Status.Phase)
			}
			all.pods++
			for _, container := range pod.Status.ContainerStatuses {
				if container.State.Running == nil {
					continue
				}
				started := container.State.Running.StartedAt
				if started.After(all.last) {
					all.last = started
				}
				all.longest = max(all.longest, started.Sub(pod.Metadata.CreationTimestamp))
			}
		}
		if next = page.Metadata.Continue; next == "" {
			return all, nil
		}
	}
}

func (c *cluster) createScaled(name string, replicas int) error {
	labels := map[string]any{"app": name}
	container := map[string]any{"name": "web", "image": "example.com/web:1"}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"replicas": replicas,
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{container}},
			},
		},
	})
	if err != nil {
		return err
	}
	response, err := c.client.Post(c.url+deployments, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}

// run prints how long the nodes and the pods of a load take, until they run and until their Deployments count them, and
// what they cost.
func (s scale) run(c *cluster, began time.Time) error {
	if err := until(c.leaseCount, s.nodes); err != nil {
		return err
	}
	up := time.Since(began)
	time.Sleep(5 * time.Second)
	idle, err := c.usage()
	if err != nil {
		return err
	}
	created := time.Now()
	for number := range s.deployments {
		if err := c.createScaled(fmt.Sprintf("web-%d", number), s.pods/s.deployments); err != nil {
			return err
		}
	}
	all := s.pods / s.deployments * s.deployments
	if err := until(c.available, all); err != nil {
		return err
	}
	took := time.Since(created)
	used, err := c.usage()
	if err != nil {
		return err
	}
	started, err := c.running()
	if err != nil {
		return err
	}
	if started.pods != all || started.last.IsZero() {
		return fmt.Errorf("%d pods run, not %d", started.pods, all)
	}
	// the last pod began within that second
	ran := started.last.Add(time.Second).Sub(created)
	fmt.Println("| nodes | until they have leases s | MB | pods | Deployments | until Running s (at most) | longest start of a pod s (±1) | until Available s | pods per s | CPU ms per pod | MB | kB per pod |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|---|")
	fmt.Printf("| %d | %.1f | %.0f | %d | %d | %.1f | %.0f | %.1f | %.0f | %.2f | %.0f | %.1f |\n",
		s.nodes, up.Seconds(), idle.megabytes, all, s.deployments, ran.Seconds(), started.longest.Seconds(),
		took.Seconds(), float64(all)/took.Seconds(),
		(used.cpuSeconds-idle.cpuSeconds)*1000/float64(all), used.megabytes,
		(used.megabytes-idle.megabytes)*1000/float64(all))
	return nil
}
