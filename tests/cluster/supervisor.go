package main

import (
	"context"
	"embed"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

//go:embed assets
var assets embed.FS

// supervisor owns one instance: its directory, its identity and its processes.
type supervisor struct {
	options  *upOptions
	self     string // this binary
	dir      *claimed
	identity *identity
	spawner  *spawner
	http     *http.Client
	kube     *kube // set once the API server is ready
	began    time.Time

	mu    sync.Mutex
	parts map[string]*part
	order []string // in which they were defined; they are stopped the other way round
	// installed are the neighbours whose CRDs are in the cluster.
	installed map[string]bool
	snapshot  *snapshot  // once it was asked for
	touched   string     // a part that was stopped, killed or paused, or a neighbour that came or went
	admin     sync.Mutex // one change of neighbours at a time
	guests    sync.Mutex // one `run` at a time

	down context.CancelCauseFunc // ends the instance
}

func (s *supervisor) add(p *part) {
	p.log = s.path("logs", p.name+".log")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[p.name] = p
	s.order = append(s.order, p.name)
}

func (s *supervisor) part(name string) (*part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.parts[name]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("there is no part %q; there are %s", name, listed(s.order))
}

// get is for the parts that are always defined.
func (s *supervisor) get(name string) *part {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[name]
}

func (s *supervisor) allParts() []*part {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []*part
	for _, name := range s.order {
		parts = append(parts, s.parts[name])
	}
	return parts
}

func (s *supervisor) path(elements ...string) string {
	return filepath.Join(append([]string{s.dir.path}, elements...)...)
}

func (s *supervisor) pki(name string) string { return s.path("pki", name) }

func (s *supervisor) server() string {
	return "https://" + loopback(s.get(partAPIServer).port("https"))
}

func (s *supervisor) uses(part string) bool { return slices.Contains(s.options.parts, part) }

// progress is for the person who waits; standard output carries only the final line for programs.
func (s *supervisor) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// bringUp makes everything that was asked for ready.
func (s *supervisor) bringUp(ctx context.Context, nodes []*corev1.Node) error {
	for _, dir := range []string{"logs", "etc", "kubeconfigs"} {
		if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
			return err
		}
	}
	var err error
	if s.identity, err = makeIdentity(s.path("pki")); err != nil {
		return err
	}
	s.http = &http.Client{Transport: &http.Transport{TLSClientConfig: s.identity.tls, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	files, err := assets.ReadDir("assets")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := assets.ReadFile("assets/" + file.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.path("etc", file.Name()), text, 0o600); err != nil {
			return err
		}
	}
	if data := s.options.etcdData; data != "" {
		if err := os.CopyFS(s.path("etcd"), os.DirFS(data)); err != nil {
			return fmt.Errorf("the data in %s can't be copied: %w", data, err)
		}
	}
	s.defineParts()
	for _, name := range []string{partEtcd, partAPIServer} {
		if !s.uses(name) {
			return nil // etcd alone, or nothing: whoever asks for that wants no more
		}
		if err := s.get(name).start(ctx, s); err != nil {
			return err
		}
		s.progress("%s is ready", name)
	}
	if err := s.writeKubeconfigs(); err != nil {
		return err
	}
	if s.kube, err = newKube(s.path("admin.kubeconfig")); err != nil {
		return err
	}
	return s.bringUpRest(ctx, nodes)
}

// bringUpRest starts what needs only the API server, all at once.
func (s *supervisor) bringUpRest(ctx context.Context, nodes []*corev1.Node) error {
	var tasks []func(context.Context) error
	for _, name := range []string{partControllerManager, partScheduler} {
		if s.uses(name) {
			tasks = append(tasks, func(ctx context.Context) error { return s.startAndSay(ctx, name) })
		}
	}
	if s.uses(partControllerManager) {
		tasks = append(tasks, func(ctx context.Context) error {
			return s.wait(ctx, "the default ServiceAccount", s.kube.defaultServiceAccount)
		})
	}
	tasks = append(tasks, func(ctx context.Context) error {
		if err := s.kube.createNodes(ctx, nodes); err != nil {
			return err
		}
		if !s.uses(partKwok) {
			return nil
		}
		if err := s.startAndSay(ctx, partKwok); err != nil {
			return err
		}
		if err := s.nodesReady(ctx, nodes); err != nil {
			return err
		}
		s.progress("%d nodes are Ready", len(nodes))
		return nil
	})
	if s.uses(partMetrics) {
		tasks = append(tasks, s.startMetrics)
	}
	for _, name := range s.options.neighbours {
		tasks = append(tasks, func(ctx context.Context) error {
			if err := s.install(ctx, name); err != nil {
				return err
			}
			s.progress("neighbour %s is installed", name)
			return nil
		})
	}
	return s.together(ctx, tasks)
}

func (s *supervisor) startAndSay(ctx context.Context, name string) error {
	if err := s.get(name).start(ctx, s); err != nil {
		return err
	}
	s.progress("%s is ready", name)
	return nil
}

// together runs tasks at the same time. The first failure ends the others and is the one that is reported.
func (s *supervisor) together(ctx context.Context, tasks []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(tasks))
	for _, task := range tasks {
		go func() { errs <- task(ctx) }()
	}
	var first error
	for range tasks {
		if err := <-errs; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}

// dead finds a part of the control plane that ended by itself and is not being started right now (a start looks after its
// own). What the caller runs may come and go.
func (s *supervisor) dead() *part {
	for _, p := range s.allParts() {
		if p.portNames != nil && p.change.TryLock() {
			died := p.died()
			p.change.Unlock()
			if died {
				return p
			}
		}
	}
	return nil
}

// bringDown stops everything, the users of a part before the part. The data is thrown away, so nobody gets long to say
// goodbye, except what the caller runs itself.
func (s *supervisor) bringDown(hurry <-chan struct{}) {
	s.spawner.close()
	go func() {
		<-hurry
		for _, p := range s.allParts() {
			if proc := p.process(); proc != nil {
				proc.signal(9)
			}
		}
	}()
	var guests, controllers []*part
	for _, p := range s.allParts() {
		switch p.name {
		case partKwok, partScheduler, partControllerManager, partMetrics, partLWS, partKnative:
			controllers = append(controllers, p)
		case partEtcd, partAPIServer:
		default:
			guests = append(guests, p)
		}
	}
	stopAll(guests, 2*time.Second)
	stopAll(controllers, 500*time.Millisecond)
	for _, name := range []string{partAPIServer, partEtcd} {
		if p := s.get(name); p != nil {
			stopAll([]*part{p}, 700*time.Millisecond)
		}
	}
}

func stopAll(parts []*part, grace time.Duration) {
	var group sync.WaitGroup
	for _, p := range parts {
		group.Add(1)
		go func() {
			defer group.Done()
			if proc := p.process(); proc != nil {
				proc.stop(grace)
			}
		}()
	}
	group.Wait()
}
