//! Accepts connections, within the limits, and backs off when the system has no more to give.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use crate::server::registry::Seat;
use crate::server::{Shared, connection};

/// The pause after the first accept that fails; it doubles up to the longest.
const BACKOFF_MIN: Duration = Duration::from_millis(10);

/// The longest pause: what is missing (files, memory) may be back any time.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Accepts until the server stops.
pub async fn accept(listener: TcpListener, shared: &Arc<Shared>, connections: &TaskTracker) {
    let mut backoff = BACKOFF_MIN;
    loop {
        // Both branches are safe to cancel.
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.stopping.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                backoff = BACKOFF_MIN;
                // Over the limit: accepted and closed at once, before any byte
                // (`NIOServerCnxnFactory.AcceptThread.doAccept`).
                if let Some(seat) = admit(shared, peer) {
                    connections.spawn(serve(stream, seat));
                }
            }
            // The client was gone before it was accepted: that concerns nobody else.
            Err(error) if concerns_one_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, ?backoff, "no connection can be accepted");
                tokio::select! {
                    () = tokio::time::sleep(backoff) => {}
                    () = shared.stopping.cancelled() => return,
                }
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, peer: SocketAddr) -> Option<Seat> {
    let seat = Seat::take(shared, peer);
    if seat.is_none() {
        shared.figures.connections_rejected.fetch_add(1, Relaxed);
        let max = shared.options.connections_per_address_max;
        tracing::debug!(%peer, max, "too many connections");
    }
    seat
}

fn serve(stream: TcpStream, seat: Seat) -> impl Future<Output = ()> {
    // Replies are small and written in one piece: there is nothing to wait for.
    if let Err(error) = stream.set_nodelay(true) {
        // Reading will say so, too.
        tracing::debug!(peer = %seat.figures.peer(), %error, "a connection ended before it began");
    }
    let (reader, writer) = stream.into_split();
    connection::serve(reader, writer, seat)
}

fn concerns_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        fn bytes<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
            size_of::<F>()
        }
        // There may be a hundred thousand that only ping.
        assert!(bytes(serve) <= 560, "{}", bytes(serve));
    }
}
