//! A relay between a client and the API server that can stop forwarding at any time: connections stay open, and no data passes.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

/// Whether it is frozen, and the condition variable for a change of that.
type Frozen = Arc<(Mutex<bool>, Condvar)>;

/// A relay. Its connections end with the test.
#[derive(Debug)]
pub struct Relay {
    /// Its address.
    pub address: SocketAddr,
    frozen: Frozen,
}

impl Relay {
    /// Forwards data between its clients and the target.
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

    /// A relay for the API server of a kubeconfig, and a kubeconfig that uses the relay, in the same folder.
    pub fn before(kubeconfig: &Path) -> (Self, PathBuf) {
        let written = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        let server =
            written.split("https://").nth(1).and_then(|rest| rest.split(['"', '\n', ' ']).next()).expect("an API server's address");
        let relay = Self::start(server.parse().expect("an address and a port"));
        let through = kubeconfig.with_extension(format!("relayed-{}", relay.address.port()));
        std::fs::write(&through, written.replace(server, &relay.address.to_string())).expect("a kubeconfig beside the first");
        (relay, through)
    }

    /// Stops forwarding, and keeps the connections open.
    pub fn freeze(&self) {
        self.set(true);
    }

    /// Forwards everything again, including delayed data.
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
    // If one direction ends, the other one ends too.
    for end in [from, to] {
        end.shutdown(Shutdown::Both).ok();
    }
}
