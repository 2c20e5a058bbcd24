package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// markerName says that a directory is ours. The instance that uses it holds a lock on the file: the kernel drops the lock
// when the process ends, however it ends, so a stale directory is told from a live one without trusting process ids.
const markerName = "pointsman-cluster.json"

// longestSocketPath is the least of what systems allow (macOS 104 with the final zero, Linux 108).
const longestSocketPath = 103

// leastSpace is what a fresh instance needs to start and leave room for a few minutes of logs.
const leastSpace = 96 << 20

type marker struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Keep    bool      `json:"keep"`
}

// claimed is a directory that this process may use until it is released.
type claimed struct {
	path string
	keep bool
	made bool // by us, so it is removed with its content
	lock *os.File
}

// claim makes or takes over the directory and locks it.
func claim(path string, keep bool) (*claimed, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if socket := filepath.Join(path, "control.sock"); len(socket) > longestSocketPath {
		return nil, fmt.Errorf("the path %s is %d characters too long for a Unix socket: give a shorter --dir", path, len(socket)-longestSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, unwritable(path, err)
	}
	made := true
	if err := os.Mkdir(path, 0o700); errors.Is(err, os.ErrExist) {
		made = false
	} else if err != nil {
		return nil, unwritable(path, err)
	}
	markerPath := filepath.Join(path, markerName)
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("%s can't be used as --dir: %w", path, err)
	}
	_, statErr := os.Stat(markerPath)
	if len(entries) > 0 && statErr != nil {
		return nil, fmt.Errorf("%s is not empty and was not made by pointsman-cluster: give --dir a new or an empty directory", path)
	}
	lock, err := os.OpenFile(markerPath, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unwritable(path, err)
	}
	c := &claimed{path: path, keep: keep, made: made || statErr == nil, lock: lock}
	if !tryLock(lock) {
		defer lock.Close()
		var old marker
		_ = json.NewDecoder(lock).Decode(&old)
		return nil, fmt.Errorf("%s is in use by another pointsman-cluster (process %d): give another --dir or stop that one", path, old.PID)
	}
	for _, entry := range entries { // left by an instance that was killed, or kept by --keep
		if entry.Name() != markerName {
			if err := os.RemoveAll(filepath.Join(path, entry.Name())); err != nil {
				return c.failed(err)
			}
		}
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(path, &disk); err == nil {
		if free := uint64(disk.Bavail) * uint64(disk.Bsize); free < leastSpace {
			return c.failed(fmt.Errorf("the disk that holds %s is full: %d MiB are left and at least %d are needed; free some space, or use another disk (--dir, or TMPDIR for cargo xtask)",
				path, free>>20, leastSpace>>20))
		}
	}
	text, err := json.Marshal(marker{PID: os.Getpid(), Started: time.Now(), Keep: keep})
	if err != nil {
		return c.failed(err)
	}
	if err := lock.Truncate(0); err != nil {
		return c.failed(err)
	}
	if _, err := lock.WriteAt(append(text, '\n'), 0); err != nil {
		return c.failed(err)
	}
	return c, nil
}

func (c *claimed) failed(err error) (*claimed, error) {
	c.keep = false
	c.release()
	return nil, err
}

func unwritable(path string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return fmt.Errorf("%s can't be used as --dir: %w", path, err)
}

// release gives the directory up: removed, or kept without the lock.
func (c *claimed) release() {
	if !c.keep {
		c.empty()
	}
	_ = c.lock.Close()
}

func (c *claimed) empty() {
	if c.made {
		if os.RemoveAll(c.path) == nil {
			return
		}
	}
	entries, _ := os.ReadDir(c.path)
	for _, entry := range entries {
		_ = os.RemoveAll(filepath.Join(c.path, entry.Name()))
	}
}

// full says whether hardly anything can be written any more.
func (c *claimed) full() bool {
	var disk syscall.Statfs_t
	return syscall.Statfs(c.path, &disk) == nil && uint64(disk.Bavail)*uint64(disk.Bsize) < 1<<20
}

// tryLock takes the lock unless a living process has it.
func tryLock(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// sweep removes the directories below parent that instances left which were killed; those that live, that somebody asked
// to keep, or that are not ours stay. It returns what it removed.
func sweep(parent string) []string {
	markers, _ := filepath.Glob(filepath.Join(parent, "*", markerName))
	var removed []string
	for _, path := range markers {
		if sweepOne(path) {
			removed = append(removed, filepath.Dir(path))
		}
	}
	return removed
}

func sweepOne(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	if !tryLock(file) {
		return false
	}
	// An unreadable marker may be one that is being written: its owner has made the file and not yet locked it.
	var m marker
	if json.NewDecoder(file).Decode(&m) != nil || m.PID == 0 || m.Keep {
		return false
	}
	return os.RemoveAll(filepath.Dir(path)) == nil
}

func sweepCommand(args []string) error {
	flags := flag.NewFlagSet("sweep", flag.ExitOnError)
	_ = flags.Parse(args)
	if flags.NArg() != 1 {
		return fmt.Errorf("sweep needs the directory whose sub-directories it shall look at")
	}
	for _, path := range sweep(flags.Arg(0)) {
		fmt.Fprintf(os.Stderr, "removed %s\n", path)
	}
	return nil
}
