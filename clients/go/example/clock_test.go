package example

import (
	"context"
	"testing"
	"time"

	pintle "github.com/pintle/pintle/clients/go"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func TestACronJobRunsEveryHour(t *testing.T) {
	ctx := context.Background()
	cluster := pintle.StartT(t, pintle.Options{Nodes: 1, ManualClock: true, Seed: 7})
	config, err := clientcmd.BuildConfigFromFlags("", cluster.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	if _, err := client.BatchV1().CronJobs("default").Create(ctx, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "report"},
		Spec: batchv1.CronJobSpec{
			Schedule: "0 * * * *",
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "report", Image: "example.com/report:1"}},
			}}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	move, err := cluster.Clock().Advance(ctx, 3*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	jobs := 0
	for _, change := range move.Changes {
		if change.Type == "ADDED" && change.Resource == "jobs.batch" {
			jobs++
		}
	}
	if jobs != 3 {
		t.Fatalf("%d jobs", jobs)
	}
	job, err := client.BatchV1().CronJobs("default").Get(ctx, "report", metav1.GetOptions{})
	if err != nil || job.Status.LastSuccessfulTime == nil {
		t.Fatal(err, job.Status)
	}
}
