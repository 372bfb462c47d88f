//! A TCP relay between a client and a server, to cut, hold back and lead elsewhere.
//!
//! It knows nothing of what it carries.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};

/// A relay on a port of its own; closed, with all that goes through it, when it is dropped.
pub struct Relay {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    upstream: SocketAddr,
    open: bool,
    ended: bool,
    streams: Vec<TcpStream>,
}

impl Relay {
    /// Starts a relay to a server.
    ///
    /// # Errors
    /// There is no port for it.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind the relay")?;
        let address = listener.local_addr().context("read the relay's port")?;
        let state = State { upstream, open: true, ended: false, streams: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        thread::spawn(move || accept(&listener, &shared));
        Ok(Self { address, state })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections; new ones are let through.
    pub fn cut(&self) {
        lock(&self.state).cut();
    }

    /// Cuts all connections and lets no new one through.
    pub fn hold(&self) {
        let mut state = lock(&self.state);
        state.open = false;
        state.cut();
    }

    /// Lets new connections through again.
    pub fn release(&self) {
        lock(&self.state).open = true;
    }

    /// Cuts all connections and leads new ones to another server.
    pub fn lead_to(&self, upstream: SocketAddr) {
        let mut state = lock(&self.state);
        state.upstream = upstream;
        state.cut();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.ended = true;
        state.cut();
        drop(state);
        // Wakes the accepting thread, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn cut(&mut self) {
        for stream in self.streams.drain(..) {
            // An error means that it is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, state: &Arc<Mutex<State>>) {
    for client in listener.incoming() {
        let mut state = lock(state);
        if state.ended {
            return;
        }
        if let (true, Ok(client)) = (state.open, client) {
            // Nobody listens upstream: the client sees its connection closed.
            let _ = state.connect(client);
        }
    }
}

impl State {
    fn connect(&mut self, client: TcpStream) -> std::io::Result<()> {
        let server = TcpStream::connect(self.upstream)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        pump(client.try_clone()?, server.try_clone()?);
        pump(server.try_clone()?, client.try_clone()?);
        self.streams.extend([client, server]);
        Ok(())
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let mut buffer = [0_u8; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        // Either end is enough: ZooKeeper has no half-closed connections.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(tag: u8) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut stream = stream;
                    let mut byte = [0_u8; 1];
                    while stream.read_exact(&mut byte).is_ok() {
                        let _ = stream.write_all(&[tag, byte[0]]);
                    }
                });
            }
        });
        address
    }

    fn exchange(stream: &mut TcpStream) -> Option<[u8; 2]> {
        let mut answer = [0_u8; 2];
        stream.write_all(b"x").ok()?;
        stream.read_exact(&mut answer).ok()?;
        Some(answer)
    }

    #[test]
    fn a_relay_carries_cuts_holds_back_and_leads_elsewhere() {
        let relay = Relay::start(echo(b'1')).expect("a relay starts");
        let connect = || TcpStream::connect(relay.address()).expect("the relay accepts");

        let mut stream = connect();
        assert_eq!(exchange(&mut stream), Some(*b"1x"));
        relay.cut();
        assert_eq!(exchange(&mut stream), None);

        assert_eq!(exchange(&mut connect()), Some(*b"1x"));
        relay.hold();
        assert_eq!(exchange(&mut connect()), None);
        relay.release();
        assert_eq!(exchange(&mut connect()), Some(*b"1x"));

        relay.lead_to(echo(b'2'));
        assert_eq!(exchange(&mut connect()), Some(*b"2x"));
    }
}
