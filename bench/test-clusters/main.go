// Command test-clusters measures what a test pays for a cluster of its own: start, a Deployment of three replicas until it
// is Available, stop; many times, some at once.
//
//	test-clusters -tests 1000 -parallel 2             with the Go library; PINTLE is the program
//	test-clusters -tests 20 -servers envtest -wait=false
//	                                                  with controller-runtime's envtest and KUBEBUILDER_ASSETS; upstream's
//	                                                  programs have no loops that would make a Deployment Available
//	test-clusters -pods 20000 -deployments 20 -nodes 5000
//	                                                  one cluster with many pods: until all are Available, CPU time, memory
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	pintle "github.com/pintle/pintle/clients/go"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	deployments = "/apis/apps/v1/namespaces/default/deployments"
	deployment  = `{"metadata":{"name":"web"},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},
		"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"example.com/web:1"}]}}}}`
)

// cluster is a started cluster: how it is called, and how it stops.
type cluster struct {
	url    string
	client *http.Client
	stop   func() error
}

func startPintle(nodes int) (*cluster, error) {
	started, err := pintle.Start(context.Background(), pintle.Options{Nodes: nodes})
	if err != nil {
		return nil, err
	}
	return &cluster{started.URL(), started.HTTPClient(), started.Stop}, nil
}

func startEnvtest() (*cluster, error) {
	environment := &envtest.Environment{}
	config, err := environment.Start()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	return &cluster{strings.TrimSuffix(config.Host, "/"), client, environment.Stop}, err
}

func (c *cluster) create() error {
	response, err := c.client.Post(c.url+deployments, "application/json", bytes.NewBufferString(deployment))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	return nil
}

// untilAvailable watches the Deployment.
func (c *cluster) untilAvailable() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+deployments+"?watch=1", nil)
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for events := json.NewDecoder(response.Body); ; {
		var event struct {
			Object struct {
				Status struct{ AvailableReplicas int }
			}
		}
		if err := events.Decode(&event); err != nil {
			return fmt.Errorf("the Deployment is not Available: %w", err)
		}
		if event.Object.Status.AvailableReplicas == 3 {
			return nil
		}
	}
}

// phases are the durations of one test.
type phases struct{ start, available, stop time.Duration }

func test(start func() (*cluster, error), wait bool) (phases, error) {
	began := time.Now()
	cluster, err := start()
	if err != nil {
		return phases{}, err
	}
	started := time.Now()
	err = cluster.create()
	if err == nil && wait {
		err = cluster.untilAvailable()
	}
	available := time.Now()
	cluster.client.CloseIdleConnections()
	err = errors.Join(err, cluster.stop())
	return phases{started.Sub(began), available.Sub(started), time.Since(available)}, err
}

// measure runs the tests, some at once.
func measure(tests, parallel int, run func() (phases, error)) ([]phases, error) {
	var mutex sync.Mutex
	var results []phases
	var failure error
	var workers sync.WaitGroup
	left := make(chan struct{}, tests)
	for range tests {
		left <- struct{}{}
	}
	close(left)
	for range parallel {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for range left {
				result, err := run()
				mutex.Lock()
				results, failure = append(results, result), errors.Join(failure, err)
				stop := failure != nil
				mutex.Unlock()
				if stop {
					return
				}
			}
		}()
	}
	workers.Wait()
	return results, failure
}

// quantiles are the median and the 99th percentile of a phase, as a cell.
func quantiles(results []phases, phase func(phases) time.Duration) string {
	values := make([]time.Duration, 0, len(results))
	for _, result := range results {
		values = append(values, phase(result))
	}
	sort.Slice(values, func(a, b int) bool { return values[a] < values[b] })
	at := func(share int) float64 { return float64(values[(len(values)-1)*share/100].Microseconds()) / 1000 }
	return fmt.Sprintf("%.0f / %.0f", at(50), at(99))
}

func runScale(load scale) error {
	began := time.Now()
	cluster, err := startPintle(load.nodes)
	if err != nil {
		return err
	}
	err = load.run(cluster, began)
	cluster.client.CloseIdleConnections()
	return errors.Join(err, cluster.stop())
}

func main() {
	tests := flag.Int("tests", 100, "the number of tests, each with a cluster of its own")
	parallel := flag.Int("parallel", 1, "how many run at once")
	nodes := flag.Int("nodes", 3, "the number of simulated nodes")
	servers := flag.String("servers", "pintle", "pintle: the library; envtest: the programs of KUBEBUILDER_ASSETS")
	wait := flag.Bool("wait", true, "wait until the Deployment is Available; otherwise it is created only")
	pods := flag.Int("pods", 0, "the number of pods of one cluster, in place of many tests")
	count := flag.Int("deployments", 20, "the number of Deployments that have the pods")
	flag.Parse()

	if *pods > 0 {
		load := scale{nodes: *nodes, pods: *pods, deployments: max(*count, 1)}
		if err := runScale(load); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}

	start := func() (*cluster, error) { return startPintle(*nodes) }
	if *servers == "envtest" {
		log.SetLogger(logr.Discard())
		start = startEnvtest
	}
	run := func() (phases, error) { return test(start, *wait) }
	began := time.Now()
	results, err := measure(*tests, *parallel, run)
	total := time.Since(began)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage)
	cpu := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	together := func(p phases) time.Duration { return p.start + p.available }
	fmt.Println("| tests | at once | total s | start ms (median / p99) | Deployment ms | both ms | stop ms | CPU ms of servers per test |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	fmt.Printf("| %d | %d | %.1f | %s | %s | %s | %s | %d |\n", *tests, *parallel, total.Seconds(),
		quantiles(results, func(p phases) time.Duration { return p.start }),
		quantiles(results, func(p phases) time.Duration { return p.available }),
		quantiles(results, together),
		quantiles(results, func(p phases) time.Duration { return p.stop }),
		cpu.Milliseconds()/int64(*tests))
}
