package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The parts of the control plane, by the names that the command line and the control protocol use.
const (
	partEtcd              = "etcd"
	partAPIServer         = "apiserver"
	partControllerManager = "controller-manager"
	partScheduler         = "scheduler"
	partKwok              = "kwok"
	partMetrics           = "metrics"
	partLWS               = "lws-manager"
	partKnative           = "knative-webhook"
	partKueue             = "kueue-manager"
)

// gentle is how long a part may take to end by itself when it is stopped on request.
const gentle = 3 * time.Second

// patient is the same for a program of the caller's, whose good order is often what is tested: as long as a kubelet waits for a pod.
const patient = 30 * time.Second

// part is one supervised process: it can be stopped and started again on the same ports and data.
type part struct {
	name      string
	portNames []string
	given     map[string]int // ports that the user chose: they are never replaced
	// command makes the command line; own says that it re-executes this binary.
	command func(p *part) (cmd *exec.Cmd, own bool, err error)
	// ready asks once whether the part works; nil is ready, anything else says what is missing.
	ready func(ctx context.Context, p *part) error
	log   string

	change sync.Mutex // held while the part is being started or stopped

	mu      sync.Mutex // guards what follows
	ports   map[string]int
	proc    *process
	offset  int64 // where the present process began in the log
	paused  bool
	stopped bool // on purpose
}

// isGuest says that it is a program of the caller's.
func (p *part) isGuest() bool { return p.portNames == nil }

func (p *part) port(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ports[name]
}

func (p *part) process() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc
}

// died says that the part ended although nobody asked it to.
func (p *part) died() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc != nil && !p.stopped && !p.proc.running()
}

// start brings the part up and returns when it is ready. Ports are chosen at the first start; when the part finds one of
// them taken, others are chosen. Later starts keep them, so that what others have noted stays true.
func (p *part) start(ctx context.Context, s *supervisor) error {
	p.change.Lock()
	defer p.change.Unlock()
	if p.process().running() {
		return fmt.Errorf("%s is already running", p.name)
	}
	p.mu.Lock()
	first := p.ports == nil
	p.mu.Unlock()
	const attempts = 5
	for attempt := 1; ; attempt++ {
		if first {
			if err := p.choosePorts(); err != nil {
				return err
			}
		}
		err := p.startOnce(ctx, s)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errPortTaken) {
			return err
		}
		for name, port := range p.given {
			if !portIsFree(port) {
				return fmt.Errorf("the port %d (%s of %s) is already taken: choose another or stop what uses it", port, name, p.name)
			}
		}
		if !first {
			return fmt.Errorf("%s can't start again because one of its ports is taken by another program now", p.name)
		}
		if attempt == attempts {
			return fmt.Errorf("%s found its port taken %d times in a row", p.name, attempts)
		}
	}
}

func (p *part) choosePorts() error {
	ports := map[string]int{}
	for _, name := range p.portNames {
		if port, ok := p.given[name]; ok {
			if !portIsFree(port) {
				return fmt.Errorf("the port %d (%s of %s) is already taken: choose another or stop what uses it", port, name, p.name)
			}
			ports[name] = port
			continue
		}
		port, err := freePort()
		if err != nil {
			return err
		}
		ports[name] = port
	}
	p.mu.Lock()
	p.ports = ports
	p.mu.Unlock()
	return nil
}

var errPortTaken = errors.New("a port is taken")

func portTaken(log string) bool { return strings.Contains(log, "address already in use") }

func (p *part) startOnce(ctx context.Context, s *supervisor) error {
	cmd, own, err := p.command(p)
	if err != nil {
		return err
	}
	offset := logOffset(p.log)
	proc, err := s.spawner.start(cmd, p.log, own)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.proc, p.offset, p.paused, p.stopped = proc, offset, false, false
	p.mu.Unlock()
	if p.ready == nil {
		return nil
	}
	err = s.wait(ctx, p.name+" to become ready", func(ctx context.Context) error {
		if !proc.running() {
			return stopWaiting{s.postMortem(p)}
		}
		err := p.ready(ctx, p)
		if err != nil && portTaken(logSince(p.log, offset)) {
			// Not every program ends then.
			return stopWaiting{fmt.Errorf("%s: %w", p.name, errPortTaken)}
		}
		return err
	})
	if err != nil {
		proc.stop(gentle / 3)
	}
	return err
}

// postMortem says in one sentence why a part died.
func (s *supervisor) postMortem(p *part) error {
	p.mu.Lock()
	proc, offset := p.proc, p.offset
	p.mu.Unlock()
	log := logSince(p.log, offset)
	switch {
	case strings.Contains(log, "no space left on device") || s.dir.full():
		return fmt.Errorf("%s died because the disk that holds %s is full: free some space, or use another disk (--dir, or TMPDIR for cargo xtask)", p.name, s.dir.path)
	case portTaken(log):
		return fmt.Errorf("%s: %w", p.name, errPortTaken)
	}
	line := lastMeaningfulLine(log)
	if line == "" {
		line = "its log is empty"
	}
	return fmt.Errorf("%s died (%s): %s (more in %s)", p.name, proc.how, line, p.log)
}

// stop ends the part on purpose; grace 0 kills it.
func (p *part) stop(grace time.Duration) error {
	p.change.Lock()
	defer p.change.Unlock()
	p.mu.Lock()
	proc := p.proc
	if !proc.running() {
		p.mu.Unlock()
		return fmt.Errorf("%s is not running", p.name)
	}
	p.stopped, p.paused = true, false
	p.mu.Unlock()
	if grace == 0 {
		proc.kill()
	} else {
		proc.stop(grace)
	}
	return nil
}

// pause freezes the part (or thaws it): it keeps its ports and answers nothing.
func (p *part) pause(paused bool) error {
	p.change.Lock()
	defer p.change.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.proc.running() {
		return fmt.Errorf("%s is not running", p.name)
	}
	if paused {
		p.proc.signal(syscall.SIGSTOP)
	} else {
		p.proc.signal(syscall.SIGCONT)
	}
	p.paused = paused
	return nil
}

// partStatus is a part as `status` shows it.
type partStatus struct {
	Name    string         `json:"name"`
	State   string         `json:"state"` // running, paused, stopped (on purpose), exited (not on purpose), or unused
	Running bool           `json:"running"`
	PID     int            `json:"pid,omitempty"`
	Exit    *int           `json:"exit,omitempty"` // exit code of an ended process, -1 for a signal
	Ended   string         `json:"ended,omitempty"`
	Ports   map[string]int `json:"ports,omitempty"`
	Log     string         `json:"log"`
}

func (p *part) status() partStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := partStatus{Name: p.name, Log: p.log, Ports: p.ports, State: "unused"}
	if p.proc == nil {
		return status
	}
	status.PID = p.proc.pid
	status.Running = p.proc.running()
	switch {
	case status.Running && p.paused:
		status.State = "paused"
	case status.Running:
		status.State = "running"
	default:
		status.State = "exited"
		if p.stopped {
			status.State = "stopped"
		}
		code := p.proc.code
		status.Exit, status.Ended = &code, p.proc.how
	}
	return status
}
