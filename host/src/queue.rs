//! A queue of keys: each is in it at most once, none is worked on twice at a time, and failures are retried with increasing delays.

use pointsman_sandbox::sync::locked;
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::{Mutex, MutexGuard},
    time::{Duration, SystemTime},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// The delay before the first retry of a failure; each further delay is twice as long.
const BASE_BACKOFF: Duration = Duration::from_millis(100);

/// The maximum delay.
const MAX_BACKOFF: Duration = Duration::from_mins(2);

/// A queue of keys.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<QueueState<K>>,
    news: Notify,
}

#[derive(Debug)]
struct QueueState<K> {
    ready: VecDeque<K>,
    /// The keys that are ready, and since when they should be worked on.
    waiting: HashMap<K, SystemTime>,
    working: HashSet<K>,
    /// The keys that were added while they are being worked on.
    again: HashMap<K, SystemTime>,
    later: BTreeMap<(Instant, u64), K>,
    due: HashMap<K, Due>,
    failures: HashMap<K, u32>,
    count: u64,
}

/// When a key is to be added, the number of this entry, and when the event behind it was seen; none for a timer.
type Due = (Instant, u64, Option<SystemTime>);

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let state = QueueState {
            ready: VecDeque::new(),
            waiting: HashMap::new(),
            working: HashSet::new(),
            again: HashMap::new(),
            later: BTreeMap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            count: 0,
        };
        Self { state: Mutex::new(state), news: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    fn state(&self) -> MutexGuard<'_, QueueState<K>> {
        locked(&self.state)
    }

    /// Adds keys. A key that is already queued isn't added twice.
    pub fn add(&self, keys: impl IntoIterator<Item = K>) {
        self.add_seen(keys, SystemTime::now());
    }

    /// Adds keys for an event that was seen earlier.
    pub fn add_seen(&self, keys: impl IntoIterator<Item = K>, seen: SystemTime) {
        let mut state = self.state();
        for key in keys {
            state.add(key, seen);
        }
        drop(state);
        self.news.notify_one();
    }

    /// Adds a key after a delay, or earlier if it is already due earlier.
    pub fn add_after(&self, key: K, after: Duration) {
        self.add_later(key, after, None);
    }

    fn add_later(&self, key: K, after: Duration, seen: Option<SystemTime>) {
        let mut state = self.state();
        let at = Instant::now() + after;
        let mut first = seen;
        if let Some((due, number, since)) = state.due.get_mut(&key) {
            first = (*since).into_iter().chain(seen).min();
            if *due <= at {
                *since = first;
                return;
            }
            let due = (*due, *number);
            state.later.remove(&due);
        }
        state.count += 1;
        let number = state.count;
        state.later.insert((at, number), key.clone());
        state.due.insert(key, (at, number, first));
        drop(state);
        self.news.notify_one();
    }

    /// Adds a key after a delay because of a report about it. A failed key keeps its retry delay: a report doesn't fix the failure.
    pub fn add_soon(&self, key: K, after: Duration, seen: SystemTime) {
        let waits = {
            let state = self.state();
            state.failures.contains_key(&key) && state.due.contains_key(&key)
        };
        if !waits {
            self.add_later(key, after, Some(seen));
        }
    }

    /// The number of consecutive failures of a key.
    pub fn failures(&self, key: &K) -> u32 {
        self.state().failures.get(key).copied().unwrap_or_default()
    }

    /// Adds a failed key, each time with a longer delay.
    pub fn retry(&self, key: K) {
        let after = {
            let mut state = self.state();
            let failures = state.failures.entry(key.clone()).or_default();
            let after = BASE_BACKOFF.saturating_mul(1 << (*failures).min(16)).min(MAX_BACKOFF);
            *failures += 1;
            after
        };
        self.add_after(key, after);
    }

    /// Resets the failures of a key.
    pub fn reset_failures(&self, key: &K) {
        self.state().failures.remove(key);
    }

    /// Returns the next key, and since when it should be worked on: when its first event was seen, or its timer was due. The caller must
    /// call `done`.
    pub async fn next(&self) -> (K, SystemTime) {
        loop {
            let wake = {
                let mut state = self.state();
                state.promote_due();
                if let Some(key) = state.ready.pop_front() {
                    let since = state.waiting.remove(&key).unwrap_or_else(SystemTime::now);
                    state.working.insert(key.clone());
                    if !state.ready.is_empty() {
                        // Another worker may be asleep.
                        self.news.notify_one();
                    }
                    return (key, since);
                }
                state.later.keys().next().map(|(at, _)| *at)
            };
            match wake {
                Some(at) => tokio::select! {
                    () = self.news.notified() => {}
                    () = sleep_until(at) => {}
                },
                None => self.news.notified().await,
            }
        }
    }

    /// Marks a key as worked on.
    pub fn done(&self, key: &K) {
        let mut state = self.state();
        state.working.remove(key);
        if let Some(since) = state.again.remove(key) {
            state.add(key.clone(), since);
            drop(state);
            self.news.notify_one();
        }
    }

    /// Whether no key is ready or being worked on; delayed keys don't matter.
    pub fn idle(&self) -> bool {
        let state = self.state();
        state.ready.is_empty() && state.working.is_empty()
    }

    /// The number of keys that are ready.
    pub fn depth(&self) -> usize {
        self.state().ready.len()
    }
}

impl<K: Clone + Eq + Hash> QueueState<K> {
    /// Adds a key. The earliest of several times wins.
    fn add(&mut self, key: K, seen: SystemTime) {
        let since = if self.working.contains(&key) {
            self.again.entry(key).or_insert(seen)
        } else {
            self.waiting.entry(key).or_insert_with_key(|key| {
                self.ready.push_back(key.clone());
                seen
            })
        };
        *since = seen.min(*since);
    }

    /// Adds the keys that are due.
    fn promote_due(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let ((at, _), key) = entry.remove_entry();
            let seen = self.due.remove(&key).and_then(|(_, _, seen)| seen);
            // All workers may have been busy when it was due.
            let since = seen.or_else(|| SystemTime::now().checked_sub(now - at));
            self.add(key, since.unwrap_or_else(SystemTime::now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test(start_paused = true)]
    async fn what_is_added_twice_is_worked_on_once() {
        let queue = Queue::default();
        queue.add(["a", "b", "a"]);
        assert_eq!((queue.depth(), queue.next().await.0, queue.next().await.0), (2, "a", "b"));
        assert!(queue.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_added_while_it_is_worked_on_comes_again_afterwards() {
        let queue = Queue::default();
        queue.add(["a"]);
        let (key, _) = queue.next().await;
        queue.add(["a", "a"]);
        assert!(queue.next().now_or_never().is_none());
        queue.done(&key);
        assert_eq!(queue.next().await.0, "a");
        queue.done(&"a");
        assert!(queue.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_back_later_and_later_until_they_are_forgiven() {
        let queue = Queue::default();
        let mut waited = Vec::new();
        for _ in 0..3 {
            queue.retry("a");
            let before = Instant::now();
            let (key, _) = queue.next().await;
            waited.push(before.elapsed().as_millis());
            queue.done(&key);
        }
        assert_eq!(waited, [100, 200, 400]);
        queue.reset_failures(&"a");
        queue.retry("a");
        let before = Instant::now();
        queue.next().await;
        assert_eq!(before.elapsed().as_millis(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_does_not_shorten_the_wait_after_a_failure() {
        let queue = Queue::default();
        queue.retry("a");
        queue.add_soon("a", Duration::from_millis(1), SystemTime::now());
        let before = Instant::now();
        queue.next().await;
        assert_eq!((before.elapsed().as_millis(), queue.failures(&"a")), (100, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_sooner_of_two_times_counts() {
        let queue = Queue::default();
        queue.add_after("a", Duration::from_mins(1));
        queue.add_after("a", Duration::from_secs(1));
        queue.add_after("a", Duration::from_secs(30));
        let before = Instant::now();
        let (key, _) = queue.next().await;
        assert_eq!(before.elapsed().as_secs(), 1);
        queue.done(&key);
        assert!(queue.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn of_all_that_a_key_is_added_for_what_was_seen_first_counts() {
        let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        let queue = Queue::default();
        queue.add_seen(["a"], at(2));
        queue.add_seen(["a"], at(1));
        queue.add_seen(["a"], at(3));
        assert_eq!(queue.next().await, ("a", at(1)));
        queue.add_seen(["a"], at(5));
        queue.add_seen(["a"], at(4));
        queue.done(&"a");
        assert_eq!(queue.next().await, ("a", at(4)), "what comes while it is worked on is for the next time");
        queue.done(&"a");

        queue.add_after("a", Duration::from_mins(1));
        queue.add_soon("a", Duration::from_secs(1), at(7));
        queue.add_soon("a", Duration::from_secs(2), at(6));
        assert_eq!(queue.next().await, ("a", at(6)));
        queue.done(&"a");
        queue.add_after("a", Duration::from_secs(1));
        let before = SystemTime::now();
        let (_, since) = queue.next().await;
        assert!(since >= before, "where nothing was seen, the time at which it was due counts");
    }
}
