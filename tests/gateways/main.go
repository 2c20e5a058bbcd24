// Command istio-for-tests is Istio's control plane for one Gateway, without a cluster: Istio's own controllers translate a Gateway, its
// HTTPRoutes and their InferencePools, and Istio's own discovery server gives the outcome to a real Envoy.
//
// It reads a question, a line of JSON, and answers with a line of JSON: Envoy's bootstrap. Then it serves until standard input ends.
//
// What isn't as in a cluster:
//   - Objects come from the question, into the client that Istio's own tests use: the API server takes no EndpointSlices of loopback.
//     What Kubernetes makes of Services and Pods, and Istio's installer of a Gateway, is made here (objects.go). Istio writes everything
//     else, such as the Service that it makes of an InferencePool, and statuses, on which its translation depends.
//   - Envoy's listeners are on loopback, at any port, by an EnvoyFilter.
//   - Envoy asks the discovery server itself, and without TLS: there is no agent beside it. Since that would also bring the certificates
//     by which gateways and sidecars know each other, automatic mTLS is off; no pod has a sidecar anyway.
//   - Envoy isn't Istio's build, so Istio leaves out the filters that only that has: those for metrics, metadata exchange, and ALPN.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	inference "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"istio.io/istio/pilot/pkg/features"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/test/xds"
	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/schema/gvr"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/kube/kclient/clienttest"
	"istio.io/istio/pkg/log"
	"istio.io/istio/pkg/test"
	"istio.io/istio/pkg/test/util/retry"
)

// longestQuestion is far more than a test asks.
const longestQuestion = 8 << 20

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	// What isn't an answer goes to standard error.
	options := log.DefaultOptions()
	options.OutputPaths = []string{"stderr"}
	if err := log.Configure(options); err != nil {
		return fmt.Errorf("setting up the log: %w", err)
	}
	line, err := readQuestion(in)
	if err != nil {
		return err
	}
	objects, err := read(line)
	if err != nil {
		return err
	}
	features.EnableGatewayAPIInferenceExtension = true
	features.MetadataExchange = false
	features.ALPNFilter = false
	// Istio's tests fail by ending their goroutine, which Wrap turns into an error.
	return test.Wrap(func(t test.Failer) { serve(t, objects, in, out) })
}

// readQuestion reads the first line. Nothing is expected after it but the end.
func readQuestion(in io.Reader) ([]byte, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), longestQuestion)
	if !lines.Scan() {
		return nil, errors.Join(errors.New("no question came on standard input"), lines.Err())
	}
	return lines.Bytes(), nil
}

func serve(t test.Failer, objects *objects, in io.Reader, out io.Writer) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	settings := mesh.DefaultMeshConfig()
	settings.EnableAutoMtls = wrapperspb.Bool(false)
	server := xds.NewFakeDiscoveryServer(t, xds.FakeOptions{
		MeshConfig:         settings,
		KubernetesObjects:  objects.kubernetes,
		Configs:            objects.istio,
		KubeClientModifier: func(c kube.Client) { clienttest.MakeCRD(t, c, gvr.InferencePool) },
		ListenerBuilder:    func() (net.Listener, error) { return listener, nil },
	})
	writeStatuses(t, server)
	waitForPools(t, server, objects)
	if err := json.NewEncoder(out).Encode(bootstrap(objects.gateway, listener.Addr().(*net.TCPAddr).Port)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Fatal(err)
	}
}

// waitForPools waits until Istio reports that all pools are in use, so that Envoy gets the final configuration first.
func waitForPools(t test.Failer, server *xds.FakeDiscoveryServer, objects *objects) {
	const limit = 5 * time.Minute
	for _, object := range objects.kubernetes {
		pool, is := object.(*inference.InferencePool)
		if !is {
			continue
		}
		pools := server.KubeClient().GatewayAPIInference().InferenceV1().InferencePools(pool.Namespace)
		retry.UntilSuccessOrFail(t, func() error {
			found, err := pools.Get(context.Background(), pool.Name, meta.GetOptions{})
			if err != nil {
				return err
			}
			return inUse(found)
		}, retry.Timeout(limit), retry.Message(fmt.Sprintf("Istio doesn't report that the InferencePool %s is in use", pool.Name)))
	}
	server.Discovery.ConfigUpdate(&model.PushRequest{Forced: true, Reason: model.NewReasonStats(model.ConfigUpdate)})
	server.EnsureSynced(t)
}

func inUse(pool *inference.InferencePool) error {
	if len(pool.Status.Parents) != 1 {
		return fmt.Errorf("its status has %d parents", len(pool.Status.Parents))
	}
	for _, condition := range pool.Status.Parents[0].Conditions {
		if condition.Status != meta.ConditionTrue {
			return fmt.Errorf("%s is %s: %s", condition.Type, condition.Status, condition.Message)
		}
	}
	return nil
}
