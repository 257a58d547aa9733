package example

import (
	"context"
	"testing"
	"time"

	pintle "github.com/pintle/pintle/clients/go"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func TestADeploymentBecomesAvailable(t *testing.T) {
	cluster := pintle.StartT(t, pintle.Options{Nodes: 3})
	config, err := clientcmd.BuildConfigFromFlags("", cluster.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	deployments := client.AppsV1().Deployments("default")

	ctx, replicas := context.Background(), int32(3)
	if _, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web:1"}}},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		web, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		return err == nil && web.Status.AvailableReplicas == replicas, err
	})
	if err != nil {
		t.Fatal(err)
	}
}
