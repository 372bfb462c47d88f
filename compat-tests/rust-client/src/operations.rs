//! The steps.

use anyhow::Result;
use zookeeper_client::{
    Acl, Acls, AddWatchMode, AuthUser, Client, CreateMode, CreateOptions, Error, EventType,
    LockPrefix, MultiReadResult, MultiWriteError, MultiWriteResult, Permission, SessionState, Stat,
    WatchedEvent,
};

use crate::{Servers, ask, await_end, await_state, connect, equal, refused, within};

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
const EPHEMERAL_SEQUENTIAL: CreateOptions<'static> =
    CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());

/// Runs them all; whether all passed.
pub async fn run(servers: &Servers) -> bool {
    let results = [
        report("create-read-write-delete", create_read_write_delete(servers).await),
        report("ephemeral-and-sequence", ephemeral_and_sequence(servers).await),
        report("container-and-ttl", container_and_ttl(servers).await),
        report("one-shot-watches", one_shot_watches(servers).await),
        report("persistent-watches", persistent_watches(servers).await),
        report("multi-write", multi_write(servers).await),
        report("multi-write-rolls-back", multi_write_rolls_back(servers).await),
        report("multi-read", multi_read(servers).await),
        report("acl", acl(servers).await),
        report("lock", lock(servers).await),
        report("chroot", chroot(servers).await),
        report("reconfig-is-disabled", reconfig_is_disabled(servers).await),
        report("cut", keeps_its_session(servers, "cut").await),
        report("move", keeps_its_session(servers, "move").await),
        report("session-loss", session_loss(servers).await),
    ];
    results.iter().all(|&passed| passed)
}

fn report(step: &str, result: Result<()>) -> bool {
    match &result {
        Ok(()) => println!("ok {step}"),
        Err(error) => println!("failed {step}: {}", format!("{error:#}").replace('\n', " ")),
    }
    result.is_ok()
}

async fn create(client: &Client, path: &str) -> Result<Stat> {
    Ok(client.create(path, b"", &PERSISTENT).await?.0)
}

fn same(kind: EventType, path: &str, event: &WatchedEvent) -> Result<()> {
    equal((kind, path), (event.event_type, event.path.as_str()))
}

async fn create_read_write_delete(servers: &Servers) -> Result<()> {
    let client = servers.connect().await?;
    let (created, _) = client.create("/basic", b"one", &PERSISTENT).await?;
    refused(Error::NodeExists, client.create("/basic", b"", &PERSISTENT).await)?;
    refused(Error::NoNode, client.create("/absent/child", b"", &PERSISTENT).await)?;
    equal((b"one".to_vec(), created), client.get_data("/basic").await?)?;
    equal((created.czxid, created.czxid), (created.mzxid, created.pzxid))?;
    let changed = client.set_data("/basic", b"three", Some(0)).await?;
    equal((1, 5), (changed.version, changed.data_length))?;
    refused(Error::BadVersion, client.set_data("/basic", b"", Some(7)).await)?;
    client.mkdir("/basic/a/b", &PERSISTENT).await?;
    let (names, stat) = client.get_children("/basic").await?;
    equal((vec!["a".to_owned()], 1, 1), (names, stat.cversion, stat.num_children))?;
    equal(2, client.count_descendants_number("/basic").await?)?;
    refused(Error::NotEmpty, client.delete("/basic", None).await)?;
    refused(Error::BadVersion, client.delete("/basic/a/b", Some(3)).await)?;
    client.delete("/basic/a/b", Some(0)).await?;
    equal(None, client.check_stat("/basic/a/b").await?)?;
    refused(Error::NoNode, client.get_data("/basic/a/b").await)?;
    // Nobody waits: requests are sent in the order in which they are made.
    let sets: Vec<_> = (1..=200).map(|i| client.set_data("/basic", b"x", Some(i))).collect();
    for (version, set) in (2..).zip(sets) {
        equal(version, set.await?.version)?;
    }
    Ok(())
}

async fn ephemeral_and_sequence(servers: &Servers) -> Result<()> {
    let (client, other) = (servers.connect().await?, servers.connect().await?);
    create(&client, "/parent").await?;
    other.sync("/").await?;
    let (stat, sequence) = other.create("/parent/e-", b"", &EPHEMERAL_SEQUENTIAL).await?;
    equal("0000000000".to_owned(), sequence.to_string())?;
    equal(other.session_id().0, stat.ephemeral_owner)?;
    equal(vec!["/parent/e-0000000000".to_owned()], other.list_ephemerals("/parent").await?)?;
    client.sync("/").await?;
    let path = "/parent/e-0000000000";
    let child = format!("{path}/child");
    refused(Error::NoChildrenForEphemerals, client.create(&child, b"", &PERSISTENT).await)?;
    drop(other);
    await_end(&client, path).await
}

async fn container_and_ttl(servers: &Servers) -> Result<()> {
    let client = servers.connect().await?;
    let container = CreateMode::Container.with_acls(Acls::anyone_all());
    equal(0, client.create("/container", b"", &container).await?.0.ephemeral_owner)?;
    create(&client, "/container/child").await?;
    // Off in ZooKeeper, too, unless it is switched on.
    let ttl = PERSISTENT.with_ttl(crate::PATIENCE);
    refused(Error::Unimplemented, client.create("/ttl", b"", &ttl).await)
}

async fn one_shot_watches(servers: &Servers) -> Result<()> {
    let (client, other) = (servers.connect().await?, servers.connect().await?);
    let (stat, created) = client.check_and_watch_stat("/watched").await?;
    equal(None, stat)?;
    create(&other, "/watched").await?;
    same(EventType::NodeCreated, "/watched", &within("creation", created.changed()).await?)?;
    let (_, _, changed) = client.get_and_watch_data("/watched").await?;
    let (_, _, children) = client.get_and_watch_children("/watched").await?;
    let (_, _, removed) = client.get_and_watch_data("/watched").await?;
    // Taken back before anything happens.
    drop(removed);
    other.set_data("/watched", b"1", None).await?;
    let event = within("change", changed.changed()).await?;
    same(EventType::NodeDataChanged, "/watched", &event)?;
    create(&other, "/watched/child").await?;
    let event = within("child", children.changed()).await?;
    same(EventType::NodeChildrenChanged, "/watched", &event)?;
    let (_, deleted) = client.check_and_watch_stat("/watched/child").await?;
    other.delete("/watched/child", None).await?;
    let event = within("deletion", deleted.changed()).await?;
    same(EventType::NodeDeleted, "/watched/child", &event)
}

async fn persistent_watches(servers: &Servers) -> Result<()> {
    let (client, other) = (servers.connect().await?, servers.connect().await?);
    let mut plain = client.watch("/persistent", AddWatchMode::Persistent).await?;
    let mut recursive = client.watch("/persistent", AddWatchMode::PersistentRecursive).await?;
    let parent = create(&other, "/persistent").await?;
    let child = create(&other, "/persistent/child").await?;
    let changed = other.set_data("/persistent/child", b"x", None).await?;
    other.delete("/persistent/child", None).await?;
    other.delete("/persistent", None).await?;
    for (kind, path, zxid) in [
        (EventType::NodeCreated, "/persistent", parent.czxid),
        (EventType::NodeCreated, "/persistent/child", child.czxid),
        (EventType::NodeDataChanged, "/persistent/child", changed.mzxid),
    ] {
        let event = within("a recursive watch", recursive.changed()).await?;
        same(kind, path, &event)?;
        // Servers since 3.9 say which change it was.
        equal(zxid, event.zxid)?;
    }
    for (kind, path) in
        [(EventType::NodeDeleted, "/persistent/child"), (EventType::NodeDeleted, "/persistent")]
    {
        same(kind, path, &within("a recursive watch", recursive.changed()).await?)?;
    }
    for kind in [
        EventType::NodeCreated,
        EventType::NodeChildrenChanged,
        EventType::NodeChildrenChanged,
        EventType::NodeDeleted,
    ] {
        same(kind, "/persistent", &within("a persistent watch", plain.changed()).await?)?;
    }
    // Both are taken back; the session goes on.
    drop((plain, recursive));
    client.sync("/").await?;
    equal(None, client.check_stat("/persistent").await?)
}

async fn multi_write(servers: &Servers) -> Result<()> {
    let client = servers.connect().await?;
    let mut writer = client.new_multi_writer();
    writer.add_create("/multi", b"one", &PERSISTENT)?;
    writer.add_create("/multi/n-", b"", &EPHEMERAL_SEQUENTIAL)?;
    writer.add_set_data("/multi", b"two", Some(0))?;
    writer.add_check_version("/multi", 1)?;
    writer.add_create("/multi/gone", b"", &PERSISTENT)?;
    writer.add_delete("/multi/gone", Some(0))?;
    let results = writer.commit().await?;
    let mut told = Vec::new();
    for result in &results {
        told.push(match result {
            MultiWriteResult::Create { path, .. } => path.clone(),
            MultiWriteResult::SetData { stat } => stat.version.to_string(),
            MultiWriteResult::Check => "checked".to_owned(),
            MultiWriteResult::Delete => "deleted".to_owned(),
            _ => "?".to_owned(),
        });
    }
    let expected = ["/multi", "/multi/n-0000000000", "1", "checked", "/multi/gone", "deleted"];
    equal(expected.map(str::to_owned).to_vec(), told)?;
    let (_, stat) = client.get_data("/multi").await?;
    equal((1, 3, 1), (stat.version, stat.cversion, stat.num_children))?;
    equal((stat.czxid, stat.czxid), (stat.mzxid, stat.pzxid))
}

async fn multi_write_rolls_back(servers: &Servers) -> Result<()> {
    let client = servers.connect().await?;
    client.create("/back", b"data", &PERSISTENT).await?;
    let mut writer = client.new_multi_writer();
    writer.add_set_data("/back", b"other", None)?;
    writer.add_check_version("/back", 7)?;
    writer.add_delete("/back", None)?;
    let failure = MultiWriteError::OperationFailed { index: 1, source: Error::BadVersion };
    equal(Err(failure), writer.commit().await)?;
    let (data, stat) = client.get_data("/back").await?;
    equal((b"data".to_vec(), 0), (data, stat.version))
}

async fn multi_read(servers: &Servers) -> Result<()> {
    let client = servers.connect().await?;
    let (stat, _) = client.create("/read", b"data", &PERSISTENT).await?;
    let mut reader = client.new_multi_reader();
    reader.add_get_data("/read")?;
    reader.add_get_data("/absent")?;
    reader.add_get_children("/read")?;
    let expected = vec![
        MultiReadResult::Data { data: b"data".to_vec(), stat },
        MultiReadResult::Error { err: Error::NoNode },
        MultiReadResult::Children { children: Vec::new() },
    ];
    equal(format!("{expected:?}"), format!("{:?}", reader.commit().await?))
}

async fn acl(servers: &Servers) -> Result<()> {
    let (client, other) = (servers.connect().await?, servers.connect().await?);
    let guarded = CreateMode::Persistent.with_acls(Acls::creator_all());
    refused(Error::InvalidAcl, client.create("/guarded", b"", &guarded).await)?;
    client.auth("digest", b"user:password").await?;
    client.create("/guarded", b"secret", &guarded).await?;
    let users = client.list_auth_users().await?;
    equal(true, users.contains(&AuthUser::new("digest", "user")))?;
    equal(true, users.contains(&AuthUser::new("ip", "127.0.0.1")))?;
    other.sync("/").await?;
    refused(Error::NoAuth, other.get_data("/guarded").await)?;
    refused(Error::NoAuth, other.check_stat("/guarded").await)?;
    let (mut acl, _) = client.get_acl("/guarded").await?;
    let told: Vec<_> = acl.iter().map(|a| (a.permission(), a.scheme(), a.id())).collect();
    equal(vec![(Permission::ALL, "digest", "user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY=")], told)?;
    acl.extend(Acls::anyone_read().iter().cloned().collect::<Vec<Acl>>());
    equal(1, client.set_acl("/guarded", &acl, Some(0)).await?.aversion)?;
    refused(Error::BadVersion, client.set_acl("/guarded", &acl, Some(0)).await)?;
    other.sync("/").await?;
    equal(b"secret".to_vec(), other.get_data("/guarded").await?.0)?;
    refused(Error::NoAuth, other.set_data("/guarded", b"mine", None).await)
}

async fn lock(servers: &Servers) -> Result<()> {
    let (client, other) = (servers.connect().await?, servers.connect().await?);
    create(&client, "/lock").await?;
    other.sync("/").await?;
    let prefix = || LockPrefix::new_curator("/lock", "lock-");
    let held = within("the lock", client.lock(prefix()?, b"", Acls::anyone_all())).await??;
    // Under the lock, and only while it is held.
    held.set_data("/lock", b"first", None).await?;
    let mut waits = Box::pin(other.lock(prefix()?, b"", Acls::anyone_all()));
    let moment = std::time::Duration::from_millis(300);
    equal(true, tokio::time::timeout(moment, &mut waits).await.is_err())?;
    drop(held);
    let next = within("the lock of another", waits).await??;
    next.set_data("/lock", b"second", Some(1)).await?;
    Ok(())
}

async fn chroot(servers: &Servers) -> Result<()> {
    let client = servers.connect().await?;
    create(&client, "/chroot").await?;
    let Ok(inside) = client.clone().chroot("/chroot") else { anyhow::bail!("no chroot") };
    let (_, watch) = inside.check_and_watch_stat("/child").await?;
    create(&inside, "/child").await?;
    same(EventType::NodeCreated, "/child", &within("creation", watch.changed()).await?)?;
    equal(vec!["child".to_owned()], client.list_children("/chroot").await?)
}

async fn reconfig_is_disabled(servers: &Servers) -> Result<()> {
    let client = servers.connect().await?;
    let (_, stat) = client.get_config().await?;
    equal(0, stat.ephemeral_owner)?;
    let update = zookeeper_client::EnsembleUpdate::New { ensemble: ["1"].into_iter() };
    refused(Error::ReconfigDisabled, client.update_ensemble(update, None).await)
}

/// Asks for trouble and wants all as it was, and what was missed.
async fn keeps_its_session(servers: &Servers, trouble: &str) -> Result<()> {
    let (client, other) = (connect(&servers.relayed).await?, servers.connect().await?);
    let path = format!("/after-{trouble}");
    let child = format!("{path}/ephemeral");
    create(&client, &path).await?;
    client.create(&child, b"", &EPHEMERAL).await?;
    let session = client.session_id();
    let (_, _, changed) = client.get_and_watch_data(&path).await?;
    let (_, unchanged) = client.check_and_watch_stat(&child).await?;
    let mut persistent = client.watch(&path, AddWatchMode::PersistentRecursive).await?;
    ask(trouble)?;
    await_state(&client, SessionState::Disconnected).await?;
    other.sync("/").await?;
    other.set_data(&path, b"missed", None).await?;
    await_state(&client, SessionState::SyncConnected).await?;
    equal(session, client.session_id())?;
    let event = within("what was missed", changed.changed()).await?;
    same(EventType::NodeDataChanged, &path, &event)?;
    let there = other.check_stat(&child).await?.map(|stat| stat.ephemeral_owner);
    equal(Some(session.0), there)?;
    // Whoever has heard of the reconnect first has set its watches again by then.
    client.sync("/").await?;
    other.set_data(&child, b"now", None).await?;
    let event = within("what comes now", unchanged.changed()).await?;
    same(EventType::NodeDataChanged, &child, &event)?;
    loop {
        let event = within("what comes now", persistent.changed()).await?;
        if event.event_type == EventType::NodeDataChanged && event.path == child {
            return Ok(());
        }
    }
}

async fn session_loss(servers: &Servers) -> Result<()> {
    let (client, other) = (connect(&servers.relayed).await?, servers.connect().await?);
    client.create("/lost", b"", &EPHEMERAL).await?;
    ask("hold")?;
    await_state(&client, SessionState::Disconnected).await?;
    await_end(&other, "/lost").await?;
    ask("release")?;
    await_state(&client, SessionState::Expired).await?;
    refused(Error::SessionExpired, client.get_data("/").await)
}
