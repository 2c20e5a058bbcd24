package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/testing"

	"istio.io/istio/pilot/pkg/config/kube/crdclient"
	"istio.io/istio/pilot/pkg/config/kube/gateway"
	"istio.io/istio/pilot/pkg/status"
	"istio.io/istio/pilot/test/xds"
	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/test"
)

// writeStatuses has Istio write statuses, as the replica of it does that is the leader.
func writeStatuses(t test.Failer, server *xds.FakeDiscoveryServer) {
	stop := test.NewStop(t)
	client := server.KubeClient()
	keepSpecs(client.GatewayAPI())
	keepSpecs(client.GatewayAPIInference())
	schemas := collections.PilotGatewayAPI().Add(collections.InferencePool)
	store := crdclient.NewForSchemas(client, crdclient.Option{DomainSuffix: domain, Identifier: "statuses"}, schemas)
	client.RunAndWait(stop)
	go store.Run(stop)
	kube.WaitForCacheSync("statuses", stop, store.HasSynced)
	manager := status.NewManager(store)
	manager.Start(stop)
	server.Env().GatewayAPIController.(*gateway.Controller).SetStatusWrite(true, manager)
}

// keepSpecs has a client of tests change nothing but the status where that alone is to be changed, as the API server does.
func keepSpecs(client any) {
	fake := client.(interface {
		PrependReactor(verb, resource string, reaction testing.ReactionFunc)
		Tracker() testing.ObjectTracker
	})
	fake.PrependReactor("update", "*", func(action testing.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "status" {
			return false, nil, nil
		}
		merged, err := merge(fake.Tracker(), action.(testing.UpdateAction))
		return true, merged, err
	})
}

func merge(tracker testing.ObjectTracker, update testing.UpdateAction) (runtime.Object, error) {
	changed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(update.GetObject())
	if err != nil {
		return nil, err
	}
	name := update.GetObject().(interface{ GetName() string }).GetName()
	live, err := tracker.Get(update.GetResource(), update.GetNamespace(), name)
	if err != nil {
		return nil, fmt.Errorf("writing the status of %s: %w", name, err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	fields["status"] = changed["status"]
	merged := live.DeepCopyObject()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, merged); err != nil {
		return nil, err
	}
	return merged, tracker.Update(update.GetResource(), merged, update.GetNamespace())
}
