// Package suite is a suite of envtest in the manner of an operator's: definitions and webhooks are installed, objects
// created, refused and deleted, the servers stopped and started again. It compiles with old and new releases of
// controller-runtime; the one of a run is chosen by the file of modules.
package suite

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const path = "/validate"

var widgets = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

func definition() *apiextensionsv1.CustomResourceDefinition {
	object := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}},
	}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: widgets.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: widgets.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &object},
			}},
		},
	}
}

func webhook() *admissionregistrationv1.ValidatingWebhookConfiguration {
	location, effects, fail := path, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "widgets.example.com", SideEffects: &effects, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			// envtest replaces the service by the address of the test
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Name: "webhook", Namespace: "default", Path: &location},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{widgets.Group}, APIVersions: []string{"*"}, Resources: []string{"widgets"},
				},
			}},
		}},
	}
}

// validate refuses widgets of size 13.
func validate(writer http.ResponseWriter, request *http.Request) {
	var review admissionv1.AdmissionReview
	var widget struct{ Spec struct{ Size int } }
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	err := json.Unmarshal(review.Request.Object.Raw, &widget)
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: err == nil && widget.Spec.Size != 13}
	review.Response.Result = &metav1.Status{Message: "no widget has size 13"}
	review.Request = nil
	writer.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(writer).Encode(review)
}

func start(t *testing.T, environment *envtest.Environment) client.Client {
	t.Helper()
	// whatever fails, no server outlives its test
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// serve is a server of webhooks, at the address that envtest has put into the configuration.
func serve(t *testing.T, options envtest.WebhookInstallOptions) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc(path, validate)
	address := options.LocalServingHost + ":" + strconv.Itoa(options.LocalServingPort)
	server := &http.Server{Addr: address, Handler: mux}
	files := options.LocalServingCertDir
	go func() {
		if err := server.ListenAndServeTLS(filepath.Join(files, "tls.crt"), filepath.Join(files, "tls.key")); err != http.ErrServerClosed {
			t.Error(err)
		}
	}()
	return server
}

func widget(name string, size int64) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(widgets)
	object.SetNamespace("default")
	object.SetName(name)
	_ = unstructured.SetNestedField(object.Object, size, "spec", "size")
	return object
}

// until repeats a check, since servers start beside the test.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestDefinitionsAndWebhooksAreInstalledAtEveryStart(t *testing.T) {
	for _, round := range []string{"first", "second"} {
		t.Run(round, installed)
	}
}

func installed(t *testing.T) {
	ctx := context.Background()
	environment := &envtest.Environment{
		CRDs:                  []*apiextensionsv1.CustomResourceDefinition{definition()},
		WebhookInstallOptions: envtest.WebhookInstallOptions{ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{webhook()}},
	}
	api := start(t, environment)
	server := serve(t, environment.WebhookInstallOptions)
	defer server.Close()
	var err error
	until(t, "a widget is created", func() bool {
		err = api.Create(ctx, widget("small", 1))
		return err == nil || !strings.Contains(err.Error(), "connection refused")
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Create(ctx, widget("unlucky", 13)); err == nil || !strings.Contains(err.Error(), "no widget has size 13") {
		t.Errorf("a widget of size 13: %v", err)
	}
	bad := widget("bad", 1)
	_ = unstructured.SetNestedField(bad.Object, "large", "spec", "size")
	if err := api.Create(ctx, bad); !apierrors.IsInvalid(err) {
		t.Errorf("a size that is no number: %v", err)
	}
	if err := api.Delete(ctx, widget("small", 1)); err != nil {
		t.Error(err)
	}
	if err := api.Get(ctx, client.ObjectKeyFromObject(widget("small", 1)), widget("small", 1)); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted widget: %v", err)
	}
	// it would be in the way if it were still there after the next start
	if err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "left"}}); err != nil {
		t.Error(err)
	}
}

func TestUsersHaveTheRightsOfTheirGroups(t *testing.T) {
	ctx := context.Background()
	environment := &envtest.Environment{}
	start(t, environment)
	user, err := environment.AddUser(envtest.User{Name: "ann", Groups: []string{"readers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(user.Config(), client.Options{})
	if err == nil {
		err = api.List(ctx, &corev1.SecretList{})
	}
	if !apierrors.IsForbidden(err) {
		t.Fatalf("a user without a role: %v", err)
	}
}

func TestADeploymentBecomesAvailable(t *testing.T) {
	if os.Getenv("PINTLE_ENVTEST") != "full" {
		t.Skip("PINTLE_ENVTEST is not full: there are no control loops and no nodes")
	}
	ctx := context.Background()
	environment := &envtest.Environment{}
	api := start(t, environment)
	labels, replicas := map[string]string{"app": "web"}, int32(3)
	web := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web:1"}}},
			},
		},
	}
	if err := api.Create(ctx, web); err != nil {
		t.Fatal(err)
	}
	until(t, "three replicas are available", func() bool {
		err := api.Get(ctx, client.ObjectKeyFromObject(web), web)
		return err == nil && web.Status.AvailableReplicas == replicas
	})
}
