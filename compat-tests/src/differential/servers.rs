//! The two sides of a run: a real ZooKeeper, and zkshim on one of its stores.

use std::net::SocketAddr;

use anyhow::Result;

use crate::servers::etcd::Etcd;
use crate::servers::zkshim::{Zkshim, ZkshimOptions};
use crate::servers::zookeeper::{ZooKeeper, ZooKeeperOptions};

/// `super:test`.
const SUPER: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
/// Longer than any run: a container must not go in the middle of a script.
const CHECK_INTERVAL_MS: &str = "36000000";

/// Where zkshim keeps its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// In the process.
    Embedded,
    /// In an etcd.
    Etcd,
    /// In an etcd that two shims share.
    TwoOnEtcd,
}

/// Both sides.
pub struct Pair {
    /// The real server.
    pub oracle: Vec<SocketAddr>,
    /// zkshim.
    pub shim: Vec<SocketAddr>,
    // Dropped in this order: the shims go before the etcd that they lean on.
    _shims: Vec<Zkshim>,
    _etcd: Option<Etcd>,
    _zookeeper: Option<ZooKeeper>,
}

impl Pair {
    /// Servers that run already.
    #[must_use]
    pub fn running(oracle: Vec<SocketAddr>, shim: Vec<SocketAddr>) -> Self {
        Self { oracle, shim, _shims: Vec::new(), _etcd: None, _zookeeper: None }
    }

    /// Starts both sides; with the extras, TTL nodes are served and hard quotas enforced.
    ///
    /// # Errors
    /// One of them does not start.
    pub fn start(store: Store, extras: bool) -> Result<Self> {
        let switch = if extras { "true" } else { "false" };
        let zookeeper = ZooKeeper::start_with(
            &ZooKeeperOptions::default()
                .property("extendedTypesEnabled", switch)
                .property("enforceQuota", switch)
                .property("DigestAuthenticationProvider.superDigest", SUPER)
                .jvm_argument(&format!("-Dznode.container.checkIntervalMs={CHECK_INTERVAL_MS}")),
        )?;
        let mut etcd = None;
        let mut options = match store {
            Store::Embedded => ZkshimOptions::embedded(),
            Store::Etcd | Store::TwoOnEtcd => {
                ZkshimOptions::etcd(etcd.insert(Etcd::start()?), "/zkshim/")
            }
        };
        options = options
            .flag("--super-digest", SUPER)
            .flag("--max-client-connections", "0")
            .flag("--container-check-interval-ms", CHECK_INTERVAL_MS);
        if extras {
            options.flags.extend(["--ttl-nodes".to_owned(), "--enforce-quota".to_owned()]);
        }
        let count = if store == Store::TwoOnEtcd { 2 } else { 1 };
        let shims = (0..count).map(|_| Zkshim::start(&options)).collect::<Result<Vec<Zkshim>>>()?;
        Ok(Self {
            oracle: vec![zookeeper.address()],
            shim: shims.iter().map(|shim| shim.address()).collect(),
            _shims: shims,
            _etcd: etcd,
            _zookeeper: Some(zookeeper),
        })
    }
}
