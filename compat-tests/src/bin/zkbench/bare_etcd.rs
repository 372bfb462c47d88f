//! What etcd does without zkshim, for a client that sends it one txn an operation over one
//! connection: the least that such a client must do to set or create a znode.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use etcd_client::{Client, Compare, CompareOp, DeleteOptions, KvClient, PutOptions, Txn, TxnOp};
use tokio::task::JoinSet;

use crate::measure::{Meter, Tally, Window};
use crate::workload::{Plan, Workload, join_all, sum};
use crate::znodes::DATA;

/// Runs the plan's workload with as many txns under way as the plan has requests.
pub(crate) async fn measure(plan: &Plan) -> Result<(Meter, Tally)> {
    let addr = plan.addrs.first().context("no address")?;
    let client = Client::connect([format!("http://{addr}")], None).await.context("connect")?;
    let mut kv = client.kv_client();
    wipe(&mut kv, &plan.root).await?;
    let mut setup = JoinSet::new();
    for number in 0..plan.connections * plan.in_flight {
        let (plan, mut kv) = (plan.clone(), kv.clone());
        setup.spawn(async move {
            let key = plan.path(&format!("own-{number:05}"));
            kv.put(key.as_str(), DATA, None).await.context("put a key")?;
            Ok(Slot { kv, workload: plan.workload, key, sent: 0 })
        });
    }
    let slots = join_all(setup).await?;
    let meter = plan.start();
    let mut running = JoinSet::new();
    for slot in slots {
        running.spawn(slot.run(meter.window));
    }
    let tallies = join_all(running).await?;
    wipe(&mut kv, &plan.root).await?;
    Ok((meter, sum(&tallies)))
}

/// One request that is under way at a time.
struct Slot {
    kv: KvClient,
    workload: Workload,
    key: String,
    sent: u64,
}

impl Slot {
    async fn run(mut self, window: Window) -> Result<Tally> {
        let mut tally = Tally::new();
        loop {
            let start = Instant::now();
            if window.is_over(start) {
                return Ok(tally);
            }
            let txn = self.txn()?;
            let answer = self.kv.txn(txn).await.context("txn")?;
            ensure!(answer.succeeded(), "the condition of a txn did not hold");
            tally.record(&window, start, Instant::now());
        }
    }

    /// The next operation: that the key is there, or is not, is its only condition.
    fn txn(&mut self) -> Result<Txn> {
        self.sent += 1;
        let put = |key: &str| TxnOp::put(key, DATA, None::<PutOptions>);
        let (found, key) = match self.workload {
            Workload::Set | Workload::SetOwn => (CompareOp::Greater, self.key.clone()),
            Workload::Create => (CompareOp::Equal, format!("{}-{:08}", self.key, self.sent)),
            other => bail!("{} is not for a bare etcd", other.name()),
        };
        let condition = Compare::create_revision(key.as_str(), found, 0);
        Ok(Txn::new().when([condition]).and_then([put(&key)]))
    }
}

async fn wipe(kv: &mut KvClient, root: &str) -> Result<()> {
    let all = DeleteOptions::new().with_prefix();
    kv.delete(root, Some(all)).await.context("remove the keys").map(drop)
}
