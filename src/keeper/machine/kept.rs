//! What clients leave in the memory for as long as they are connected, watches and identities:
//! the bound on all of it, and how it goes.

use crate::keeper::acl::{self, Identity};
use crate::keeper::machine::Keeper;
use crate::keeper::output::{WatchStatus, WatchWalk};
use crate::keeper::request::ConnectionId;
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What an identity takes beside the text of its id.
const IDENTITY_BYTES: usize = 128;

/// Watches that are taken away in one go, or told: a fraction of a millisecond.
const WATCHES_AT_ONCE: usize = 1000;

/// Addresses that are remembered at least, so that few are never looked through.
const ADDRESSES_MIN: usize = 64;

/// What connections are from the start: a list for each address, not for each connection.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    identities: FxHashMap<IpAddr, Arc<[Identity]>>,
    /// How many there may be before those are looked for that nobody has any more.
    sweep_at: usize,
}

impl Addresses {
    /// What a connection from an address is.
    pub(super) fn identities(&mut self, peer: IpAddr) -> Arc<[Identity]> {
        if self.identities.len() > self.sweep_at.max(ADDRESSES_MIN) {
            self.identities.retain(|_, list| Arc::strong_count(list) > 1);
            self.sweep_at = self.identities.len() * 2;
        }
        let new = || Arc::from([acl::ip_identity(peer)]);
        Arc::clone(self.identities.entry(peer).or_insert_with(new))
    }
}

impl Keeper {
    /// A connection has proved to be somebody else besides.
    pub(super) fn take_identities(&mut self, connection: ConnectionId, identities: Vec<Identity>) {
        let open = self.connections.get_mut(&connection).filter(|open| !open.closed);
        let Some(open) = open else { return };
        let new = identities.get(open.identities.len()..).unwrap_or_default();
        if new.is_empty() {
            return;
        }
        let mut bytes: usize = new.iter().map(|new| new.id.len() + IDENTITY_BYTES).sum();
        if open.identities.len() > 1 && Arc::strong_count(&open.identities) > 1 {
            // Requests that wait keep the list as it was; that of an address is there anyway. It
            // counts until the connection ends: who has few identities does not notice, and who
            // has many has no use for that.
            bytes += open.identities.len() * IDENTITY_BYTES;
        }
        open.identities = identities.into();
        open.identity_bytes += bytes;
        self.identity_bytes += bytes;
        self.bound_kept();
    }

    /// Past the bound on what all keep, whoever keeps the most is closed.
    pub(super) fn bound_kept(&mut self) {
        while self.kept_bytes() > self.options.kept_bytes_max {
            let open = self.connections.iter().filter(|(_, open)| !open.closed);
            let kept = open.map(|(id, open)| (self.watches.bytes(*id) + open.identity_bytes, *id));
            let Some((bytes, worst)) = kept.max() else { return };
            let session = self.connections.get(&worst).and_then(|open| open.session);
            tracing::warn!(
                session = format_args!("{:#x}", session.map_or(0, |session| session.0)),
                bytes,
                bytes_max = self.options.kept_bytes_max,
                "clients keep too many watches and identities: closing the one with the most"
            );
            self.close(worst);
        }
    }

    fn kept_bytes(&self) -> usize {
        self.watches.total_bytes() + self.identity_bytes
    }

    /// A connection that is closed keeps nothing any more.
    pub(super) fn keeps_nothing(&mut self, connection: ConnectionId) {
        if let Some(open) = self.connections.get_mut(&connection) {
            self.identity_bytes -= std::mem::take(&mut open.identity_bytes);
        }
        self.watches.connection_gone(connection);
        self.watches.remove_gone(WATCHES_AT_ONCE);
    }

    /// Some of the data watches of this shim's connections, and where it goes on.
    pub fn watches(&self, walk: WatchWalk) -> WatchStatus {
        let WatchWalk { connections, mut left } = walk;
        let mut connections = connections.unwrap_or_else(|| self.watches.data_watchers().collect());
        let mut entries = Vec::new();
        while let Some(connection) = connections.last() {
            let open = self.connections.get(connection);
            let session = open.and_then(|open| open.session);
            let (Some(session), Some(paths)) = (session, self.watches.data_paths_of(*connection))
            else {
                connections.pop();
                left = None;
                continue;
            };
            // From the last to the first: the last takes the place of what goes meanwhile.
            let end = left.unwrap_or(paths.len()).min(paths.len());
            let begin = end.saturating_sub(WATCHES_AT_ONCE - entries.len());
            let some = paths.get_range(begin..end).into_iter().flatten();
            entries.extend(some.map(|path| (session, Arc::clone(path))));
            if begin == 0 {
                connections.pop();
                left = None;
            } else {
                left = Some(begin);
            }
            if entries.len() >= WATCHES_AT_ONCE {
                break;
            }
        }
        let rest =
            (!connections.is_empty()).then_some(WatchWalk { connections: Some(connections), left });
        WatchStatus { entries, rest }
    }

    /// Whether there is something left to do that can be done at any time, and does nothing that
    /// could be seen but through the figures: see [`Self::tidy_up`].
    pub fn is_untidy(&self) -> bool {
        self.watches.has_gone()
    }

    /// Does a part of what can be done at any time: a fraction of a millisecond.
    pub fn tidy_up(&mut self) {
        self.watches.remove_gone(WATCHES_AT_ONCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::options::Options;
    use crate::keeper::output::Output;
    use crate::keeper::request::{Auth, SessionId, Xid};
    use crate::keeper::time::Now;
    use crate::keeper::watches::Table;
    use bytes::Bytes;
    use jute::Text;
    use rustc_hash::FxHashSet;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    /// With two connections.
    fn keeper(kept_bytes_max: usize) -> Keeper {
        let options = Options {
            tick: Duration::from_secs(2),
            session_timeout_min: Duration::from_secs(4),
            session_timeout_max: Duration::from_secs(40),
            seed: [7; 32],
            sole: true,
            session_key_delay: Duration::from_secs(1),
            writes_worth_a_batch: Options::WRITES_WORTH_A_BATCH,
            alone_after: Options::ALONE_AFTER,
            ttl_nodes: false,
            super_digest: None,
            skip_acl: false,
            enforce_quota: false,
            kept_bytes_max,
            container_check_interval: Duration::from_secs(60),
        };
        let mut keeper = Keeper::new(options, Now { monotonic: Duration::ZERO, unix_ms: 0 });
        keeper.handle_opened(A, Ipv4Addr::LOCALHOST.into());
        keeper.handle_opened(B, Ipv4Addr::LOCALHOST.into());
        keeper
    }

    fn closed(keeper: &mut Keeper) -> Vec<ConnectionId> {
        let outputs = std::iter::from_fn(|| keeper.poll_output());
        let closed = outputs.filter_map(|output| match output {
            Output::Close(connection) => Some(connection),
            Output::Send(..) | Output::Store(_) => None,
        });
        closed.collect()
    }

    fn prove(keeper: &mut Keeper, connection: ConnectionId, user: &str) {
        let auth = Bytes::from(format!("{user}:password"));
        let auth = Auth { scheme: Some(Text::from("digest")), auth: Some(auth) };
        keeper.authenticate(connection, Xid(-4), &auth);
    }

    #[test]
    fn whoever_keeps_the_most_is_closed_past_the_bound_and_the_others_are_not() {
        let mut keeper = keeper(20_000);
        for number in 0..50 {
            keeper.leave_watch(A, Table::Child, &format!("/{number}"));
        }
        for number in 0..20 {
            keeper.leave_watch(B, Table::Data, &format!("/{number}"));
        }
        assert_eq!(closed(&mut keeper), []);
        for number in 0..20 {
            keeper.leave_watch(B, Table::Child, &format!("/{number}"));
        }
        assert_eq!(closed(&mut keeper), [A], "B asked last, and A keeps more");
        assert_eq!(keeper.watches.total(), 40, "those of B");
        keeper.leave_watch(A, Table::Data, "/a");
        assert_eq!(keeper.watches.total(), 40, "nothing is left for who is closed");
        keeper.handle_closed(A, keeper.now);
        keeper.handle_closed(B, keeper.now);
        assert_eq!((keeper.kept_bytes(), keeper.watches.total()), (0, 0));
    }

    #[test]
    fn identities_count_like_watches() {
        let mut keeper = keeper(100_000);
        for number in 0..30 {
            prove(&mut keeper, A, &format!("{number}{}", "u".repeat(2000)));
            prove(&mut keeper, B, "the-same");
        }
        assert_eq!(closed(&mut keeper), []);
        for number in 0..1000 {
            keeper.leave_watch(B, Table::Child, &format!("/{number}"));
            if !keeper.is_open(A) {
                break;
            }
        }
        assert_eq!(closed(&mut keeper), [A]);
        keeper.handle_closed(A, keeper.now);
        keeper.handle_closed(B, keeper.now);
        assert_eq!(keeper.kept_bytes(), 0);
    }

    #[test]
    fn connections_from_one_address_share_what_they_are_and_nothing_is_left_of_them() {
        let mut addresses = Addresses::default();
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        let held = addresses.identities(address(0));
        assert!(Arc::ptr_eq(&held, &addresses.identities(address(0))));
        for number in 0..1000 {
            addresses.identities(address(number));
        }
        assert!(addresses.identities.len() <= ADDRESSES_MIN + 1);
        assert!(Arc::ptr_eq(&held, &addresses.identities(address(0))));
    }

    #[test]
    fn lists_of_identities_that_requests_hold_are_counted() {
        let mut keeper = keeper(1 << 20);
        let mut held = Vec::new();
        for number in 0..1000 {
            prove(&mut keeper, A, &number.to_string());
            held.extend(keeper.connections.get(&A).map(|open| Arc::clone(&open.identities)));
        }
        assert_eq!(closed(&mut keeper), [A], "{} lists", held.len());
    }

    #[test]
    fn many_watches_of_a_connection_that_is_gone_are_tidied_up_later() {
        let mut keeper = keeper(1 << 30);
        for number in 0..5 * WATCHES_AT_ONCE {
            keeper.leave_watch(A, Table::Data, &format!("/{number}"));
        }
        keeper.handle_closed(A, keeper.now);
        let mut left = vec![keeper.watches.total()];
        while keeper.is_untidy() {
            keeper.tidy_up();
            left.push(keeper.watches.total());
        }
        assert_eq!(left, [4, 3, 2, 1, 0].map(|times| times * WATCHES_AT_ONCE));
    }

    #[test]
    fn watches_are_told_by_and_by_and_none_that_stays_is_missed() {
        let mut keeper = keeper(1 << 30);
        let path = |number: usize| format!("/{number}");
        for connection in [A, B] {
            let open = keeper.connections.get_mut(&connection).expect("it is there");
            open.session = i64::try_from(connection.0).ok().map(SessionId);
            for number in 0..3 * WATCHES_AT_ONCE {
                keeper.leave_watch(connection, Table::Data, &path(number));
            }
        }
        let (mut told, mut walk, mut fired) = (Vec::new(), WatchWalk::default(), 0);
        loop {
            let status = keeper.watches(walk);
            assert!(status.entries.len() <= WATCHES_AT_ONCE);
            told.extend(status.entries);
            let Some(rest) = status.rest else { break };
            walk = rest;
            // Some go, and some come.
            for _ in 0..100 {
                keeper.watches.fire(Table::Data, &path(fired), &mut Vec::new());
                keeper.leave_watch(A, Table::Data, &format!("/new-{fired}"));
                fired += 2;
            }
        }
        let met: FxHashSet<(SessionId, Arc<str>)> = told.into_iter().collect();
        for session in [SessionId(1), SessionId(2)] {
            for number in (1..3 * WATCHES_AT_ONCE).step_by(2).chain(fired..3 * WATCHES_AT_ONCE) {
                let entry = (session, Arc::from(path(number)));
                assert!(met.contains(&entry), "{entry:?}");
            }
        }
    }
}
