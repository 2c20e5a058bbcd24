package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// upOptions is the command line of `up`, checked.
type upOptions struct {
	dir, binDir, neighboursDir, nodesFile, schedulerConfig, etcdData, gates, apis string
	neighbours, parts                                                             []string
	apiPort                                                                       int
	keep, noStdin                                                                 bool
	assets                                                                        string // the directory that KUBEBUILDER_ASSETS names
}

// programs are what neighbours run, beyond their CRDs: binaries of --bin.
var programs = map[string]string{neighbourLWS: "lws-manager", neighbourKnative: "knative-webhook", neighbourKueue: "kueue-manager"}

func (o *upOptions) program(neighbour string) string {
	return filepath.Join(o.binDir, programs[neighbour])
}

func (o *upOptions) givenPorts() map[string]int {
	if o.apiPort == 0 {
		return nil
	}
	return map[string]int{"https": o.apiPort}
}

var (
	errDown        = errors.New("it was told to end")
	errParentGone  = errors.New("its parent closed standard input")
	errInterrupted = errors.New("it was interrupted")
)

func parseUp(args []string) (*upOptions, error) {
	o := &upOptions{}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var neighbourList, partList string
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	flags.StringVar(&o.dir, "dir", "", "the instance's directory, new or empty (required); keep it short, it holds a Unix socket")
	flags.StringVar(&o.binDir, "bin", filepath.Dir(self), "the directory with lws-manager, knative-webhook and kueue-manager")
	flags.StringVar(&o.neighboursDir, "neighbours-dir", "", "what `fetch` filled (default: neighbours beside this binary)")
	flags.StringVar(&o.nodesFile, "nodes", "", "a node file, or none (default: a few CPU and GPU nodes)")
	flags.StringVar(&neighbourList, "neighbours", "default", "neighbours to install, separated by commas, or none")
	flags.StringVar(&partList, "parts", "etcd,apiserver,controller-manager,scheduler,kwok", "parts to start; metrics is one more")
	flags.StringVar(&o.schedulerConfig, "scheduler-config", "", "a KubeSchedulerConfiguration, read again at every start of the scheduler")
	flags.StringVar(&o.gates, "feature-gates", "", "Kubernetes' feature gates, as GATE=true,GATE=false")
	flags.StringVar(&o.apis, "runtime-config", "", "API versions that aren't served by default, as GROUP/VERSION=true,...")
	flags.StringVar(&o.etcdData, "etcd-data", "", "begin with a copy of this directory, the etcd of an instance that has stopped it (default: empty)")
	flags.IntVar(&o.apiPort, "api-port", 0, "the API server's port (default: a free one)")
	flags.BoolVar(&o.keep, "keep", false, "leave the directory behind")
	flags.BoolVar(&o.noStdin, "no-stdin", false, "don't end when standard input closes")
	_ = flags.Parse(args)
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("`up` does not understand %q", flags.Arg(0))
	case o.dir == "":
		return nil, fmt.Errorf("`up` needs --dir: a new or empty directory for this instance")
	case o.apiPort < 0 || o.apiPort > 65535:
		return nil, fmt.Errorf("--api-port %d is not a port", o.apiPort)
	}
	if o.neighboursDir == "" {
		o.neighboursDir = filepath.Join(filepath.Dir(self), "neighbours")
	}
	if o.neighbours, err = chooseNeighbours(neighbourList); err != nil {
		return nil, err
	}
	if o.etcdData != "" {
		if _, err := os.Stat(filepath.Join(o.etcdData, "member")); err != nil {
			return nil, fmt.Errorf("--etcd-data %s holds no etcd data: give the directory etcd of an instance", o.etcdData)
		}
	}
	if err := o.chooseParts(partList); err != nil {
		return nil, err
	}
	for _, name := range o.neighbours {
		if err := o.checkNeighbour(name); err != nil {
			return nil, err
		}
	}
	if o.assets = os.Getenv("KUBEBUILDER_ASSETS"); o.assets != "" {
		if info, err := os.Stat(o.assets); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("KUBEBUILDER_ASSETS names %s, which is not a directory: correct it or unset it", o.assets)
		}
	}
	return o, nil
}

func (o *upOptions) chooseParts(list string) error {
	known := []string{partEtcd, partAPIServer, partControllerManager, partScheduler, partKwok, partMetrics}
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no part %q; there are %s", name, listed(known))
		}
		o.parts = append(o.parts, name)
	}
	if !slices.Contains(o.parts, partEtcd) || !slices.Contains(o.parts, partAPIServer) {
		return fmt.Errorf("--parts must hold %s and %s", partEtcd, partAPIServer)
	}
	if slices.Contains(o.parts, partMetrics) && !slices.Contains(o.parts, partKwok) {
		return fmt.Errorf("the part %s reads from %s: name both in --parts", partMetrics, partKwok)
	}
	return nil
}

func (o *upOptions) nodes() ([]*corev1.Node, error) {
	switch o.nodesFile {
	case "none":
		return nil, nil
	case "":
		text, err := assets.ReadFile("assets/nodes.yaml")
		if err != nil {
			return nil, err
		}
		return parseNodes("nodes.yaml", text)
	}
	return readNodeFile(o.nodesFile)
}

// up runs one instance from start to end.
func up(args []string) (failure error) {
	// A parent that was killed leaves broken pipes behind; writing to them must not keep us from cleaning up.
	signal.Ignore(syscall.SIGPIPE)
	// The client library's own log would only disturb: every error that matters reaches us.
	klog.SetLogger(logr.Discard())
	began := time.Now()
	options, err := parseUp(args)
	if err != nil {
		return err
	}
	nodes, err := options.nodes()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := claim(options.dir, options.keep)
	if err != nil {
		return err
	}
	defer dir.release()
	sweep(filepath.Dir(dir.path))
	spawner, err := newSpawner()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	s := &supervisor{
		options: options, self: self, dir: dir, spawner: spawner, began: began,
		parts: map[string]*part{}, installed: map[string]bool{}, down: end,
	}
	hurry := make(chan struct{})
	go watchSignals(end, hurry)
	if !options.noStdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			end(errParentGone)
		}()
	}
	defer func() {
		if r := recover(); r != nil { // a bug of ours: still one sentence, the trace goes to a file
			_ = os.WriteFile(s.path("logs", "panic.log"), debug.Stack(), 0o600)
			failure = fmt.Errorf("pointsman-cluster has a bug: %v", r)
		}
		s.bringDown(hurry)
	}()
	if err := s.bringUp(ctx, nodes); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("the cluster was not ready yet when %w", cause)
		}
		return err
	}
	listener, err := s.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := s.announce(); err != nil {
		return err
	}
	<-ctx.Done()
	s.progress("ending: %v", context.Cause(ctx))
	return nil
}

// announce prints the one line that tells a program everything it needs.
func (s *supervisor) announce() error {
	seconds := time.Since(s.began).Seconds()
	s.progress("ready: KUBECONFIG=%s", s.path("admin.kubeconfig"))
	line, err := json.Marshal(map[string]any{
		"ready": true, "dir": s.dir.path, "kubeconfig": s.path("admin.kubeconfig"), "control": s.path("control.sock"),
		"auditLog": s.path("audit.log"), "server": s.server(), "pid": os.Getpid(), "seconds": float64(int(seconds*100)) / 100,
	})
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(line))
	return err
}

// watchSignals ends the instance at the first signal and hurries at the second.
func watchSignals(end context.CancelCauseFunc, hurry chan struct{}) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	<-signals
	end(errInterrupted)
	<-signals
	close(hurry)
}
