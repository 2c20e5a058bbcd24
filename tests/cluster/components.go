package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// serviceRange holds a million Services, more than any test makes.
const serviceRange = "10.96.0.0/12"

// defineParts describes every component; which of them are started at once is the caller's choice.
func (s *supervisor) defineParts() {
	s.add(&part{name: partEtcd, portNames: []string{"client", "peer"}, command: s.etcd,
		ready: s.https("client", "/health")})
	s.add(&part{name: partAPIServer, portNames: []string{"https"}, command: s.apiServer,
		given: s.options.givenPorts(), ready: s.https("https", "/readyz")})
	s.add(&part{name: partControllerManager, portNames: []string{"https"}, command: s.controllerManager,
		ready: s.https("https", "/healthz")})
	s.add(&part{name: partScheduler, portNames: []string{"https"}, command: s.scheduler,
		ready: s.https("https", "/healthz")})
	s.add(&part{name: partKwok, portNames: []string{"kubelet"}, command: s.kwok,
		ready: s.https("kubelet", "/healthz")})
	s.add(&part{name: partMetrics, portNames: []string{"https"}, command: s.metricsServer,
		ready: s.https("https", "/livez")})
	s.add(&part{name: partLWS, portNames: []string{"webhook", "health"}, command: s.lwsManager,
		ready: func(ctx context.Context, p *part) error {
			return s.answers(ctx, "http://"+loopback(p.port("health"))+"/readyz")
		}})
	s.add(&part{name: partKnative, portNames: []string{"webhook", "profiling"}, command: s.knativeWebhook, ready: s.knativeServes})
	s.add(&part{name: partKueue, portNames: []string{"webhook", "health"}, command: s.kueueManager, ready: s.kueueServes})
}

func (s *supervisor) https(port, path string) func(context.Context, *part) error {
	return func(ctx context.Context, p *part) error {
		return s.answers(ctx, "https://"+loopback(p.port(port))+path)
	}
}

// component runs one linked-in part, or the binary of that name in the directory that KUBEBUILDER_ASSETS names.
func (s *supervisor) component(name, assetName string, flags ...string) (*exec.Cmd, bool, error) {
	if s.options.assets != "" && assetName != "" {
		path := filepath.Join(s.options.assets, assetName)
		if _, err := os.Stat(path); err == nil {
			return exec.Command(path, flags...), false, nil
		}
	}
	return exec.Command(s.self, append([]string{"part", name}, flags...)...), true, nil
}

func (s *supervisor) etcd(p *part) (*exec.Cmd, bool, error) {
	client := "https://" + loopback(p.port("client"))
	peer := "http://" + loopback(p.port("peer"))
	return s.component(partEtcd, "etcd",
		"--name=default",
		"--data-dir="+s.path("etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--cert-file="+s.pki("server.crt"), "--key-file="+s.pki("server.key"),
		"--trusted-ca-file="+s.pki("ca.crt"), "--client-cert-auth=true",
		"--unsafe-no-fsync=true", // nobody wants this data after a power cut
		"--log-level=warn",
	)
}

func (s *supervisor) apiServer(p *part) (*exec.Cmd, bool, error) {
	flags := append(s.gateFlags(),
		"--etcd-servers=https://"+loopback(s.get(partEtcd).port("client")),
		"--etcd-cafile="+s.pki("ca.crt"), "--etcd-certfile="+s.pki("etcd-client.crt"), "--etcd-keyfile="+s.pki("etcd-client.key"),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.port("https")),
		// Without it the API server looks for a default route and dies where there is none.
		"--advertise-address=127.0.0.1",
		// A loopback address can't be an endpoint of the `kubernetes` Service; nothing here runs in the cluster anyway.
		"--endpoint-reconciler-type=none",
		"--tls-cert-file="+s.pki("server.crt"), "--tls-private-key-file="+s.pki("server.key"),
		"--client-ca-file="+s.pki("ca.crt"),
		"--requestheader-client-ca-file="+s.pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+s.pki("front-proxy-client.crt"), "--proxy-client-key-file="+s.pki("front-proxy-client.key"),
		"--kubelet-certificate-authority="+s.pki("ca.crt"),
		"--kubelet-client-certificate="+s.pki("admin.crt"), "--kubelet-client-key="+s.pki("admin.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+s.pki("sa.pub"), "--service-account-signing-key-file="+s.pki("sa.key"),
		"--service-cluster-ip-range="+serviceRange,
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--audit-policy-file="+s.path("etc", "audit-policy.yaml"), "--audit-log-path="+s.path("audit.log"),
		// Blocking: a request is answered after its line is written, so whoever counts lines counts all of them.
		"--audit-log-mode=blocking", "--audit-log-maxsize=100000",
		"--shutdown-delay-duration=0s",
		"--profiling=false",
	)
	if s.options.apis != "" {
		flags = append(flags, "--runtime-config="+s.options.apis)
	}
	return s.component(partAPIServer, "kube-apiserver", flags...)
}

// gateFlags are the feature gates, which all of Kubernetes' own parts share.
func (s *supervisor) gateFlags() []string {
	if s.options.gates == "" {
		return nil
	}
	return []string{"--feature-gates=" + s.options.gates}
}

func (s *supervisor) controllerManager(p *part) (*exec.Cmd, bool, error) {
	flags := append(s.controllerFlags(partControllerManager, p.port("https")),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+s.pki("sa.key"), "--root-ca-file="+s.pki("ca.crt"),
		"--cluster-signing-cert-file="+s.pki("ca.crt"), "--cluster-signing-key-file="+s.pki("ca.key"),
		"--leader-elect=false",
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--horizontal-pod-autoscaler-sync-period=5s",
		"--profiling=false",
	)
	return s.component(partControllerManager, "", flags...)
}

func (s *supervisor) scheduler(p *part) (*exec.Cmd, bool, error) {
	config, err := s.schedulerConfig()
	if err != nil {
		return nil, false, err
	}
	flags := append(s.controllerFlags(partScheduler, p.port("https")), "--config="+config)
	return s.component(partScheduler, "", flags...)
}

// controllerFlags are what the controller manager and the scheduler share.
func (s *supervisor) controllerFlags(name string, port int) []string {
	own := s.path("etc", name+".kubeconfig")
	return append(s.gateFlags(),
		"--kubeconfig="+own, "--authentication-kubeconfig="+own, "--authorization-kubeconfig="+own,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file="+s.pki("server.crt"), "--tls-private-key-file="+s.pki("server.key"),
	)
}

// schedulerConfig writes the scheduler's configuration: the user's file, read again at every start, with the connection
// and leader election settings that this instance needs.
func (s *supervisor) schedulerConfig() (string, error) {
	config := map[string]any{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
	if s.options.schedulerConfig != "" {
		text, err := os.ReadFile(s.options.schedulerConfig)
		if err != nil {
			return "", fmt.Errorf("the scheduler's configuration can't be read: %w", err)
		}
		config = nil
		if err := yaml.Unmarshal(text, &config); err != nil || config == nil {
			return "", fmt.Errorf("the scheduler's configuration %s is not a YAML mapping", s.options.schedulerConfig)
		}
	}
	config["clientConnection"] = map[string]any{
		"kubeconfig": s.path("etc", partScheduler+".kubeconfig"), "qps": 500, "burst": 1000,
	}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	text, err := yaml.Marshal(config)
	if err != nil {
		return "", err
	}
	path := s.path("etc", "scheduler.yaml")
	return path, os.WriteFile(path, text, 0o600)
}

func (s *supervisor) kwok(p *part) (*exec.Cmd, bool, error) {
	cmd, own, err := s.component(partKwok, "",
		"--kubeconfig="+s.path("etc", partKwok+".kubeconfig"),
		"--config="+s.path("etc", "kwok-nodes.yaml"), "--config="+s.path("etc", "kwok-pods.yaml"),
		"--config="+s.path("etc", "kwok-usage.yaml"),
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
		"--node-ip=127.0.0.1", fmt.Sprintf("--node-port=%d", p.port("kubelet")),
		"--server-address="+loopback(p.port("kubelet")),
		"--tls-cert-file="+s.pki("server.crt"), "--tls-private-key-file="+s.pki("server.key"),
		"--node-lease-duration-seconds=40",
		"--cidr=10.244.0.0/16",
	)
	if err == nil {
		// kwok would add a configuration of the user's home directory to ours.
		cmd.Env = append(os.Environ(), "HOME="+s.path("etc"), "KWOK_WORKDIR="+s.path("etc"))
	}
	return cmd, own, err
}

func (s *supervisor) metricsServer(p *part) (*exec.Cmd, bool, error) {
	own := s.path("etc", partMetrics+".kubeconfig")
	return s.component(partMetrics, "",
		"--kubeconfig="+own, "--authentication-kubeconfig="+own, "--authorization-kubeconfig="+own,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.port("https")),
		"--tls-cert-file="+s.pki("server.crt"), "--tls-private-key-file="+s.pki("server.key"),
		"--kubelet-use-node-status-port=true", "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority="+s.pki("ca.crt"),
		"--metric-resolution=10s", "--kubelet-request-timeout=5s", // the shortest that it accepts
	)
}
