package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Below this the API server keeps all objects, by group or resource, namespace and name.
const storagePrefix = "/registry/"

// keptByServer are objects that the API server itself writes now and then. They are left as they are.
var keptByServer = []string{
	"leases/kube-system/", "masterleases/", "flowschemas/", "prioritylevelconfigurations/",
}

// remembered are objects that shape how the API server answers requests. It learns of their changes a moment later, and nobody can wait for
// that: who changed them gets no restored cluster.
var remembered = []string{
	"apiextensions.k8s.io/", "apiregistration.k8s.io/", "clusterrolebindings/", "clusterroles/", "mutatingadmissionpolicies/",
	"mutatingadmissionpolicybindings/", "mutatingwebhookconfigurations/", "resourcequotas/", "rolebindings/", "roles/",
	"validatingadmissionpolicies/", "validatingadmissionpolicybindings/", "validatingwebhookconfigurations/",
}

// most operations that etcd takes in a transaction.
const transaction = 128

// snapshot is what an instance held at a moment: its objects, and the files of its directory.
type snapshot struct {
	mu      sync.Mutex // one restoring at a time
	objects map[string]stored
	files   map[string]bool
}

type stored struct {
	value    []byte
	revision int64 // of etcd, at which it was written last
}

// storage is a client of the instance's own etcd.
func (s *supervisor) storage() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + loopback(s.get(partEtcd).port("client"))}, TLS: s.identity.storage, DialTimeout: gentle,
		Logger: zap.NewNop(),
	})
}

// takeSnapshot remembers everything as it is now. Controllers keep a memory of their own, so an instance with some has none.
func (s *supervisor) takeSnapshot(ctx context.Context) error {
	for _, name := range s.options.parts {
		if name != partEtcd && name != partAPIServer {
			return fmt.Errorf("`snapshot` is for an instance of %s and %s alone, and this one runs %s too", partEtcd, partAPIServer, name)
		}
	}
	client, err := s.storage()
	if err != nil {
		return err
	}
	defer client.Close()
	all, err := client.Get(ctx, storagePrefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("etcd can't be read: %w", err)
	}
	taken := &snapshot{objects: map[string]stored{}, files: map[string]bool{}}
	for _, pair := range all.Kvs {
		taken.objects[string(pair.Key)] = stored{pair.Value, pair.ModRevision}
	}
	files, err := s.files()
	if err != nil {
		return err
	}
	for _, file := range files {
		taken.files[file] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot = taken
	return nil
}

// restore ends what `run` started, and brings back the objects and files of the snapshot. An instance of which a part was stopped, or whose API
// server works by other rules now, is refused: a new one is what its user wants.
func (s *supervisor) restore(ctx context.Context) error {
	s.mu.Lock()
	taken, touched := s.snapshot, s.touched
	s.mu.Unlock()
	if taken == nil {
		return fmt.Errorf("there is no snapshot to restore: ask for `snapshot` first")
	}
	if touched != "" {
		return fmt.Errorf("%s was stopped, paused, installed or removed", touched)
	}
	taken.mu.Lock()
	defer taken.mu.Unlock()
	s.endGuests()
	client, err := s.storage()
	if err != nil {
		return err
	}
	defer client.Close()
	// What was on its way when its sender was killed may arrive in between.
	const attempts = 4
	for range attempts {
		changes, err := taken.changes(ctx, client)
		if err != nil {
			return err
		}
		if len(changes) == 0 {
			return s.removeFiles(taken)
		}
		if err := taken.undo(ctx, client, changes); err != nil {
			return err
		}
	}
	return fmt.Errorf("objects still change after %d attempts: end what writes them first", attempts)
}

// touch notes that what runs is no longer what ran at first.
func (s *supervisor) touch(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = what
}

// changes are the keys that there were not, are no more, or have another value.
func (t *snapshot) changes(ctx context.Context, client *clientv3.Client) ([]string, error) {
	now, err := client.Get(ctx, storagePrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("etcd can't be read: %w", err)
	}
	var changed []string
	there := map[string]bool{}
	for _, pair := range now.Kvs {
		key := string(pair.Key)
		there[key] = true
		if before, ok := t.objects[key]; !ok || before.revision != pair.ModRevision {
			changed = append(changed, key)
		}
	}
	for key := range t.objects {
		if !there[key] {
			changed = append(changed, key)
		}
	}
	changed = slices.DeleteFunc(changed, func(key string) bool { return isOf(key, keptByServer) })
	for _, key := range changed {
		if isOf(key, remembered) {
			return nil, fmt.Errorf("%s was changed since the snapshot, and the API server works by it", strings.TrimPrefix(key, storagePrefix))
		}
	}
	return changed, nil
}

func isOf(key string, places []string) bool {
	return slices.ContainsFunc(places, func(place string) bool { return strings.HasPrefix(key, storagePrefix+place) })
}

func (t *snapshot) undo(ctx context.Context, client *clientv3.Client, changes []string) error {
	for some := range slices.Chunk(changes, transaction) {
		var operations []clientv3.Op
		for _, key := range some {
			if before, ok := t.objects[key]; ok {
				operations = append(operations, clientv3.OpPut(key, string(before.value)))
			} else {
				operations = append(operations, clientv3.OpDelete(key))
			}
		}
		done, err := client.Txn(ctx).Then(operations...).Commit()
		if err != nil {
			return fmt.Errorf("etcd can't be written: %w", err)
		}
		for _, key := range some {
			if before, ok := t.objects[key]; ok {
				t.objects[key] = stored{before.value, done.Header.Revision}
			}
		}
	}
	return nil
}

// endGuests ends what `run` started and forgets it, so that its names can be used as if they never were.
func (s *supervisor) endGuests() {
	var guests []*part
	for _, p := range s.allParts() {
		if p.isGuest() {
			guests = append(guests, p)
		}
	}
	stopAll(guests, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range guests {
		delete(s.parts, p.name)
		s.order = slices.DeleteFunc(s.order, func(name string) bool { return name == p.name })
	}
}

// files are those of the instance's directory, and of the folders in it whose files come and go.
func (s *supervisor) files() ([]string, error) {
	var all []string
	for _, folder := range []string{"", "logs", "kubeconfigs"} {
		entries, err := os.ReadDir(s.path(folder))
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			all = append(all, filepath.Join(folder, entry.Name()))
		}
	}
	return all, nil
}

// removeFiles removes what others left in the instance's directory.
func (s *supervisor) removeFiles(taken *snapshot) error {
	files, err := s.files()
	if err != nil {
		return err
	}
	for _, file := range files {
		if !taken.files[file] {
			if err := os.RemoveAll(s.path(file)); err != nil {
				return err
			}
		}
	}
	return nil
}
