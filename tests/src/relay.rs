//! A relay between a client and the API server that can stop forwarding in the middle: connections stay open, and nothing comes through.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

/// Whether nothing comes through, and whom to wake when that ends.
type Frozen = Arc<(Mutex<bool>, Condvar)>;

/// A relay. Its connections end with the test.
#[derive(Debug)]
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    frozen: Frozen,
}

impl Relay {
    /// Forwards bytes between whoever connects and the target.
    pub fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
        let address = listener.local_addr().expect("it listens");
        let frozen = Frozen::default();
        let freezes = Arc::clone(&frozen);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(target) else { continue };
                let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else { continue };
                for (from, to) in [(from_client, server), (from_server, client)] {
                    let freezes = Arc::clone(&freezes);
                    thread::spawn(move || forward(&from, &to, &freezes));
                }
            }
        });
        Self { address, frozen }
    }

    /// The same for the API server of a kubeconfig: a kubeconfig beside it leads through the relay.
    pub fn before(kubeconfig: &Path) -> (Self, PathBuf) {
        let written = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        let server =
            written.split("https://").nth(1).and_then(|rest| rest.split(['"', '\n', ' ']).next()).expect("an API server's address");
        let relay = Self::start(server.parse().expect("an address and a port"));
        let through = kubeconfig.with_extension(format!("relayed-{}", relay.address.port()));
        std::fs::write(&through, written.replace(server, &relay.address.to_string())).expect("a kubeconfig beside the first");
        (relay, through)
    }

    /// From now on nothing comes through, though nobody hangs up.
    pub fn freeze(&self) {
        self.set(true);
    }

    /// Lets everything through again, what has waited too.
    pub fn thaw(&self) {
        self.set(false);
    }

    fn set(&self, frozen: bool) {
        let (state, turns) = &*self.frozen;
        *state.lock().unwrap_or_else(PoisonError::into_inner) = frozen;
        turns.notify_all();
    }
}

fn forward(mut from: &TcpStream, mut to: &TcpStream, (frozen, turns): &(Mutex<bool>, Condvar)) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let state = frozen.lock().unwrap_or_else(PoisonError::into_inner);
        drop(turns.wait_while(state, |frozen| *frozen));
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // The one direction that ends ends the other.
    for end in [from, to] {
        end.shutdown(Shutdown::Both).ok();
    }
}
