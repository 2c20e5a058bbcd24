package main

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
)

const (
	gatewayOf = `{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "g", "namespace": "ns"},
		"spec": {"gatewayClassName": "istio", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}}`
	podOf = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "a"}},
		"spec": {"containers": [{"name": "main", "ports": [{"name": "grpc", "containerPort": 7000}]}]},
		"status": {"podIP": "127.0.0.9"}}`
	serviceOf = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "ns"},
		"spec": {"selector": {"app": "a"}, "ports": [{"name": "grpc", "port": 9002, "targetPort": "grpc", "appProtocol": "http2"}]}}`
	poolOf = `{"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": "pool", "namespace": "ns"},
		"spec": {"selector": {"matchLabels": {"app": "a"}}, "targetPorts": [{"number": 8000}, {"number": 8001}],
			"endpointPickerRef": {"name": "s", "port": {"number": 9002}}}}`
	ruleOf = `{"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata": {"name": "s", "namespace": "ns"},
		"spec": {"host": "s"}}`
)

func list(items ...string) []byte {
	return []byte(`{"items": [` + strings.ReplaceAll(strings.Join(items, ","), "\n", " ") + `]}`)
}

func TestWhatKubernetesAndTheInstallerMakeIsAdded(t *testing.T) {
	found, err := read(list(gatewayOf, podOf, serviceOf, poolOf, ruleOf))
	if err != nil {
		t.Fatal(err)
	}
	if len(found.istio) != 2 || found.istio[1].GroupVersionKind.Kind != "DestinationRule" {
		t.Errorf("Istio's own kinds are %v", found.istio)
	}
	services, slices := 0, map[string]*discovery.EndpointSlice{}
	for _, object := range found.kubernetes {
		switch object := object.(type) {
		case *core.Service:
			services++
		case *discovery.EndpointSlice:
			service := object.Labels[discovery.LabelServiceName]
			if strings.HasPrefix(service, "pool-ip-") {
				service = "pool"
			}
			slices[service] = object
		}
	}
	if services != 2 || len(slices) != 3 {
		t.Fatalf("there are %d Services and %d EndpointSlices", services, len(slices))
	}
	for service, wanted := range map[string]struct {
		address string
		ports   []int32
	}{"g-istio": {gatewayAddress, []int32{80}}, "s": {"127.0.0.9", []int32{7000}}, "pool": {"127.0.0.9", []int32{8000, 8001}}} {
		slice := slices[service]
		if len(slice.Endpoints) != 1 || slice.Endpoints[0].Addresses[0] != wanted.address || len(slice.Ports) != len(wanted.ports) {
			t.Fatalf("of %s there is %+v", service, slice)
		}
		for at, port := range wanted.ports {
			if *slice.Ports[at].Port != port {
				t.Errorf("port %d of %s is %d", at, service, *slice.Ports[at].Port)
			}
		}
	}
}

func TestAQuestionThatCannotBeAnsweredIsRefused(t *testing.T) {
	for question, why := range map[string]string{
		`[]`:                               "not a List of objects",
		`{"items": []}`:                    "no Gateway",
		string(list(gatewayOf, gatewayOf)): "object 1: only one Gateway",
		`{"items": [{"apiVersion": "networking.istio.io/v1", "kind": "Unheard"}]}`: "object 0: Istio has no kind Unheard",
		`{"items": [{"kind": "Unheard-of"}]}`:                                      "object 0",
	} {
		if _, err := read([]byte(question)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", question, err)
		}
	}
}
