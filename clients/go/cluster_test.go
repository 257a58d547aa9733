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
