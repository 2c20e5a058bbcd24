//! The webhook's connections, and which of them is closed for a new one. Anyone who reaches the port may open connections, and the API
//! server must still get one.

use futures::task::AtomicWaker;
use pointsman_sandbox::sync::locked;
use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};
use tokio::time::Instant;

/// The maximum number of connections.
const CONNECTIONS: usize = 512;

/// The maximum number of connections from one address.
const CONNECTIONS_OF_ADDRESS: usize = 128;

/// All connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    next: u64,
    all: BTreeMap<u64, KnownConnection>,
}

#[derive(Debug)]
struct KnownConnection {
    from: IpAddr,
    /// When a response was last sent on it, or it began.
    answered: Instant,
    end: Arc<End>,
}

#[derive(Debug, Default)]
struct End {
    ended: AtomicBool,
    waker: AtomicWaker,
}

/// A connection's place among all, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    end: Arc<End>,
    connections: Connections,
}

impl Connections {
    /// A place for a connection from this address. If there are too many, the connection that was idle longest, of the address with the
    /// most, is closed.
    pub(super) fn enter(&self, from: IpAddr) -> Place {
        let mut known = locked(&self.0);
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for connection in known.all.values() {
            *counts.entry(connection.from).or_default() += 1;
        }
        let crowded = if counts.get(&from).is_some_and(|own| *own >= CONNECTIONS_OF_ADDRESS) {
            Some(from)
        } else if known.all.len() >= CONNECTIONS {
            counts.into_iter().max_by_key(|(_, count)| *count).map(|(address, _)| address)
        } else {
            None
        };
        if let Some(crowded) = crowded {
            let of_it = known.all.iter().filter(|(_, connection)| connection.from == crowded);
            let idlest = of_it.min_by_key(|(_, connection)| connection.answered).map(|(number, _)| *number);
            if let Some(gone) = idlest.and_then(|number| known.all.remove(&number)) {
                gone.end.ended.store(true, Ordering::Release);
                gone.end.waker.wake();
            }
        }
        let (number, end) = (known.next, Arc::<End>::default());
        known.next += 1;
        known.all.insert(number, KnownConnection { from, answered: Instant::now(), end: Arc::clone(&end) });
        Place { number, end, connections: self.clone() }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        locked(&self.0).all.len()
    }
}

impl Place {
    /// Records a response.
    pub(super) fn answered(&self) {
        if let Some(own) = locked(&self.connections.0).all.get_mut(&self.number) {
            own.answered = Instant::now();
        }
    }

    /// Ready when the connection must be closed.
    pub(super) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        self.end.waker.register(context.waker());
        if self.end.ended.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.connections.0).all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, time::Duration};

    fn is_ended(place: &Place) -> bool {
        place.end.ended.load(Ordering::Acquire)
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_holds_most_gives_one_up_and_first_what_nothing_was_answered_on() {
        let (connections, api_server) = (Connections::default(), IpAddr::from([10, 0, 0, 1]));
        let own = [connections.enter(api_server), connections.enter(api_server)];
        let mut held = Vec::new();
        for host in 2..=5 {
            for _ in 0..CONNECTIONS_OF_ADDRESS {
                tokio::time::advance(Duration::from_millis(1)).await;
                held.push(connections.enter(IpAddr::from([10, 0, 0, host])));
            }
        }
        assert_eq!(connections.count(), CONNECTIONS);
        assert_eq!(held.iter().filter(|place| is_ended(place)).count(), 2, "there was no place for the last two");
        let next = connections.enter(api_server);
        assert!(!own.iter().chain([&next]).any(is_ended), "who has few of them keeps them");

        // Limit of one address.
        let (connections, busy) = (Connections::default(), IpAddr::from([10, 0, 0, 9]));
        let mut held: Vec<Place> = (0..CONNECTIONS_OF_ADDRESS).map(|_| connections.enter(busy)).collect();
        tokio::time::advance(Duration::from_secs(1)).await;
        for place in &held[..2] {
            place.answered();
        }
        held.push(connections.enter(busy));
        poll_fn(|context| held[2].poll_ended(context)).await;
        assert!(!is_ended(&held[0]) && !is_ended(&held[1]));
        drop(held);
        assert_eq!(connections.count(), 0);
    }
}
