package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	inference "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayapi "sigs.k8s.io/gateway-api/apis/v1"

	"istio.io/istio/pilot/pkg/config/kube/crd"
	"istio.io/istio/pilot/pkg/config/kube/gateway"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/kube"
)

const (
	domain = "cluster.local"

	// gatewayAddress is that of Envoy's pod, by which Istio finds its Service. Nothing is sent to it.
	gatewayAddress = "192.0.2.1"

	gatewayName = "gateway.networking.k8s.io/gateway-name"
)

// onLoopback puts Envoy's listeners on loopback, at any port.
const onLoopback = `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: on-loopback, namespace: istio-system}
spec:
  configPatches:
  - applyTo: LISTENER
    match: {context: GATEWAY}
    patch:
      operation: MERGE
      value: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
`

// objects is a question: what a cluster has.
type objects struct {
	kubernetes []runtime.Object
	// istio has Istio's own kinds.
	istio   []config.Config
	gateway *gatewayapi.Gateway
}

func read(question []byte) (*objects, error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(question, &list); err != nil {
		return nil, fmt.Errorf("the question is not a List of objects: %w", err)
	}
	found := &objects{}
	if err := found.addIstio(onLoopback); err != nil {
		return nil, err
	}
	for number, item := range list.Items {
		if err := found.add(item); err != nil {
			return nil, fmt.Errorf("object %d: %w", number, err)
		}
	}
	if found.gateway == nil {
		return nil, errors.New("the question has no Gateway")
	}
	service, pod := installed(found.gateway)
	found.kubernetes = append(found.kubernetes, service, pod)
	return found, found.addEndpoints()
}

func (o *objects) add(item json.RawMessage) error {
	var kind meta.TypeMeta
	if err := json.Unmarshal(item, &kind); err != nil {
		return err
	}
	if strings.HasSuffix(kind.GroupVersionKind().Group, ".istio.io") {
		return o.addIstio(string(item))
	}
	object, _, err := kube.IstioCodec.UniversalDeserializer().Decode(item, nil, nil)
	if err != nil {
		return err
	}
	if found, is := object.(*gatewayapi.Gateway); is {
		if o.gateway != nil {
			return errors.New("only one Gateway can be served")
		}
		o.gateway = found
	}
	o.kubernetes = append(o.kubernetes, object)
	return nil
}

func (o *objects) addIstio(object string) error {
	configs, unknown, err := crd.ParseInputs(object)
	if err != nil {
		return err
	}
	if len(unknown) > 0 {
		return fmt.Errorf("Istio has no kind %s", unknown[0].Kind)
	}
	for _, config := range configs {
		config.Domain = domain
		o.istio = append(o.istio, config)
	}
	return nil
}

// installed is what Istio makes of a Gateway in a cluster, as far as its translation asks for it: the Service, and Envoy's pod.
func installed(of *gatewayapi.Gateway) (*core.Service, *core.Pod) {
	name := of.Name + "-istio"
	about := meta.ObjectMeta{Name: name, Namespace: of.Namespace, Labels: map[string]string{gatewayName: of.Name}}
	service := &core.Service{ObjectMeta: about, Spec: core.ServiceSpec{ClusterIP: "192.0.2.2", Selector: about.Labels}}
	for _, listener := range of.Spec.Listeners {
		service.Spec.Ports = append(service.Spec.Ports, core.ServicePort{
			Name: string(listener.Name), Port: int32(listener.Port), TargetPort: intstr.FromInt32(int32(listener.Port)),
		})
	}
	ready := []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}
	addresses := []core.PodIP{{IP: gatewayAddress}}
	return service, &core.Pod{
		ObjectMeta: about,
		Status:     core.PodStatus{Phase: core.PodRunning, PodIP: gatewayAddress, PodIPs: addresses, Conditions: ready},
	}
}

// addEndpoints makes the EndpointSlices that Kubernetes makes of the Services, and of those that Istio makes of InferencePools.
func (o *objects) addEndpoints() error {
	for _, object := range o.kubernetes {
		switch object := object.(type) {
		case *core.Service:
			o.addSlice(object.Namespace, object.Name, object.Spec.Selector, object.Spec.Ports)
		case *inference.InferencePool:
			name, err := gateway.InferencePoolServiceName(object.Name)
			if err != nil {
				return err
			}
			selector := map[string]string{}
			for key, value := range object.Spec.Selector.MatchLabels {
				selector[string(key)] = string(value)
			}
			var ports []core.ServicePort
			for number, port := range object.Spec.TargetPorts {
				ports = append(ports, core.ServicePort{Name: fmt.Sprintf("http-%d", number), TargetPort: intstr.FromInt(int(port.Number))})
			}
			o.addSlice(object.Namespace, name, selector, ports)
		}
	}
	return nil
}

// addSlice makes a slice of the pods that are selected. Ports with a name are those of the last of them.
func (o *objects) addSlice(namespace, service string, selector map[string]string, ports []core.ServicePort) {
	slice := &discovery.EndpointSlice{
		ObjectMeta:  meta.ObjectMeta{Name: service, Namespace: namespace, Labels: map[string]string{discovery.LabelServiceName: service}},
		AddressType: discovery.AddressTypeIPv4,
	}
	numbers := make([]int32, len(ports))
	for _, object := range o.kubernetes {
		pod, is := object.(*core.Pod)
		if !is || pod.Namespace != namespace || !labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
			continue
		}
		slice.Endpoints = append(slice.Endpoints, discovery.Endpoint{
			Addresses:  []string{pod.Status.PodIP},
			Conditions: discovery.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			TargetRef:  &core.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
		})
		for at, port := range ports {
			numbers[at] = numberOf(pod, port.TargetPort)
		}
	}
	for at, port := range ports {
		slice.Ports = append(slice.Ports, discovery.EndpointPort{Name: &port.Name, Port: &numbers[at], AppProtocol: port.AppProtocol})
	}
	o.kubernetes = append(o.kubernetes, slice)
}

func numberOf(pod *core.Pod, port intstr.IntOrString) int32 {
	for _, container := range pod.Spec.Containers {
		for _, named := range container.Ports {
			if port.Type == intstr.String && named.Name == port.StrVal {
				return named.ContainerPort
			}
		}
	}
	return port.IntVal
}
