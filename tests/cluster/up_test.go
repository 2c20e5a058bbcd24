package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-base/version"
)

// The test binary is the program too, so that the end-to-end test needs no other build of it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "up" || os.Args[1] == "part") {
		// Without the flags that the README names Kubernetes has a version that Knative can't read, and then one that it finds too old.
		_ = version.SetDynamicVersion("v0.0.0")
		_ = os.Setenv("KUBERNETES_MIN_VERSION", "v0.0.0")
		main()
		return
	}
	os.Exit(m.Run())
}

// instance is a running `up`.
type instance struct {
	t       *testing.T
	cmd     *exec.Cmd
	dir     string
	kube    *kube
	stderr  *bytes.Buffer
	control net.Conn
	answers *bufio.Reader
}

func startInstance(t *testing.T, args ...string) *instance {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent, err := os.MkdirTemp("", "pc") // t.TempDir's path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	i := &instance{t: t, dir: filepath.Join(parent, "i"), stderr: &bytes.Buffer{}}
	i.cmd = exec.Command(self, append([]string{"up", "--dir", i.dir}, args...)...)
	i.cmd.Stderr = i.stderr
	if _, err := i.cmd.StdinPipe(); err != nil { // held open: its end is the instance's end
		t.Fatal(err)
	}
	stdout, err := i.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := i.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.cmd.Process.Kill(); _ = i.cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = i.cmd.Wait()
		t.Fatalf("it did not become ready:\n%s", i.stderr)
	}
	var ready struct {
		Ready               bool
		Kubeconfig, Control string
	}
	if err := json.Unmarshal([]byte(line), &ready); err != nil || !ready.Ready {
		t.Fatalf("the ready line is %q", line)
	}
	if i.kube, err = newKube(ready.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	if i.control, err = net.Dial("unix", ready.Control); err != nil {
		t.Fatal(err)
	}
	i.answers = bufio.NewReader(i.control)
	return i
}

// do sends a request and wants it to succeed.
func (i *instance) do(request string) map[string]any {
	i.t.Helper()
	answer := i.ask(request)
	if answer["ok"] != true {
		i.t.Fatalf("%s: %v", request, answer["error"])
	}
	return answer
}

func (i *instance) ask(request string) map[string]any {
	i.t.Helper()
	if _, err := fmt.Fprintln(i.control, request); err != nil {
		i.t.Fatal(err)
	}
	line, err := i.answers.ReadBytes('\n')
	if err != nil {
		i.t.Fatal(err)
	}
	var answer map[string]any
	if err := json.Unmarshal(line, &answer); err != nil {
		i.t.Fatal(err)
	}
	return answer
}

func (i *instance) eventually(what string, check func(context.Context) error) {
	i.t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = check(i.t.Context()); err == nil {
			return
		}
	}
	i.t.Fatalf("%s: %v", what, err)
}

// pods checks the number of pods with a label and whether all of them are Ready.
func (i *instance) pods(selector string, count int, ready bool) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := i.kube.typed.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		if len(list.Items) != count {
			return fmt.Errorf("%d pods, not %d", len(list.Items), count)
		}
		for _, pod := range list.Items {
			if podReady(&pod) != ready || pod.Spec.NodeName == "" {
				return fmt.Errorf("pod %s: ready %v, phase %s, node %q", pod.Name, podReady(&pod), pod.Status.Phase, pod.Spec.NodeName)
			}
		}
		return nil
	}
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (i *instance) deploy(name string, replicas int32) {
	i.t.Helper()
	labels := map[string]string{"app": name}
	_, err := i.kube.typed.AppsV1().Deployments("default").Create(i.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
}

// processes lists the processes whose command line names the instance's directory.
func (i *instance) processes() []string {
	var found []string
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		text, _ := os.ReadFile(path)
		if strings.Contains(string(text), i.dir+"/") || strings.Contains(string(text), i.dir+"\x00") {
			found = append(found, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return found
}

// neighbourFlags builds what the neighbours run and fetches their CRDs, as the README says.
func neighbourFlags(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	for program, source := range map[string][]string{
		"lws-manager": {".", "sigs.k8s.io/lws/cmd"}, "knative-webhook": {"../knative", "knative.dev/serving/cmd/webhook"},
	} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, program), source[1])
		build.Dir = source[0]
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := fetch([]string{"--out", filepath.Join(dir, "neighbours")}); err != nil {
		t.Fatal(err)
	}
	return []string{"--bin", dir, "--neighbours-dir", filepath.Join(dir, "neighbours")}
}

func TestUp(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	i := startInstance(t, neighbourFlags(t)...)

	i.deploy("web", 3)
	i.eventually("the Deployment's pods", i.pods("app=web", 3, true))

	_, err := i.kube.dynamic.Resource(lwsResource).Namespace("default").Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": map[string]any{"name": "pair"},
		"spec": map[string]any{"leaderWorkerTemplate": map[string]any{
			"size":           int64(2),
			"workerTemplate": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "none"}}}},
		}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i.eventually("the LeaderWorkerSet's pods", i.pods("leaderworkerset.sigs.k8s.io/name=pair", 2, true))

	i.do(`{"do":"behave","name":"hang","namespace":"default","selector":{"app":"hang"},"behaviour":"pending"}`)
	i.deploy("hang", 1)
	i.eventually("the pending pod", i.pods("app=hang", 1, false))
	i.do(`{"do":"behave","name":"hang","remove":true}`)
	i.deploy("free", 1)
	i.eventually("a pod after the rule is gone", i.pods("app=free", 1, true))
	if err := i.pods("app=hang", 1, false)(t.Context()); err != nil {
		t.Errorf("the pending pod must still hang: %v", err)
	}

	i.do(`{"do":"kill","part":"etcd"}`)
	if answer := i.ask(`{"do":"stop","part":"etcd"}`); answer["error"] != "etcd is not running" {
		t.Errorf("stopping a dead part: %v", answer)
	}
	i.do(`{"do":"start","part":"etcd"}`)
	i.eventually("the data after a restart of etcd", i.pods("app=web", 3, true))

	i.do(`{"do":"nodes","yaml":"nodes:\n- {name: more, count: 2, capacity: {cpu: 1, memory: 1Gi}}"}`)
	i.do(`{"do":"kubeconfig","serviceAccount":"default/default"}`)
	i.do(`{"do":"run","name":"guest","command":["sleep","1000"]}`)
	i.do(`{"do":"remove","neighbour":"lws"}`)
	i.do(`{"do":"down"}`)
	if err := i.cmd.Wait(); err != nil {
		t.Errorf("after `down`: %v\n%s", err, i.stderr)
	}
	if left := i.processes(); len(left) > 0 {
		t.Errorf("left after `down`: %q", left)
	}
	if _, err := os.Stat(i.dir); err == nil {
		t.Error("the directory is still there")
	}
}

func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	i := startInstance(t, "--neighbours", "none", "--nodes", "none")
	i.do(fmt.Sprintf(`{"do":"run","name":"guest","command":["tail","-f","%s/audit.log"],"env":{"A":"b"},"dir":"/"}`, i.dir))
	if len(i.processes()) < 7 { // the supervisor, five parts and the guest
		t.Fatalf("too few processes are seen for this test to mean something: %q", i.processes())
	}
	_ = i.cmd.Process.Kill()
	_ = i.cmd.Wait()
	i.eventually("no process remains", func(context.Context) error {
		if left := i.processes(); len(left) > 0 {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
	if removed := sweep(filepath.Dir(i.dir)); len(removed) != 1 {
		t.Errorf("the directory should be swept, but these were: %v", removed)
	}
}
