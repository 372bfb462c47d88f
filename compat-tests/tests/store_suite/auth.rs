//! An etcd that asks for a user and a password, with tokens that run out while the store is idle.

use std::time::Duration;

use compat_tests::conformance::wire::{op, open_acl, record};
use compat_tests::faults::roamer::Roamer;
use compat_tests::servers::etcd::Etcd;
use compat_tests::servers::zkshim::{Zkshim, ZkshimOptions};
use etcd_client::{ConnectOptions, Permission, PermissionType, RoleRevokePermissionOptions};
use zkshim::keeper::txn::{CommitError, LeaseId, StoreEvent, Txn};
use zkshim::store::etcd::{Options, UserOptions};

use crate::proxy::Proxy;
use crate::{Client, etcd_can_be_built, options, put};

/// A token that nobody uses for so long has run out: etcd counts from its last use.
const IDLE: Duration = Duration::from_secs(5);

/// An etcd whose tokens live two seconds, with a user that has the prefix and nothing else.
async fn guarded() -> Etcd {
    let etcd = Etcd::start_with(&["--auth-token-ttl=2"]).expect("etcd starts");
    let mut root = etcd_client::Client::connect([etcd.endpoint()], None).await.expect("up");
    root.user_add("root", "root's", None).await.expect("it is new");
    root.role_add("root").await.expect("it is new");
    root.user_grant_role("root", "root").await.expect("both are there");
    root.user_add("zk", "zk's", None).await.expect("it is new");
    root.role_add("zkshim").await.expect("it is new");
    let all = Permission::new(PermissionType::Readwrite, "/zkshim/").with_range_end("/zkshim0");
    root.role_grant_permission("zkshim", all).await.expect("it is there");
    root.user_grant_role("zk", "zkshim").await.expect("both are there");
    root.auth_enable().await.expect("there is a root");
    etcd
}

fn as_user(endpoint: &str, password: &str) -> Options {
    let user = UserOptions { name: "zk".to_owned(), password: password.to_owned() };
    Options { user: Some(user), ..options(endpoint) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_goes_on_when_its_token_has_run_out() {
    if !etcd_can_be_built() {
        return;
    }
    let etcd = guarded().await;
    let proxy = Proxy::start(etcd.address(), true).await;
    let mut client = Client::open_with(as_user(&proxy.endpoint(), "zk's")).await;
    client.loaded().await;
    let (lease, ttl) = client.grant(Duration::from_secs(60)).await;
    assert!(client.is_renewed(lease, ttl).await);
    for round in 0..3 {
        tokio::time::sleep(IDLE).await;
        // What comes first is another call each time.
        match round {
            // While the machine is busy a token may take longer than a barrier waits.
            0 => while client.barrier().await.is_err() {},
            1 => {
                let then = vec![put("leased", lease)];
                client.commit(Txn { then, ..Txn::default() }).await.expect("etcd is there");
                assert_eq!(client.changed().await.changes.len(), 1);
            }
            _ => {
                // Whatever is opened anew has to come in again.
                proxy.cut();
                tokio::time::sleep(Duration::from_millis(300)).await;
                proxy.mend();
            }
        }
        assert!(client.is_renewed(lease, ttl).await, "in round {round}");
        let revision = client.put(&format!("a{round}")).await;
        assert_eq!(client.changed().await.revision, revision);
        client.grant(Duration::from_secs(60)).await;
    }
    assert_eq!(client.revoke(lease).await, Ok(()));
    assert_eq!(client.changed().await.changes.len(), 1);
    assert!(!client.kept.iter().any(|event| matches!(event, StoreEvent::Loaded(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_goes_on_when_a_member_has_forgotten_its_token() {
    if !etcd_can_be_built() {
        return;
    }
    let mut etcd = guarded().await;
    let mut client = Client::open_with(as_user(&etcd.endpoint(), "zk's")).await;
    client.loaded().await;
    etcd.kill().expect("it runs");
    etcd.restart().expect("it starts again");
    while client.barrier().await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let revision = client.put("a").await;
    assert_eq!(client.changed().await.revision, revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_taken_away_refuses_what_it_was_for_until_it_is_back() {
    if !etcd_can_be_built() {
        return;
    }
    let etcd = guarded().await;
    let mut client = Client::open_with(as_user(&etcd.endpoint(), "zk's")).await;
    client.loaded().await;
    let user = ConnectOptions::new().with_user("root", "root's");
    let root = etcd_client::Client::connect([etcd.endpoint()], Some(user)).await;
    let mut root = root.expect("it serves");
    let range = RoleRevokePermissionOptions::new().with_range_end("/zkshim0");
    root.role_revoke_permission("zkshim", "/zkshim/", Some(range)).await.expect("it has it");
    let then = vec![put("a", LeaseId::NONE)];
    let refused = client.commit(Txn { then, ..Txn::default() }).await;
    assert!(matches!(refused, Err(CommitError::Refused(_))), "{refused:?}");
    let all = Permission::new(PermissionType::Readwrite, "/zkshim/").with_range_end("/zkshim0");
    root.role_grant_permission("zkshim", all).await.expect("it is there");
    let revision = client.put("b").await;
    assert_eq!(client.changed().await.revision, revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_do_not_feel_that_tokens_run_out() {
    if !etcd_can_be_built() {
        return;
    }
    let etcd = guarded().await;
    let options = ZkshimOptions::etcd(&etcd, "/zkshim/").flag("--etcd-user", "zk");
    let zkshim = Zkshim::start(&options.variable("ZKSHIM_ETCD_PASSWORD", "zk's"));
    let zkshim = zkshim.expect("it serves");
    assert!(!zkshim.log().contains("zk's"), "{}", zkshim.log());
    let mut roamer = Roamer::new(vec![zkshim.address()], 0, Duration::from_secs(4));
    while !matches!(roamer.connect(), Ok(true)) {}
    for round in 0..3 {
        let path = format!("/e{round}");
        let body = record().string(&path).buffer(b"").acls(&open_acl()).int(1);
        let made = roamer.call(op::CREATE, body).expect("it is connected");
        assert_eq!(made.error, 0, "{path}");
        roamer.idle(IDLE).expect("its session lives");
    }
    assert!(roamer.losses.is_empty(), "{:?}\n{}", roamer.losses, zkshim.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_said_and_waited_out() {
    if !etcd_can_be_built() {
        return;
    }
    let etcd = guarded().await;
    let opening = Client::open_with(as_user(&etcd.endpoint(), "another"));
    let opening = tokio::spawn(opening);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!opening.is_finished());
    let user = ConnectOptions::new().with_user("root", "root's");
    let root = etcd_client::Client::connect([etcd.endpoint()], Some(user)).await;
    root.expect("it serves").user_change_password("zk", "another").await.expect("it is there");
    let mut client = opening.await.expect("opening does not panic");
    assert_eq!(client.loaded().await.entries, []);
}
