//! Threads with one runtime each. A task stays on its first thread: in a runtime of several threads, each message of a proxy would wake a
//! second thread to share work that takes less time than the waking.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::JoinSet,
};

/// Threads for connections and other tasks. Each ends once no task has a place on it.
#[derive(Debug)]
pub struct Threads(Vec<Arc<OneThread>>);

#[derive(Debug)]
struct OneThread {
    handle: Handle,
    /// The number of taken places.
    taken: AtomicUsize,
    /// Ends the thread when dropped.
    _end: oneshot::Sender<()>,
}

/// A place on a thread, until it is dropped.
#[derive(Debug)]
struct Place(Arc<OneThread>);

impl Threads {
    /// Starts as many threads as the machine runs at once.
    pub fn start(name: &str) -> io::Result<Self> {
        let number = thread::available_parallelism().map_or(1, usize::from);
        (0..number).map(|at| OneThread::start(format!("{name}-{at}")).map(Arc::new)).collect::<io::Result<_>>().map(Self)
    }

    /// Spawns a task that has a place on one of the threads until it ends.
    pub fn spawn<T: Send + 'static>(&self, tasks: &mut JoinSet<T>, task: impl Future<Output = T> + Send + 'static) {
        let Some(place) = self.place() else {
            tasks.spawn(task);
            return;
        };
        let handle = place.0.handle.clone();
        let placed = async move {
            let _place = place;
            task.await
        };
        tasks.spawn_on(placed, &handle);
    }

    /// A place on the thread with the fewest places taken.
    fn place(&self) -> Option<Place> {
        let thread = self.0.iter().min_by_key(|thread| thread.taken.load(Ordering::Relaxed))?;
        thread.taken.fetch_add(1, Ordering::Relaxed);
        Some(Place(Arc::clone(thread)))
    }
}

impl OneThread {
    fn start(name: String) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        thread::Builder::new().name(name).spawn(move || runtime.block_on(ended))?;
        Ok(Self { handle, taken: AtomicUsize::new(0), _end: end })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_divided_evenly_and_free_again_when_they_are_dropped() {
        let threads = Threads(["a", "b"].map(|name| Arc::new(OneThread::start(name.to_owned()).unwrap())).into());
        let places: Vec<Place> = (0..4).map(|_| threads.place().unwrap()).collect();
        let taken = || threads.0.iter().map(|thread| thread.taken.load(Ordering::Relaxed)).collect::<Vec<_>>();
        assert_eq!(taken(), [2, 2]);
        drop(places);
        assert_eq!(taken(), [0, 0]);
    }

    #[test]
    fn a_task_stays_on_its_thread_which_lives_as_long_as_the_place() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut tasks = JoinSet::new();
        Threads::start("place").unwrap().spawn(&mut tasks, async move {
            let before = thread::current().id();
            tokio::task::yield_now().await;
            let inner = tokio::spawn(async { thread::current().id() }).await.unwrap();
            sender.send((before, thread::current().id(), inner)).unwrap();
        });
        let (before, after, inner) = receiver.recv().unwrap();
        assert!(before == after && before == inner);
    }
}
