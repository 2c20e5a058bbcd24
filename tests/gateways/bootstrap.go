package main

import (
	"fmt"

	gatewayapi "sigs.k8s.io/gateway-api/apis/v1"
)

// bootstrap has Envoy ask the discovery server for everything, as the pod of a Gateway.
func bootstrap(of *gatewayapi.Gateway, discoveryPort int) map[string]any {
	type object = map[string]any
	socket := func(port int) object {
		return object{"socket_address": object{"address": "127.0.0.1", "port_value": port}}
	}
	const discovery = "xds-grpc"
	ads := object{"ads": object{}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
	http2 := object{
		"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
		"explicit_http_config": object{"http2_protocol_options": object{}},
	}
	name := of.Name + "-istio"
	return object{
		"admin": object{"address": socket(0)},
		"node": object{
			"id":      fmt.Sprintf("router~%s~%s.%s~%s.svc.%s", gatewayAddress, name, of.Namespace, of.Namespace, domain),
			"cluster": name + "." + of.Namespace,
			"metadata": object{
				"CLUSTER_ID": "Kubernetes", "NAMESPACE": of.Namespace, "NAME": name, "LABELS": object{gatewayName: of.Name},
			},
		},
		"dynamic_resources": object{
			"lds_config": ads,
			"cds_config": ads,
			"ads_config": object{
				"api_type": "DELTA_GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": true,
				"grpc_services": []any{object{"envoy_grpc": object{"cluster_name": discovery}}},
			},
		},
		"static_resources": object{"clusters": []any{object{
			"name": discovery, "type": "STATIC", "connect_timeout": "10s",
			"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
			"load_assignment": object{
				"cluster_name": discovery,
				"endpoints":    []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": socket(discoveryPort)}}}}},
			},
		}}},
	}
}
