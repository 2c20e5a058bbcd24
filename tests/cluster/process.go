package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// process is a started child. Its fields after done are set before done is closed.
type process struct {
	pid  int
	done chan struct{}
	code int    // exit code, or -1 when a signal ended it
	how  string // "exit code 1", "signal: killed"
}

// spawner starts children from one OS thread that lives as long as this process: Linux ties the parent-death signal to
// the thread that forked, and Go ends idle threads at will.
type spawner struct {
	requests chan spawnRequest
	// lifeline's write end is ours alone (close-on-exec); re-executed parts inherit the read end.
	lifelineRead, lifelineWrite *os.File

	mu     sync.Mutex
	closed bool // nothing is started any more
}

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func newSpawner() (*spawner, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("can't make a pipe: %w", err)
	}
	s := &spawner{requests: make(chan spawnRequest), lifelineRead: r, lifelineWrite: w}
	go func() {
		runtime.LockOSThread()
		for request := range s.requests {
			request.result <- request.cmd.Start()
		}
	}()
	return s, nil
}

// collectLess has parts spend memory to save time: by default, 30 % of what an API server with our CRDs does is collecting garbage.
// With 600 it takes more again, since fresh pages cost the kernel time.
// The limit is one that Go collects harder to keep, not one at which it ends.
var collectLess = []string{"GOGC=300", "GOMEMLIMIT=2GiB"}

// start runs a command in a process group of its own, so that a terminal's Ctrl-C reaches only the supervisor, with its
// output appended to the log file.
func (s *spawner) start(cmd *exec.Cmd, logPath string, own bool) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	if own {
		cmd.ExtraFiles = []*os.File{s.lifelineRead}
		// Of two values the later one counts: the environment's.
		cmd.Env = append(slices.Concat(collectLess, cmd.Environ()), lifelineEnv+"=3")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("this cluster is being stopped")
	}
	request := spawnRequest{cmd: cmd, result: make(chan error, 1)}
	s.requests <- request
	if err := <-request.result; err != nil {
		return nil, fmt.Errorf("can't start %s: %w", cmd.Path, err)
	}
	p := &process{pid: cmd.Process.Pid, done: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		p.code = cmd.ProcessState.ExitCode()
		var exit *exec.ExitError
		switch {
		case err == nil:
			p.how = "exit code 0"
		case errors.As(err, &exit) && p.code >= 0:
			p.how = fmt.Sprintf("exit code %d", p.code)
		default:
			p.how = cmd.ProcessState.String()
		}
		close(p.done)
	}()
	return p, nil
}

func (s *spawner) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal reaches the whole process group, so that what a part started goes with it.
func (p *process) signal(s syscall.Signal) {
	if p.running() {
		_ = syscall.Kill(-p.pid, s)
	}
}

// stop asks nicely, waits for at most the grace, then kills, and returns when the process is gone.
func (p *process) stop(grace time.Duration) {
	if p == nil {
		return
	}
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT) // a paused process could not hear it
	select {
	case <-p.done:
	case <-time.After(grace):
		p.kill()
	}
	// A wrapper may have died by itself and left children in the group.
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
}

func (p *process) kill() {
	if p == nil {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.done
}
