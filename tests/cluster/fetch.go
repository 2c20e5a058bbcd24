package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// stampName is the file that says what a directory of neighbours was fetched from.
const stampName = "fetched.json"

// fetch copies the neighbours' CRDs out of their published Go modules, verified against the sums pinned in this program.
func fetch(args []string) error {
	flags := flag.NewFlagSet("fetch", flag.ExitOnError)
	out := flags.String("out", "", "the directory to fill (required)")
	force := flags.Bool("force", false, "fetch again even when the directory is up to date")
	_ = flags.Parse(args)
	if *out == "" || flags.NArg() > 0 {
		return fmt.Errorf("fetch needs --out DIR and nothing else")
	}
	stamp, err := wantedStamp()
	if err != nil {
		return err
	}
	stampPath := filepath.Join(*out, stampName)
	if present, err := os.ReadFile(stampPath); err == nil && bytes.Equal(present, stamp) && !*force {
		return nil
	}
	fmt.Fprintf(os.Stderr, "fetching %d Go modules for the neighbours' CRDs\n", len(neighbours))
	modules, err := downloadModules()
	if err != nil {
		return err
	}
	// The stamp goes first and comes last: a fetch that was cut short is not taken for a finished one.
	if err := os.RemoveAll(stampPath); err != nil {
		return err
	}
	for _, n := range neighbours {
		if err := n.copyFrom(modules[n.module], filepath.Join(*out, n.name)); err != nil {
			return err
		}
	}
	return os.WriteFile(stampPath, stamp, 0o644)
}

// wantedStamp describes exactly what this program would fetch.
func wantedStamp() ([]byte, error) {
	type entry struct {
		Module, Version, Sum string
		Files                []string
		Extra                map[string]string
	}
	entries := map[string]entry{}
	for _, n := range neighbours {
		entries[n.name] = entry{n.module, n.version, n.sum, n.files, n.extra}
	}
	return json.MarshalIndent(entries, "", " ")
}

// downloadModules lets the go command get the modules in an empty module whose go.sum holds the pinned sums, so that the
// go command verifies them itself; the answer is compared once more. It returns each module's directory.
func downloadModules() (map[string]string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return nil, fmt.Errorf("the go command is missing: install Go to fetch the neighbours' modules")
	}
	work, err := os.MkdirTemp("", "pointsman-fetch-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	args := []string{"mod", "download", "-json"}
	var sums strings.Builder
	wanted := map[string]string{}
	for _, n := range neighbours {
		args = append(args, n.module+"@"+n.version)
		fmt.Fprintf(&sums, "%s %s %s\n%s %s/go.mod %s\n", n.module, n.version, n.sum, n.module, n.version, n.goModSum)
		wanted[n.module] = n.sum
	}
	if err := os.WriteFile(filepath.Join(work, "go.mod"), []byte("module pointsman.dev/fetch\n"), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(work, "go.sum"), []byte(sums.String()), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GO111MODULE=on")
	var output, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &trouble
	runErr := cmd.Run()
	dirs := map[string]string{}
	for decoder := json.NewDecoder(&output); ; {
		var m struct{ Path, Version, Dir, Sum, Error string }
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("`go mod download` answered something that is not JSON: %w", err)
		}
		if m.Error != "" {
			return nil, fmt.Errorf("the Go module %s %s could not be fetched: %s", m.Path, m.Version, m.Error)
		}
		if m.Sum != wanted[m.Path] {
			return nil, fmt.Errorf("the Go module %s %s has the sum %s, not the pinned %s: it is not the one that was reviewed", m.Path, m.Version, m.Sum, wanted[m.Path])
		}
		dirs[m.Path] = m.Dir
	}
	if runErr != nil {
		return nil, fmt.Errorf("`go mod download` failed (%w): %s", runErr, lastMeaningfulLine(trouble.String()))
	}
	for _, n := range neighbours {
		if dirs[n.module] == "" {
			return nil, fmt.Errorf("`go mod download` said nothing about %s", n.module)
		}
	}
	return dirs, nil
}

// copyFrom replaces the neighbour's directory by the files that it needs.
func (n *neighbour) copyFrom(moduleDir, target string) error {
	if err := os.RemoveAll(target); err != nil {
		return err
	}
	copies := map[string]string{}
	for _, file := range n.files {
		copies[file] = path.Base(file)
	}
	for from, to := range n.extra {
		copies[from] = to
	}
	for from, to := range copies {
		text, err := os.ReadFile(filepath.Join(moduleDir, filepath.FromSlash(from)))
		if err != nil {
			return fmt.Errorf("%s %s does not hold %s as expected: %w", n.module, n.version, from, err)
		}
		to = filepath.Join(target, filepath.FromSlash(to))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
