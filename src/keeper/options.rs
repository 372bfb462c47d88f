//! What the core is told once, checked by the caller.

use std::time::Duration;

/// What the core is told once.
#[derive(Clone, Debug)]
pub struct Options {
    /// ZooKeeper's tick: the grain of session expiry.
    pub tick: Duration,
    /// The shortest session timeout granted.
    pub session_timeout_min: Duration,
    /// The longest session timeout granted.
    pub session_timeout_max: Duration,
    /// From which ids and passwords are drawn; it must be unpredictable.
    pub seed: [u8; 32],
    /// No other shim works on the same store, so the sessions found at the start are ours.
    pub sole: bool,
    /// How long after its client was told of it a session gets its key, unless it writes or ends
    /// before; zero: before its client is told.
    pub session_key_delay: Duration,
    /// So many waiting writes are worth a batch beside those under way.
    pub writes_worth_a_batch: usize,
    /// So long after another shim has written each key is guarded again; before, what nobody has
    /// written is guarded as a whole.
    pub alone_after: Duration,
    /// TTL nodes are served (`extendedTypesEnabled`).
    pub ttl_nodes: bool,
    /// `user:base64(sha1(user:password))` of the super user (`superDigest`).
    pub super_digest: Option<String>,
    /// ACLs are stored and returned, but nothing is refused (`skipACL`).
    pub skip_acl: bool,
    /// What the watches and identities of all connections may take of the memory, about.
    pub kept_bytes_max: usize,
    /// Hard quotas are enforced (`enforceQuota`).
    pub enforce_quota: bool,
    /// How often containers and TTL nodes are looked through
    /// (`znode.container.checkIntervalMs`).
    pub container_check_interval: Duration,
}

impl Options {
    /// [`Self::writes_worth_a_batch`], measured: a put in a small batch costs etcd several times
    /// what it costs in a large one.
    pub const WRITES_WORTH_A_BATCH: usize = 64;

    /// [`Self::alone_after`]: a shim that writes ten times a second or more is not taken for an
    /// idle one, and one that writes once a second makes few batches of others fail.
    pub const ALONE_AFTER: Duration = Duration::from_millis(100);
}
