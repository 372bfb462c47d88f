//! One connection to one member of etcd, and what is known about that member.

use crate::keeper::zxid::Revision;
use crate::store::etcd::gathered;
use crate::store::etcd::options::{Member, UserOptions};
use crate::store::etcd::prefix::Prefix;
use crate::store::etcd::room::{self, Room};
use etcd_client::{
    Channel, Client, ConnectOptions, GetOptions, KvClient, LeaseClient, ResponseHeader,
    StatusResponse, WatchOptions, WatchStream,
};
use std::sync::Arc;
use std::time::Duration;
use tonic::metadata::{Ascii, MetadataValue};

/// A connection that answered when it was made.
#[derive(Clone)]
pub(super) struct Connection {
    /// Grows with each connection that is used; 0 before.
    pub(super) generation: u64,
    /// The member's URL.
    pub(super) endpoint: String,
    /// Its version, as it says.
    pub(super) version: String,
    /// etcd's cluster id.
    pub(super) cluster: u64,
    /// How large a request it takes, if it was asked.
    pub(super) room: Room,
    /// For what the crate has no call.
    pub(super) channel: tonic::transport::Channel,
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    client: Client,
    /// Whose calls end when the member has lost the leader.
    watching: Client,
    user: Option<Arc<UserOptions>>,
}

/// How far etcd is, by a linearizable read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) cluster: u64,
    pub(super) revision: Revision,
}

/// Who a member is, and who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    pub(super) member: u64,
    pub(super) leader: u64,
    pub(super) version: String,
}

impl Connection {
    /// Connects, and asks how far etcd is, who is there, and how large a request may be; all at
    /// once, for whoever looks for a member is in a hurry.
    ///
    /// # Errors
    /// What went wrong, for the log.
    pub(super) async fn open(
        member: &Member,
        prefix: &Prefix,
        bytes_wanted: usize,
    ) -> Result<Self, String> {
        let connection = Self::connect(member).await?;
        let (position, membership, room) = tokio::join!(
            connection.position(prefix),
            connection.membership(),
            room::ask(&connection.kv, bytes_wanted, PROBE_TIMEOUT),
        );
        let (cluster, version) = (position?.cluster, membership?.version);
        Ok(Self { version, cluster, room, ..connection })
    }

    /// Connects, and asks nothing.
    ///
    /// # Errors
    /// What went wrong, for the log.
    pub(super) async fn connect(member: &Member) -> Result<Self, String> {
        let Member { endpoint, user } = member;
        let name = endpoint.uri().to_string();
        let channel = gathered::connect(endpoint).await.map_err(|error| innermost(&error))?;
        // A watch must end when its member has lost the leader: it would wait in silence for
        // ever. Other calls fail by themselves then, later, and with a better reason.
        let (client, watching) =
            tokio::try_join!(client(&channel, false, user), client(&channel, true, user))?;
        Ok(Self {
            generation: 0,
            endpoint: name,
            version: String::new(),
            cluster: 0,
            room: Room::Unknown,
            channel,
            kv: client.kv_client().max_decoding_message_size(usize::MAX),
            lease: client.lease_client(),
            client,
            watching,
            user: user.clone(),
        })
    }

    /// A linearizable read of nothing but the store's own key.
    ///
    /// # Errors
    /// What went wrong, for the log.
    pub(super) async fn position(&self, prefix: &Prefix) -> Result<Position, String> {
        let mut kv = self.kv.clone();
        let options = GetOptions::new().with_count_only();
        let call = kv.get(prefix.own_key(), Some(options));
        let answer = within(PROBE_TIMEOUT, call).await?;
        position(answer.header())
    }

    /// Opens a watch. etcd refuses one whose token has run out in a message of the stream, which
    /// the crate does not look at: so it goes with a fresh one.
    ///
    /// # Errors
    /// What went wrong, for the log.
    pub(super) async fn watch(
        &self,
        key: Vec<u8>,
        options: WatchOptions,
    ) -> Result<WatchStream, String> {
        if self.user.is_some() {
            authenticated(self.watching.refresh_token()).await?;
        }
        let mut watch = self.watching.watch_client().max_decoding_message_size(usize::MAX);
        watch.watch(key, Some(options)).await.map_err(|error| describe(&error))
    }

    /// A fresh token, if etcd asks for one: for streams that are opened without the crate.
    ///
    /// # Errors
    /// What went wrong, for the log.
    pub(super) async fn token(&self) -> Result<Option<MetadataValue<Ascii>>, String> {
        let Some(user) = &self.user else { return Ok(None) };
        let mut client = self.client.auth_client();
        let call = client.authenticate(user.name.clone(), user.password.clone());
        let answer = authenticated(call).await?;
        let token = answer.token().parse();
        token.map(Some).map_err(|_| "a token that is no header's value".to_owned())
    }

    /// Asks the member about itself.
    ///
    /// # Errors
    /// What went wrong, for the log.
    pub(super) async fn status(&self) -> Result<StatusResponse, String> {
        let mut maintenance = self.client.maintenance_client();
        within(PROBE_TIMEOUT, maintenance.status()).await
    }

    /// Asks the member who it is, and who leads.
    ///
    /// # Errors
    /// What went wrong, for the log.
    pub(super) async fn membership(&self) -> Result<Membership, String> {
        let status = self.status().await?;
        let member = status.header().ok_or("an answer without a header")?.member_id();
        let version = status.version().to_owned();
        Ok(Membership { member, leader: status.leader(), version })
    }

    /// Whether the watch's answers to progress requests can be believed: before these versions
    /// they may name a revision whose events have not been sent yet (etcd's issue 15220).
    pub(super) fn tells_progress(&self) -> bool {
        tells_progress(&self.version)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { generation, endpoint, version, .. } = self;
        write!(f, "Connection {generation} to {endpoint} ({version})")
    }
}

/// How long a call that should take no time may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

async fn client(
    channel: &tonic::transport::Channel,
    require_leader: bool,
    user: &Option<Arc<UserOptions>>,
) -> Result<Client, String> {
    let mut options = ConnectOptions::new().with_require_leader(require_leader);
    if let Some(user) = user {
        options = options.with_user(&user.name, &user.password);
    }
    authenticated(Client::from_channel(Channel::Tonic(channel.clone()), Some(options))).await
}

/// Waits for a token: etcd agrees with its leader before it gives one, and computes for a while.
async fn authenticated<T>(
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, String> {
    within(AUTHENTICATION_TIMEOUT, call).await
}

const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(5);

/// What a header says of etcd's position.
///
/// # Errors
/// There is no header.
pub(super) fn position(header: Option<&ResponseHeader>) -> Result<Position, String> {
    let header = header.ok_or("an answer without a header")?;
    Ok(Position { cluster: header.cluster_id(), revision: Revision(header.revision()) })
}

/// Runs a call with a limit of time, for callers to whom every failure is the same.
///
/// # Errors
/// What went wrong, for the log.
pub(super) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, String> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(|error| describe(&error)),
        Err(_) => Err(format!("no answer within {limit:?}")),
    }
}

/// An error in one short line.
pub(super) fn describe(error: &etcd_client::Error) -> String {
    match error {
        etcd_client::Error::GRpcStatus(status) => status.message().to_owned(),
        other => innermost(other),
    }
}

/// Whether an error is etcd's own word (`rpctypes/error.go`): then its member is there.
pub(super) fn is_said_by_etcd(message: &str) -> bool {
    message.starts_with("etcdserver:")
}

/// The cause behind all the layers that only say that something failed.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn tells_progress(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    match (major, minor) {
        (3, 0..=3) => false,
        (3, 4) => patch >= 25,
        (3, 5) => patch >= 8,
        (3, _) => true,
        _ => major > 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_do_not_tell_progress() {
        for (version, expected) in [
            ("3.3.27", false),
            ("3.4.23", false),
            ("3.4.25", true),
            ("3.5.7", false),
            ("3.5.8", true),
            ("3.5.21+vmware", true),
            ("3.6.0-rc.1", true),
            ("3.7.0", true),
            ("4.0.0", true),
            ("", false),
        ] {
            assert_eq!(tells_progress(version), expected, "{version}");
        }
    }
}
