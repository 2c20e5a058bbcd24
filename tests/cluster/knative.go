package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	knativeNamespace = "knative-serving"
	knativeFeatures  = "config-features"
	knativeSecret    = "webhook-certs"
)

// modelServing are the features that pods which serve models want. Knative has all of them off; here they are on, and a
// test turns them off as an administrator does, in the ConfigMap.
var modelServing = []string{
	"kubernetes.podspec-affinity", "kubernetes.podspec-dnspolicy", "kubernetes.podspec-fieldref", "kubernetes.podspec-hostipc",
	"kubernetes.podspec-hostnetwork", "kubernetes.podspec-init-containers", "kubernetes.podspec-nodeselector",
	"kubernetes.podspec-persistent-volume-claim", "kubernetes.podspec-persistent-volume-write",
	"kubernetes.podspec-priorityclassname", "kubernetes.podspec-runtimeclassname", "kubernetes.podspec-schedulername",
	"kubernetes.podspec-securitycontext", "kubernetes.podspec-shareprocessnamespace", "kubernetes.podspec-tolerations",
	"kubernetes.podspec-topologyspreadconstraints", "kubernetes.podspec-volumes-hostpath",
}

// knativeWebhook runs Knative's own webhook outside the cluster. It makes its certificate, and writes it into its webhook
// configurations, itself. It listens on all interfaces and can't be told otherwise.
func (s *supervisor) knativeWebhook(p *part) (*exec.Cmd, bool, error) {
	cmd := exec.Command(s.options.program(neighbourKnative), "--kubeconfig="+s.path("etc", partKnative+".kubeconfig"), "--disable-ha")
	cmd.Env = append(os.Environ(),
		"SYSTEM_NAMESPACE="+knativeNamespace, "WEBHOOK_NAME=webhook",
		fmt.Sprintf("WEBHOOK_PORT=%d", p.port("webhook")), fmt.Sprintf("PROFILING_PORT=%d", p.port("profiling")),
	)
	return cmd, false, nil
}

// knativeServes looks whether it listens with the certificate that it has written into its Secret. Where it finds its port
// taken, it runs on without a server, and whoever has the port may speak TLS too.
func (s *supervisor) knativeServes(ctx context.Context, p *part) error {
	secret, err := s.kube.typed.CoreV1().Secrets(knativeNamespace).Get(ctx, knativeSecret, metav1.GetOptions{})
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca-cert.pem"]) {
		return fmt.Errorf("it hasn't made its certificate yet")
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "webhook." + knativeNamespace + ".svc"}}
	connection, err := dialer.DialContext(ctx, "tcp", loopback(p.port("webhook")))
	if err != nil {
		return err
	}
	return connection.Close()
}

// installKnative makes what the webhook finds in its namespace, starts it, points the API server at it, and waits until it
// really answers. No other part of Knative runs.
func (s *supervisor) installKnative(ctx context.Context) error {
	objects, err := s.knativeObjects()
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := s.kube.apply(ctx, object); err != nil {
			return err
		}
	}
	webhook := s.get(partKnative)
	if !webhook.process().running() {
		if err := webhook.start(ctx, s); err != nil {
			return err
		}
	}
	// Its port is known only now.
	configurations, err := s.knativeWebhooks()
	if err != nil {
		return err
	}
	for _, object := range configurations {
		if err := s.kube.apply(ctx, object); err != nil {
			return err
		}
	}
	return s.wait(ctx, "the webhooks of Knative", s.knativeAnswers)
}

// uninstallKnative leaves the namespace, which needs a controller manager to go.
func (s *supervisor) uninstallKnative(ctx context.Context) error {
	configurations, err := s.knativeWebhooks()
	if err != nil {
		return err
	}
	objects, err := s.knativeObjects()
	if err != nil {
		return err
	}
	for _, object := range append(configurations, objects...) {
		if object.GetKind() == "Namespace" {
			continue
		}
		if err := s.kube.remove(ctx, object); err != nil {
			return err
		}
	}
	if webhook := s.get(partKnative); webhook.process().running() {
		return webhook.stop(0)
	}
	return nil
}

// knativeObjects are its namespace, and in there its configuration and the empty Secret that it puts its certificate into,
// all from its module.
func (s *supervisor) knativeObjects() ([]*unstructured.Unstructured, error) {
	dir := filepath.Join(s.options.neighboursDir, neighbourKnative, "namespace")
	objects, err := readObjects(dir)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if object.GetName() != knativeFeatures {
			continue
		}
		for _, feature := range modelServing {
			if err := unstructured.SetNestedField(object.Object, "enabled", "data", feature); err != nil {
				return nil, err
			}
		}
		return objects, nil
	}
	return nil, fmt.Errorf("%s does not hold Knative's %s: run `pointsman-cluster fetch` again", dir, knativeFeatures)
}

// knativeWebhooks are the webhook configurations of its module, and the Service that they name: an ExternalName, which leads
// from the cluster to the loopback interface. Rules, paths and authority are filled in by Knative.
func (s *supervisor) knativeWebhooks() ([]*unstructured.Unstructured, error) {
	dir := filepath.Join(s.options.neighboursDir, neighbourKnative, "webhook")
	configurations, err := readObjects(dir)
	if err != nil {
		return nil, err
	}
	port := int64(s.get(partKnative).port("webhook"))
	for _, object := range configurations {
		hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return nil, err
		}
		for _, item := range hooks {
			hook, _ := item.(map[string]any)
			if err := unstructured.SetNestedField(hook, port, "clientConfig", "service", "port"); err != nil {
				return nil, err
			}
			// Knative gives itself 10 seconds. A test that lets it hang waits for them.
			hook["timeoutSeconds"] = int64(5)
		}
		if err := unstructured.SetNestedSlice(object.Object, hooks, "webhooks"); err != nil {
			return nil, err
		}
	}
	if len(configurations) != 3 {
		return nil, fmt.Errorf("%s does not hold Knative's three webhook configurations: run `pointsman-cluster fetch` again", dir)
	}
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "webhook", "namespace": knativeNamespace},
		"spec": map[string]any{
			"type": "ExternalName", "externalName": "localhost",
			"ports": []any{map[string]any{"name": "https-webhook", "port": port}},
		},
	}}
	return append(configurations, service), nil
}

var knativeResource = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}

// knativeAnswers creates a Service in a dry run that Knative refuses, and for the right reason alone: one that has not got its
// defaults before is refused for the lack of them too.
func (s *supervisor) knativeAnswers(ctx context.Context) error {
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "serving.knative.dev/v1", "kind": "Service",
		"metadata": map[string]any{"name": "pointsman-cluster-probe"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "queue-proxy", "image": "probe"}},
		}}},
	}}
	_, err := s.kube.dynamic.Resource(knativeResource).Namespace("default").
		Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return fmt.Errorf("they don't validate Services yet")
	case !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "reserved container name"):
		return err
	case strings.Contains(err.Error(), "Traffic targets"):
		return fmt.Errorf("they don't default Services yet")
	}
	return nil
}
