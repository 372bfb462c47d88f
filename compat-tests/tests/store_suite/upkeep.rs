//! What the log says of an etcd that nobody looks after.

use std::time::{Duration, Instant};

use compat_tests::servers::etcd::Etcd;
use compat_tests::servers::zkshim::{Zkshim, ZkshimOptions};

use crate::{etcd_can_be_built, on_each_etcd};

/// Waits until the log has a line with all of these.
async fn wait_for_line(zkshim: &Zkshim, parts: &[&str]) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        let log = zkshim.log();
        if log.lines().any(|line| parts.iter().all(|part| line.contains(part))) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_near_its_quota_is_in_the_log_and_one_with_room_is_not() {
    if !etcd_can_be_built() {
        return;
    }
    // The size that etcd tells is that of its last commit, by default up to 0.1 s old: on a fast
    // machine the loop below would go past the quota. With a limit of one each put is committed.
    let flags = ["--quota-backend-bytes=16000000", "--backend-batch-limit=1"];
    let etcd = Etcd::start_with(&flags).expect("etcd starts");
    let zkshim = Zkshim::start(&ZkshimOptions::etcd(&etcd, "/a/").flag("--log-level", "debug"));
    let zkshim = zkshim.expect("it serves");
    let looked = ["looked at etcd's history", "compacted=0", "quota_bytes=16000000"];
    assert!(wait_for_line(&zkshim, &looked).await, "{}", zkshim.log());
    assert!(!zkshim.log().contains("nearly as large"), "{}", zkshim.log());

    let mut other = etcd_client::Client::connect([etcd.endpoint()], None).await.expect("up");
    let mut number = 0;
    while other.status().await.expect("it serves").db_size() < 13_500_000 {
        let value = vec![b'z'; 50_000];
        other.put(format!("other{number}"), value, None).await.expect("there is room");
        number += 1;
    }
    let zkshim = Zkshim::start(&ZkshimOptions::etcd(&etcd, "/b/")).expect("it serves");
    let nearly = ["WARN", "nearly as large", "quota_bytes=16000000", "is_default=false"];
    assert!(wait_for_line(&zkshim, &nearly).await, "{}", zkshim.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn how_far_the_history_is_compacted_is_seen() {
    on_each_etcd(|etcd: Etcd| async move {
        let mut other = etcd_client::Client::connect([etcd.endpoint()], None).await.expect("up");
        for _ in 0..20 {
            other.put("other", "", None).await.expect("there is room");
        }
        other.compact(13, None).await.expect("the revision exists");
        let options = ZkshimOptions::etcd(&etcd, "/a/").flag("--log-level", "debug");
        let zkshim = Zkshim::start(&options).expect("it serves");
        let looked = ["looked at etcd's history", "compacted=13"];
        assert!(wait_for_line(&zkshim, &looked).await, "{}", zkshim.log());
    })
    .await;
}
