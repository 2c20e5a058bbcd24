package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longestRequest bounds a line: node files may be sent inline.
const longestRequest = 4 << 20

// response is the line that answers a request: {"ok":true,...} or {"error":"one sentence"}.
type response map[string]any

// listen serves the control socket until the listener is closed.
func (s *supervisor) listen(ctx context.Context) (net.Listener, error) {
	listener, err := net.Listen("unix", s.path("control.sock"))
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(ctx, connection)
		}
	}()
	return listener, nil
}

func (s *supervisor) serve(ctx context.Context, connection net.Conn) {
	defer connection.Close()
	lines := bufio.NewScanner(connection)
	lines.Buffer(make([]byte, 0, 4096), longestRequest)
	out := json.NewEncoder(connection)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		r, err := parseRequest(lines.Bytes())
		answer := response{}
		if err == nil {
			answer, err = s.handle(ctx, r)
		}
		if err != nil {
			answer = response{"error": sentence(err)}
		} else {
			answer["ok"] = true
		}
		if out.Encode(answer) != nil {
			return
		}
		if err == nil && r.Do == "down" {
			s.down(errDown)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		_ = out.Encode(response{"error": fmt.Sprintf("the request is longer than %d bytes", longestRequest)})
	}
}

func (s *supervisor) handle(ctx context.Context, r *request) (response, error) {
	switch r.Do {
	case "status":
		return s.status(), nil
	case "down":
		return response{}, nil
	case "stop", "start", "kill", "pause", "resume":
		return s.handlePart(ctx, r)
	case "run":
		return s.run(ctx, r)
	}
	if s.kube == nil {
		return nil, fmt.Errorf("%q needs an API server, and this instance runs without", r.Do)
	}
	switch r.Do {
	case "snapshot":
		return response{}, s.takeSnapshot(ctx)
	case "restore":
		return response{}, s.restore(ctx)
	case "kubeconfig":
		path, err := s.kubeconfigFor(ctx, r)
		return response{"path": path}, err
	case "install", "remove":
		s.admin.Lock()
		defer s.admin.Unlock()
		s.touch(r.Neighbour)
		if r.Do == "install" {
			return response{}, s.install(ctx, r.Neighbour)
		}
		return response{}, s.uninstall(ctx, r.Neighbour)
	case "nodes":
		return s.addNodes(ctx, r)
	case "behave":
		if r.Remove {
			return response{}, s.forget(ctx, r.Name)
		}
		b, err := r.behaviour()
		if err != nil {
			return nil, err
		}
		return response{}, s.behave(ctx, b)
	}
	return nil, fmt.Errorf("there is no request %q", r.Do)
}

func (s *supervisor) status() response {
	parts := []partStatus{}
	for _, p := range s.allParts() {
		parts = append(parts, p.status())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := []string{}
	for name := range s.installed {
		names = append(names, name)
	}
	slices.Sort(names)
	return response{"parts": parts, "neighbours": names, "dir": s.dir.path, "pid": os.Getpid(), "seconds": time.Since(s.began).Seconds()}
}

func (s *supervisor) handlePart(ctx context.Context, r *request) (response, error) {
	p, err := s.part(r.Part)
	if err != nil {
		return nil, err
	}
	if !p.isGuest() {
		s.touch(p.name)
	}
	switch r.Do {
	case "stop":
		grace := gentle
		if p.isGuest() {
			grace = patient
		}
		err = p.stop(grace)
	case "kill":
		err = p.stop(0)
	case "pause", "resume":
		err = p.pause(r.Do == "pause")
	case "start":
		if p.name == partMetrics && s.kube != nil && p.process() == nil {
			err = s.startMetrics(ctx)
		} else {
			err = p.start(ctx, s)
		}
	}
	return response{"part": p.status()}, err
}

// run starts a program of the caller's under the same supervision. A name can be used again when its program has ended.
func (s *supervisor) run(ctx context.Context, r *request) (response, error) {
	s.guests.Lock()
	defer s.guests.Unlock()
	program, err := exec.LookPath(r.Command[0])
	if err != nil {
		return nil, fmt.Errorf("the program %s was not found or is not executable", r.Command[0])
	}
	command := func(*part) (*exec.Cmd, bool, error) {
		cmd := exec.Command(program, r.Command[1:]...)
		cmd.Dir = r.Dir
		cmd.Env = os.Environ()
		for key, value := range r.Env {
			cmd.Env = append(cmd.Env, key+"="+value)
		}
		return cmd, false, nil
	}
	p, err := s.part(r.Name)
	switch {
	case err != nil:
		p = &part{name: r.Name, command: command}
		s.add(p)
	case !p.isGuest():
		return nil, fmt.Errorf("the name %q belongs to a part of the control plane", r.Name)
	default:
		p.change.Lock()
		if p.process().running() {
			p.change.Unlock()
			return nil, fmt.Errorf("%s is already running", r.Name)
		}
		p.command = command
		p.change.Unlock()
	}
	err = p.start(ctx, s)
	return response{"part": p.status()}, err
}

func (s *supervisor) addNodes(ctx context.Context, r *request) (response, error) {
	name, text := "(inline)", []byte(r.YAML)
	if r.File != "" {
		var err error
		if name, text = r.File, nil; !filepath.IsAbs(name) {
			return nil, fmt.Errorf("the node file %s must be an absolute path", name)
		}
		if text, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("the node file can't be read: %w", err)
		}
	}
	nodes, err := parseNodes(name, text)
	if err != nil {
		return nil, err
	}
	if err := s.kube.createNodes(ctx, nodes); err != nil {
		return nil, err
	}
	names := []string{}
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	return response{"nodes": names}, s.nodesReady(ctx, nodes)
}

var unsafeInFileName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// kubeconfigFor writes a kubeconfig for any user, or for a ServiceAccount that exists.
func (s *supervisor) kubeconfigFor(ctx context.Context, r *request) (string, error) {
	if r.User != "" && r.ServiceAccount != "" {
		return "", fmt.Errorf("`kubeconfig` takes a user or a ServiceAccount, not both")
	}
	user, token := r.User, ""
	var cert pair
	if r.ServiceAccount != "" {
		namespace, name, ok := strings.Cut(r.ServiceAccount, "/")
		if !ok || namespace == "" || name == "" {
			return "", fmt.Errorf("the ServiceAccount must be given as namespace/name, not %q", r.ServiceAccount)
		}
		seconds := int64((365 * 24 * time.Hour).Seconds())
		answer, err := s.kube.typed.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
			&authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return "", fmt.Errorf("the ServiceAccount %s does not exist: create it first", r.ServiceAccount)
		} else if err != nil {
			return "", err
		}
		user, token = "system:serviceaccount:"+namespace+":"+name, answer.Status.Token
	} else {
		var err error
		if cert, err = s.identity.ca.client(user, r.Groups...); err != nil {
			return "", err
		}
	}
	text, err := kubeconfig(s.server(), s.identity.ca.certPEM, user, cert, token)
	if err != nil {
		return "", err
	}
	// Two requests for one user (with other groups, say) must not share a file.
	file, err := os.CreateTemp(s.path("kubeconfigs"), unsafeInFileName.ReplaceAllString(user, "-")+".*.kubeconfig")
	if err != nil {
		return "", err
	}
	defer file.Close()
	_, err = file.Write(text)
	return file.Name(), err
}
