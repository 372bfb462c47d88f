//! `mntr`: every figure on a line of its own, for monitoring agents.

use std::fmt::Display;

use super::{Latency, Server, put};

/// What `mntr` shows besides the figures of `srvr`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Monitor {
    /// The figures of `srvr`.
    pub server: Server,
    /// Ephemeral znodes.
    pub ephemerals: usize,
    /// Watches of all kinds.
    pub watches: usize,
    /// Path lengths and data lengths of all znodes.
    pub approximate_data_size: u64,
    /// Live sessions in the whole cluster.
    pub sessions: usize,
    /// Since the process started.
    pub uptime_ms: u128,
    /// Files that the process has open, where the system tells.
    pub open_files: Option<u64>,
    /// How many it may have open, where the system tells.
    pub open_files_max: Option<u64>,
    /// The last answer's size; -1 if there was none.
    pub last_response_bytes: i64,
    /// The smallest answer's size; -1 if there was none.
    pub min_response_bytes: i64,
    /// The largest answer's size; -1 if there was none.
    pub max_response_bytes: i64,
    /// Of requests that only read.
    pub read_latency: Latency,
    /// Of requests that change something.
    pub update_latency: Latency,
    /// Bytes of all frames received.
    pub bytes_received: u64,
    /// Bytes of all frames sent.
    pub bytes_sent: u64,
    /// Handshakes that asked for a new session or an old one.
    pub connection_requests: u64,
    /// Connections refused because there were too many.
    pub connections_rejected: u64,
    /// Connections that ended without a closeSession.
    pub connections_dropped: u64,
    /// Connections that never sent a handshake.
    pub sessionless_expired: u64,
    /// Tasks of the runtime; ZooKeeper has no such figure.
    pub tasks: usize,
}

/// Figures of things that do not exist here: panels and agents that ask for them see no gap.
const ALWAYS_ZERO: [&str; 19] = [
    "local_sessions",
    "auth_failed_count",
    "non_mtls_remote_conn_count",
    "non_mtls_local_conn_count",
    "outstanding_tls_handshake",
    "tls_handshake_exceeded",
    "unsuccessful_handshake",
    "insecure_admin_count",
    "throttled_ops",
    "request_throttle_wait_count",
    "stale_requests",
    "stale_requests_dropped",
    "stale_replies",
    "large_requests_rejected",
    "unrecoverable_error_count",
    "digest_mismatches_count",
    "looking_count",
    "snap_count",
    "restore_error_count",
];

/// `mntr`. Each line has exactly one tab: some exporters take anything else for a dead server.
pub fn mntr(monitor: &Monitor) -> String {
    let mut text = String::new();
    let server = &monitor.server;
    line(&mut text, "version", &server.version);
    line(&mut text, "server_state", server.mode);
    line(&mut text, "avg_latency", server.latency.mean());
    line(&mut text, "min_latency", server.latency.min_ms);
    line(&mut text, "max_latency", server.latency.max_ms);
    line(&mut text, "packets_received", server.received);
    line(&mut text, "packets_sent", server.sent);
    line(&mut text, "num_alive_connections", server.connections);
    line(&mut text, "outstanding_requests", server.outstanding);
    line(&mut text, "znode_count", server.node_count());
    line(&mut text, "watch_count", monitor.watches);
    line(&mut text, "ephemerals_count", monitor.ephemerals);
    line(&mut text, "approximate_data_size", monitor.approximate_data_size);
    line(&mut text, "global_sessions", monitor.sessions);
    line(&mut text, "uptime", monitor.uptime_ms);
    if let Some(open_files) = monitor.open_files {
        line(&mut text, "open_file_descriptor_count", open_files);
    }
    if let Some(open_files_max) = monitor.open_files_max {
        line(&mut text, "max_file_descriptor_count", open_files_max);
    }
    line(&mut text, "last_client_response_size", monitor.last_response_bytes);
    line(&mut text, "min_client_response_size", monitor.min_response_bytes);
    line(&mut text, "max_client_response_size", monitor.max_response_bytes);
    line(&mut text, "bytes_received_count", monitor.bytes_received);
    line(&mut text, "response_bytes", monitor.bytes_sent);
    line(&mut text, "connection_request_count", monitor.connection_requests);
    line(&mut text, "connection_rejected", monitor.connections_rejected);
    line(&mut text, "connection_drop_count", monitor.connections_dropped);
    line(&mut text, "connection_drop_probability", "0.0");
    line(&mut text, "sessionless_connections_expired", monitor.sessionless_expired);
    line(&mut text, "alive_tasks", monitor.tasks);
    for key in ALWAYS_ZERO {
        line(&mut text, key, 0);
    }
    summary(&mut text, "readlatency", &monitor.read_latency);
    summary(&mut text, "updatelatency", &monitor.update_latency);
    text
}

fn line(text: &mut String, key: &str, value: impl Display) {
    put(text, format_args!("zk_{key}\t{value}\n"));
}

/// The five lines of a summary (`AvgMinMaxCounter`).
fn summary(text: &mut String, name: &str, latency: &Latency) {
    put(text, format_args!("zk_avg_{name}\t{}\n", latency.mean()));
    put(text, format_args!("zk_min_{name}\t{}\n", latency.min_ms));
    put(text, format_args!("zk_max_{name}\t{}\n", latency.max_ms));
    put(text, format_args!("zk_cnt_{name}\t{}\n", latency.count));
    put(text, format_args!("zk_sum_{name}\t{}\n", latency.total_ms));
}
