//! Reports when a directory's files have changed and settled.
//!
//! The watch is on the directory rather than a file: a replaced file takes its watch along, and in a mounted ConfigMap the path is a link
//! far above the file that changes.

use notify::{
    Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode, ModifyKind},
};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How long nothing must happen before a change is reported: a file is rarely written in one step.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// The time after which a change is reported even if changes continue.
const AT_LATEST: Duration = Duration::from_millis(500);

/// The interval of checks whether the directory is still the watched one. The system doesn't report when a missing directory is created,
/// nor when a link to it changes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A counter that goes up after each change in the directory or below it. The directory may be missing, deleted and created again; while it
/// exists but can't be watched, the counter goes up every two seconds. Ends with the last receiver.
pub fn watch(dir: &Path) -> io::Result<watch::Receiver<u64>> {
    watch_and_look(dir, POLL_INTERVAL)
}

/// Reads a directory, now and after each change, and passes the result on. A failure is passed on once, until another one or a success. It
/// never ends by itself.
pub async fn follow<T, E: ToString, F: Future<Output = Result<T, E>>>(
    mut changes: watch::Receiver<u64>,
    read: impl Fn() -> F,
    mut take: impl FnMut(Result<T, String>),
) {
    let mut complaint = String::new();
    loop {
        changes.borrow_and_update();
        match read().await.map_err(|error| error.to_string()) {
            Err(error) if error == complaint => {}
            outcome => {
                complaint = outcome.as_ref().err().cloned().unwrap_or_default();
                take(outcome);
            }
        }
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn watch_and_look(dir: &Path, look_again: Duration) -> io::Result<watch::Receiver<u64>> {
    let (changes, receiver) = watch::channel(0);
    // One is enough, because it only signals that something happened.
    let (wake, woken) = sync_channel(1);
    let mut watching = Watching { dir: dir.to_owned(), wake, armed: None, complaint: String::new() };
    watching.look();
    // A thread, because reading a disk may block.
    thread::Builder::new().name("plugin-directory".to_owned()).spawn(move || {
        loop {
            let touched = woken.recv_timeout(look_again).is_ok();
            if changes.is_closed() {
                return;
            }
            if touched {
                settle(&woken);
            }
            if watching.look() || touched {
                changes.send_modify(|count| *count += 1);
            }
        }
    })?;
    Ok(receiver)
}

fn settle(woken: &Receiver<()>) {
    let until = Instant::now() + AT_LATEST;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || woken.recv_timeout(left.min(DEBOUNCE)).is_err() {
            return;
        }
    }
}

struct Watching {
    dir: PathBuf,
    wake: SyncSender<()>,
    armed: Option<Armed>,
    /// The last logged problem: a lasting problem is logged once.
    complaint: String,
}

struct Armed {
    /// Device and inode. After a deletion, another directory may get the same.
    identity: (u64, u64),
    /// Whether the directory is gone, or a part of it can't be watched.
    lost: Arc<AtomicBool>,
    /// Watches until it is dropped.
    _watcher: RecommendedWatcher,
}

impl Watching {
    /// Watches the current directory. Returns whether files may have changed unnoticed.
    fn look(&mut self) -> bool {
        let found = identity(&self.dir);
        let there = found.is_ok();
        if let (Some(armed), Ok(identity)) = (&self.armed, &found)
            && armed.identity == *identity
            && !armed.lost.load(Ordering::Acquire)
        {
            return false;
        }
        let had = self.armed.take().is_some();
        match found.map_err(notify::Error::io).and_then(|identity| self.arm(identity)) {
            Ok(armed) => {
                tracing::info!(directory = %self.dir.display(), "watching the plugin directory");
                self.armed = Some(armed);
                self.complaint.clear();
                true
            }
            Err(error) => {
                let complaint = error.to_string();
                if self.complaint != complaint {
                    tracing::warn!(directory = %self.dir.display(), error = complaint, "the plugin directory can't be watched; trying again every {POLL_INTERVAL:?}");
                    self.complaint = complaint;
                }
                had || there
            }
        }
    }

    fn arm(&self, identity: (u64, u64)) -> notify::Result<Armed> {
        let root = fs::canonicalize(&self.dir)?;
        let lost = Arc::new(AtomicBool::new(false));
        let handler = {
            let (root, lost, wake) = (root.clone(), Arc::clone(&lost), self.wake.clone());
            move |event: notify::Result<Event>| {
                match event {
                    Ok(event) if is_reading(event.kind) => return,
                    Ok(event) => lost.fetch_or(takes_away(&event, &root), Ordering::AcqRel),
                    Err(_) => lost.fetch_or(true, Ordering::AcqRel),
                };
                // If the channel is full, a signal is already pending.
                wake.try_send(()).ok();
            }
        };
        // The target of a link outside the directory isn't read, and a target inside it is watched itself.
        let mut watcher = RecommendedWatcher::new(handler, Config::default().with_follow_symlinks(false))?;
        watcher.watch(&root, RecursiveMode::Recursive)?;
        Ok(Armed { identity, lost, _watcher: watcher })
    }
}

fn identity(dir: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(dir).map(|found| (found.dev(), found.ino()))
}

/// We read the files after each change, which must not count as another change.
fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

fn takes_away(event: &Event, root: &Path) -> bool {
    matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))) && event.paths.iter().any(|path| path == root)
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;
    use std::{io::Write, os::unix::fs::symlink};
    use tempfile::TempDir;

    /// A user of a plugin: reads it only when notified.
    struct Reader {
        dir: PathBuf,
        changes: watch::Receiver<u64>,
    }

    impl Reader {
        fn new(dir: &Path) -> Self {
            Self { dir: dir.to_owned(), changes: watch_and_look(dir, Duration::from_millis(50)).unwrap() }
        }

        async fn wait_for_change(&mut self) {
            tokio::time::timeout(Duration::from_mins(1), self.changes.changed()).await.unwrap().unwrap();
        }

        async fn sees(&mut self, path: &str, wanted: &str) {
            loop {
                self.wait_for_change().await;
                let found = read(&self.dir, path).map_or_else(|error| error.reason().to_owned(), |bytes| String::from_utf8(bytes).unwrap());
                if found == wanted {
                    return;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_file_is_seen_when_it_is_made_written_replaced_and_deleted() {
        let dir = TempDir::new().unwrap();
        let mut reader = Reader::new(dir.path());
        let file = dir.path().join("a");
        fs::write(&file, "made").unwrap();
        reader.sees("a", "made").await;
        fs::write(&file, "written").unwrap();
        reader.sees("a", "written").await;
        for name in ["replaced", "replaced again"] {
            fs::write(dir.path().join("new"), name).unwrap();
            fs::rename(dir.path().join("new"), &file).unwrap();
            reader.sees("a", name).await;
        }
        fs::remove_file(&file).unwrap();
        reader.sees("a", "FileMissing").await;
    }

    #[tokio::test]
    async fn a_file_in_a_new_folder_is_seen() {
        let dir = TempDir::new().unwrap();
        let mut reader = Reader::new(dir.path());
        let folder = dir.path().join("team/labels");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a"), "one").unwrap();
        reader.sees("team/labels/a", "one").await;
        fs::write(folder.join("a"), "two").unwrap();
        reader.sees("team/labels/a", "two").await;
    }

    #[tokio::test]
    async fn every_swap_of_a_mounted_config_map_is_seen() {
        let dir = TempDir::new().unwrap();
        // Like a kubelet: creates a new folder, replaces the old link with a new one, and deletes the old folder.
        let swap = |version: &str| {
            let old = fs::read_link(dir.path().join("..data"));
            let folder = format!("..2026_{version}");
            fs::create_dir(dir.path().join(&folder)).unwrap();
            fs::write(dir.path().join(&folder).join("plugin.wasm"), version).unwrap();
            symlink(&folder, dir.path().join("..data_tmp")).unwrap();
            fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
            if let Ok(old) = old {
                fs::remove_dir_all(dir.path().join(old)).unwrap();
            }
        };
        swap("0");
        symlink("..data/plugin.wasm", dir.path().join("plugin.wasm")).unwrap();
        let mut reader = Reader::new(dir.path());
        for version in ["1", "2", "3"] {
            swap(version);
            reader.sees("plugin.wasm", version).await;
        }
    }

    #[tokio::test]
    async fn a_file_that_was_half_written_is_seen_once_it_is_complete() {
        let dir = TempDir::new().unwrap();
        let mut reader = Reader::new(dir.path());
        let mut file = fs::File::create(dir.path().join("a")).unwrap();
        file.write_all(b"half").unwrap();
        reader.sees("a", "half").await;
        file.write_all(b" and half").unwrap();
        reader.sees("a", "half and half").await;
    }

    #[tokio::test]
    async fn a_file_that_is_written_without_end_is_seen_meanwhile() {
        let dir = TempDir::new().unwrap();
        let mut reader = Reader::new(dir.path());
        let stop = Arc::new(AtomicBool::new(false));
        let (file, stopped) = (dir.path().join("a"), Arc::clone(&stop));
        let writer = thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                fs::write(&file, "again").unwrap();
            }
        });
        reader.wait_for_change().await;
        reader.wait_for_change().await;
        stop.store(true, Ordering::Release);
        writer.join().unwrap();
    }

    #[tokio::test]
    async fn a_directory_may_be_missing_deleted_and_made_again() {
        let parent = TempDir::new().unwrap();
        let dir = parent.path().join("plugins");
        let mut reader = Reader::new(&dir);
        for round in ["one", "two", "three"] {
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("a"), round).unwrap();
            reader.sees("a", round).await;
            fs::write(dir.join("a"), "changed").unwrap();
            reader.sees("a", "changed").await;
            fs::remove_dir_all(&dir).unwrap();
            reader.sees("a", "FileMissing").await;
        }
    }

    #[tokio::test]
    async fn a_directory_that_is_replaced_or_reached_by_another_link_is_seen() {
        let parent = TempDir::new().unwrap();
        let (dir, other) = (parent.path().join("plugins"), parent.path().join("other"));
        for (folder, content) in [(&dir, "old"), (&other, "new")] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("a"), content).unwrap();
        }
        let link = parent.path().join("link");
        symlink(&dir, &link).unwrap();
        let (mut reader, mut by_link) = (Reader::new(&dir), Reader::new(&link));
        fs::rename(&dir, parent.path().join("away")).unwrap();
        fs::rename(&other, &dir).unwrap();
        reader.sees("a", "new").await;
        by_link.sees("a", "new").await;

        symlink(parent.path().join("away"), parent.path().join("link.new")).unwrap();
        fs::rename(parent.path().join("link.new"), &link).unwrap();
        by_link.sees("a", "old").await;
    }

    #[test]
    fn reading_is_no_change_and_the_end_of_writing_is() {
        let closed = |mode| EventKind::Access(AccessKind::Close(mode));
        assert!(is_reading(EventKind::Access(AccessKind::Open(AccessMode::Any))) && is_reading(closed(AccessMode::Read)));
        assert!(!is_reading(closed(AccessMode::Write)) && !is_reading(EventKind::Other));
    }
}
