package example

import (
	"context"
	"testing"
	"time"

	pintle "github.com/pintle/pintle/clients/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// drainer marks the nodes whose pods should go.
type drainer struct{ client.Client }

func (d drainer) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var node corev1.Node
	if err := d.Get(ctx, request.NamespacedName, &node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if node.Annotations["example.com/drain"] == "" || node.Spec.Unschedulable {
		return ctrl.Result{}, nil
	}
	patch := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = true
	return ctrl.Result{}, d.Patch(ctx, &node, patch)
}

func TestTheControllerCordonsNodes(t *testing.T) {
	cluster := pintle.StartT(t, pintle.Options{Nodes: 2})
	config, err := clientcmd.BuildConfigFromFlags("", cluster.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.Node{}).Complete(drainer{manager.GetClient()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- manager.Start(ctx) }()

	direct, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}
	annotation := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"example.com/drain":"yes"}}}`))
	if err := direct.Patch(ctx, node, annotation); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := direct.Get(ctx, client.ObjectKeyFromObject(node), node)
		return node.Spec.Unschedulable, err
	})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}
