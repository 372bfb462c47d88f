//! What an administrator does to etcd, from the machine that is never cut off.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, ConnectOptions, GetOptions,
    MemberAddOptions,
};
use tokio::runtime::{Builder, Runtime};

use crate::faults::cluster::{COUNT, member_url, peer_url};

/// How long one call may take; a defragmentation of a small database takes no time.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a member may take to say how it is.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// A way to etcd beside that of the shims.
pub struct Admin {
    runtime: Runtime,
}

/// How a member says that it is.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Its number in the cluster.
    pub index: usize,
    /// Its id.
    pub id: u64,
    /// The id of the leader that it knows; 0 if none.
    pub leader: u64,
    /// The revision that it has reached.
    pub revision: i64,
    /// The size of its database.
    pub database_bytes: i64,
}

impl Admin {
    /// A way to etcd.
    ///
    /// # Errors
    /// No runtime can be made.
    pub fn new() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self { runtime: runtime.context("make a runtime")? })
    }

    /// The members that answer.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        (0..COUNT).filter_map(|index| self.status(index).ok()).collect()
    }

    /// Which member leads, by the word of one that leads itself.
    ///
    /// # Errors
    /// None does.
    pub fn leader(&self) -> Result<usize> {
        let statuses = self.statuses();
        let leading = statuses.iter().find(|status| status.id == status.leader);
        leading.map(|status| status.index).context("no member leads")
    }

    /// How a member is.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&self, index: usize) -> Result<Status> {
        self.call(index, STATUS_TIMEOUT, async |mut etcd| {
            let status = etcd.status().await?;
            let header = status.header().context("an answer without a header")?;
            Ok(Status {
                index,
                id: header.member_id(),
                leader: status.leader(),
                revision: header.revision(),
                database_bytes: status.db_size(),
            })
        })
    }

    /// Makes another member the leader.
    ///
    /// # Errors
    /// etcd refuses.
    pub fn move_leader(&self, to: usize) -> Result<()> {
        let id = self.status(to)?.id;
        self.call(self.leader()?, CALL_TIMEOUT, async |mut etcd| Ok(etcd.move_leader(id).await?))?;
        Ok(())
    }

    /// How far etcd is.
    ///
    /// # Errors
    /// No member leads.
    pub fn revision(&self) -> Result<i64> {
        Ok(self.status(self.leader()?)?.revision)
    }

    /// Forgets all history before the present.
    ///
    /// # Errors
    /// etcd refuses.
    pub fn compact(&self) -> Result<i64> {
        let leader = self.leader()?;
        let revision = self.status(leader)?.revision;
        self.call(leader, CALL_TIMEOUT, async |mut etcd| {
            let options = CompactionOptions::new().with_physical();
            etcd.compact(revision, Some(options)).await?;
            Ok(revision)
        })
    }

    /// Rewrites a member's database.
    ///
    /// # Errors
    /// etcd refuses.
    pub fn defragment(&self, index: usize) -> Result<()> {
        self.call(index, CALL_TIMEOUT, async |mut etcd| {
            etcd.defragment().await?;
            Ok(())
        })
    }

    /// The ids of the members that say that something is wrong.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn alarms(&self) -> Result<Vec<u64>> {
        self.call(self.leader()?, CALL_TIMEOUT, async |mut etcd| {
            let alarms = etcd.alarm(AlarmAction::Get, AlarmType::None, None).await?;
            Ok(alarms.alarms().iter().map(|alarm| alarm.member_id()).collect())
        })
    }

    /// Clears the alarms for want of space. etcd knows them by the member that has raised them,
    /// and takes a request that names none for nothing (`AlarmStore.Deactivate`).
    ///
    /// # Errors
    /// etcd refuses.
    pub fn disarm(&self) -> Result<()> {
        let members = self.alarms()?;
        self.call(self.leader()?, CALL_TIMEOUT, async |mut etcd| {
            for member in members {
                let mut options = AlarmOptions::new();
                options.with_member(member);
                let (action, kind) = (AlarmAction::Deactivate, AlarmType::Nospace);
                etcd.alarm(action, kind, Some(options)).await?;
            }
            Ok(())
        })
    }

    /// Writes a key that is no shim's.
    ///
    /// # Errors
    /// etcd refuses, perhaps for want of space.
    pub fn put(&self, key: &str, bytes: usize) -> Result<()> {
        self.call(self.leader()?, CALL_TIMEOUT, async |mut etcd| {
            etcd.put(key, vec![b'x'; bytes], None).await?;
            Ok(())
        })
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// etcd refuses.
    pub fn delete(&self, key: &str) -> Result<()> {
        self.call(self.leader()?, CALL_TIMEOUT, async |mut etcd| {
            etcd.delete(key, None).await?;
            Ok(())
        })
    }

    /// Takes a member out of the cluster and announces another one in its place.
    ///
    /// # Errors
    /// etcd refuses.
    pub fn replace(&self, index: usize, id: u64) -> Result<()> {
        self.call(self.leader()?, CALL_TIMEOUT, async |mut etcd| {
            etcd.member_remove(id).await?;
            // etcd refuses to grow again at once, until it has heard from all others.
            let mut last = None;
            for _ in 0..20 {
                let options = MemberAddOptions::new();
                match etcd.member_add([peer_url(index)], Some(options)).await {
                    Ok(_) => return Ok(()),
                    Err(error) => last = Some(error),
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Err(anyhow!("add a member: {last:?}"))
        })
    }

    /// All that etcd has, as a file that members can begin with.
    ///
    /// # Errors
    /// etcd does not give it.
    pub fn snapshot(&self) -> Result<Vec<u8>> {
        self.call(self.leader()?, CALL_TIMEOUT, async |mut etcd| {
            let mut parts = etcd.snapshot().await?;
            let mut all = Vec::new();
            while let Some(part) = parts.message().await? {
                all.extend_from_slice(part.blob());
            }
            Ok(all)
        })
    }

    /// How many leases etcd has.
    ///
    /// # Errors
    /// It does not answer.
    pub fn leases(&self) -> Result<usize> {
        self.call(self.leader()?, CALL_TIMEOUT, async |mut etcd| {
            Ok(etcd.leases().await?.leases().len())
        })
    }

    /// The keys with a prefix.
    ///
    /// # Errors
    /// It does not answer.
    pub fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        self.call(self.leader()?, CALL_TIMEOUT, async |mut etcd| {
            let options = GetOptions::new().with_prefix().with_keys_only();
            let found = etcd.get(prefix, Some(options)).await?;
            let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
            Ok(found.kvs().iter().map(|pair| text(pair.key())).collect())
        })
    }

    fn call<T>(
        &self,
        index: usize,
        within: Duration,
        work: impl AsyncFnOnce(Client) -> Result<T>,
    ) -> Result<T> {
        self.runtime.block_on(async {
            let options = ConnectOptions::new().with_connect_timeout(within);
            let call = async {
                let etcd = Client::connect([member_url(index)], Some(options)).await?;
                work(etcd).await
            };
            // The longer calls have pauses of their own.
            let limit = within * 3;
            tokio::time::timeout(limit, call)
                .await
                .map_err(|_| anyhow!("etcd member {index} is silent for {limit:?}"))?
        })
    }
}
