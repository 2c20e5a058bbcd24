package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// newTestSupervisor supervises ordinary programs in a fresh directory.
func newTestSupervisor(t *testing.T) *supervisor {
	t.Helper()
	spawner, err := newSpawner()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := claim(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	s := &supervisor{options: &upOptions{}, dir: dir, spawner: spawner, parts: map[string]*part{}}
	if err := os.Mkdir(s.path("logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.bringDown(nil); dir.release() })
	return s
}

func shell(script string) func(*part) (*exec.Cmd, bool, error) {
	return func(p *part) (*exec.Cmd, bool, error) {
		return exec.Command("sh", "-c", script, "sh", fmt.Sprint(p.port("x"))), false, nil
	}
}

func TestPartChoosesAnotherPort(t *testing.T) {
	// Some programs end when they find their port taken, and some run on.
	for name, end := range map[string]string{"ends": "exit 1", "runs on": "exec sleep 600"} {
		t.Run(name, func(t *testing.T) { choosesAnotherPort(t, end) })
	}
}

func choosesAnotherPort(t *testing.T, end string) {
	s := newTestSupervisor(t)
	// As when somebody takes the port between our look and the part's bind: the first start fails, the next works.
	once := s.path("once")
	script := "if [ ! -e " + once + " ]; then echo $1 > " + once + "; echo 'bind: address already in use' >&2; " + end + "; fi; echo serving; exec sleep 100"
	p := &part{name: "x", portNames: []string{"x"}, command: shell(script), ready: func(context.Context, *part) error {
		text, _ := os.ReadFile(s.path("logs", "x.log"))
		if !strings.Contains(string(text), "serving") {
			return fmt.Errorf("not yet")
		}
		return nil
	}}
	s.add(p)
	if err := p.start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	port := p.port("x")
	if taken, err := os.ReadFile(once); err != nil || strings.TrimSpace(string(taken)) == fmt.Sprint(port) {
		t.Errorf("it runs with port %d, and %q was taken (%v)", port, taken, err)
	}
	if err := p.stop(gentle); err != nil {
		t.Fatal(err)
	}
	if state := p.status().State; state != "stopped" {
		t.Errorf("state %s after a stop", state)
	}
	if err := p.start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if p.port("x") != port {
		t.Error("a part must keep its port when it is started again")
	}
}

func TestPartGivenPortTaken(t *testing.T) {
	s := newTestSupervisor(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	p := &part{name: "x", portNames: []string{"x"}, given: map[string]int{"x": port}, command: shell("sleep 100")}
	s.add(p)
	if err := p.start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "already taken") {
		t.Errorf("want a sentence about the taken port, got %v", err)
	}
}

func TestPartDies(t *testing.T) {
	s := newTestSupervisor(t)
	p := &part{name: "x", portNames: []string{}, command: shell("echo 'fatal: the moon is missing' >&2; exit 7"),
		ready: func(context.Context, *part) error { return fmt.Errorf("never") }}
	s.add(p)
	err := p.start(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "exit code 7") || !strings.Contains(err.Error(), "the moon is missing") {
		t.Errorf("want the exit code and the log's line, got %v", err)
	}
	status := p.status()
	if status.State != "exited" || status.Exit == nil || *status.Exit != 7 {
		t.Errorf("wrong status: %+v", status)
	}
}
