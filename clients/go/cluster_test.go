package pintle

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// childVariable makes the test program start a cluster, print its kubeconfig, and wait.
const childVariable = "PINTLE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	cluster, err := Start(context.Background(), Options{Components: []string{"apiserver"}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(cluster.KubeconfigPath())
	select {}
}

func TestClustersAreReadyForPodsAndStop(t *testing.T) {
	cluster, err := Start(context.Background(), Options{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	pod := `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	if _, err := cluster.Request(context.Background(), http.MethodPost, "/api/v1/namespaces/default/pods", []byte(pod)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(cluster.Kubeconfig()), cluster.URL()) || !strings.Contains(cluster.Log(), "is ready on") {
		t.Fatalf("%s\n%s", cluster.Kubeconfig(), cluster.Log())
	}
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cluster.KubeconfigPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the kubeconfig is still there: %v", err)
	}
}

func TestTheClockMovesOnRequest(t *testing.T) {
	ctx := context.Background()
	cluster := StartT(t, Options{Nodes: 1, ManualClock: true, Seed: 7})
	before, err := cluster.Clock().Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	move, err := cluster.Clock().Advance(ctx, 5*time.Minute, Pace{Step: time.Minute, Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if !move.Now.Equal(before.Add(5 * time.Minute)) {
		t.Fatalf("from %s to %s", before, move.Now)
	}
	if _, err := cluster.Clock().Settle(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
}

func TestARealClockIsNotMoved(t *testing.T) {
	cluster := StartT(t, Options{Components: []string{"apiserver"}})
	if _, err := cluster.Clock().Advance(context.Background(), time.Hour); err == nil || !strings.Contains(err.Error(), "ManualClock") {
		t.Fatal(err)
	}
}

func TestRequestsMeetTheFaultsOfRules(t *testing.T) {
	ctx := context.Background()
	atStart := FaultPlan{Rules: []FaultRule{{Verbs: []string{"list"}, Resources: []string{"secrets"}, Status: 500}}}
	cluster := StartT(t, Options{Components: []string{"apiserver"}, Faults: atStart})
	code := func(method, path string) int {
		_, err := cluster.Request(ctx, method, path, []byte(`{"metadata":{"name":"a"}}`))
		var status *StatusError
		if errors.As(err, &status) {
			return status.Code
		} else if err != nil {
			t.Fatal(err)
		}
		return 200
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	if got := code(http.MethodGet, "/api/v1/secrets"); got != 500 {
		t.Fatal(got)
	}
	rule := FaultRule{Verbs: []string{"create"}, Resources: []string{"configmaps"}, Status: 409, Times: 1}
	if err := cluster.Faults().Set(ctx, FaultPlan{Seed: 7, Rules: []FaultRule{rule}}); err != nil {
		t.Fatal(err)
	}
	if first, second := code(http.MethodPost, maps), code(http.MethodPost, maps); first != 409 || second != 200 {
		t.Fatal(first, second)
	}
	counts, err := cluster.Faults().Counts(ctx)
	if err != nil || len(counts) != 1 || counts[0] != (FaultCount{Matched: 2, Injected: 1}) {
		t.Fatal(counts, err)
	}
	err = cluster.Faults().Set(ctx, FaultPlan{Rules: []FaultRule{{Status: 200}}})
	if err == nil || !strings.Contains(err.Error(), "status") {
		t.Fatal(err)
	}
	if err := cluster.Faults().Clear(ctx); err != nil {
		t.Fatal(err)
	}
	if counts, err = cluster.Faults().Counts(ctx); err != nil || len(counts) != 0 {
		t.Fatal(counts, err)
	}
}

func TestForksHaveTheObjectsAndGoTheirOwnWay(t *testing.T) {
	ctx := context.Background()
	cluster := StartT(t, Options{Components: []string{"apiserver"}})
	const maps = "/api/v1/namespaces/default/configmaps"
	create := func(in *Cluster, name string) {
		t.Helper()
		if _, err := in.Request(ctx, http.MethodPost, maps, []byte(`{"metadata":{"name":"`+name+`"}}`)); err != nil {
			t.Fatal(err)
		}
	}
	create(cluster, "prepared")
	first, second := cluster.ForkT(t), cluster.ForkT(t)
	nested := first.ForkT(t)
	create(first, "own")
	for _, path := range []string{maps + "/prepared", maps + "/own"} {
		if _, err := first.Request(ctx, http.MethodGet, path, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []*Cluster{cluster, second} {
		if _, err := other.Request(ctx, http.MethodGet, maps+"/own", nil); err == nil {
			t.Fatal("a fork writes into another cluster")
		}
	}
	if _, err := os.Stat(first.KubeconfigPath()); err != nil || first.URL() == cluster.URL() {
		t.Fatal(err, first.URL())
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Request(ctx, http.MethodGet, maps, nil); err == nil {
		t.Fatal("a stopped fork answers")
	}
	if _, err := os.Stat(first.KubeconfigPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("the kubeconfig is still there", err)
	}
	// a fork stops with its parent
	if err := nested.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cluster.Stop(), second.Stop()); err != nil {
		t.Fatal(err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	_, err := Start(context.Background(), Options{Binary: "no-such-pintle"})
	if err == nil || !strings.Contains(err.Error(), "set the variable PINTLE") {
		t.Fatal(err)
	}
	_, err = Start(context.Background(), Options{Seed: 7})
	if err == nil || !strings.Contains(err.Error(), "--seed needs --clock manual") {
		t.Fatal(err)
	}
}

func TestAClusterGoesWhenItsTestIsKilled(t *testing.T) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVariable+"=1")
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	path, err := bufio.NewReader(stdout).ReadString('\n')
	path = strings.TrimSpace(path)
	if _, missing := os.Stat(path); err != nil || missing != nil {
		t.Fatalf("%s: %v, %v", path, err, missing)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	// the server deletes the file when it ends
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server is still there: %s", path)
		}
	}
}

func TestQuotedPathsAreRead(t *testing.T) {
	for word, path := range map[string]string{"/a/b": "/a/b", "'/a b'": "/a b", `'/a'\''b'`: "/a'b"} {
		if unquote(word) != path {
			t.Errorf("%s: %s", word, unquote(word))
		}
	}
}
