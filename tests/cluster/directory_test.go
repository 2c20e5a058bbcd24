package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClaimAndSweep(t *testing.T) {
	parent := t.TempDir()
	live, err := claim(filepath.Join(parent, "live"), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claim(live.path, false); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a directory in use must be refused, got %v", err)
	}
	// As after a SIGKILL: the kernel has dropped the lock, the files are still there.
	for name, keep := range map[string]bool{"stale": false, "kept": true} {
		c, err := claim(filepath.Join(parent, name), keep)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.lock.Close()
	}
	for name, text := range map[string]string{"foreign/notes.txt": "mine", "young/" + markerName: ""} {
		path := filepath.Join(parent, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	removed := sweep(parent)
	if len(removed) != 1 || filepath.Base(removed[0]) != "stale" {
		t.Errorf("only the stale directory should go, but these went: %v", removed)
	}
	live.release()
	if _, err := os.Stat(live.path); err == nil {
		t.Error("a released directory must be gone")
	}
}

func TestClaimRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		full: "is not empty",
		filepath.Join(t.TempDir(), strings.Repeat("x", 100)): "too long for a Unix socket",
		filepath.Join(full, "thesis.txt", "x"):               "can't be used as --dir",
	} {
		if _, err := claim(path, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", path, want, err)
		}
	}
}
