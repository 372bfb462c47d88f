//! Section 10.8, first part: TTL nodes and containers.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::conformance::case::{Case, Profile, case};
use crate::conformance::client::Client;
use crate::conformance::context::Context;
use crate::conformance::expect::{expect, expect_eq};
use crate::conformance::wire::{event, op, open_acl, record};

/// The cases of this part.
pub const CASES: &[Case] = &[
    case("T1", "setData restarts the clock of a TTL node", set_restarts)
        .profile(Profile::Ttl)
        .slow(5),
    case("T2", "children and ACLs do not restart it", others_do_not).profile(Profile::Ttl).slow(5),
    case("T3", "a TTL node with a child stays until the child goes", child_keeps)
        .profile(Profile::Ttl)
        .slow(5),
    case("T4", "a container that was never used stays", never_used).profile(Profile::Ttl).slow(2),
    case("T5", "a container goes after the last of two children", last_child)
        .profile(Profile::Ttl)
        .slow(5),
];

/// Long enough for a loaded machine to do in it what a case does meanwhile.
const TTL: Duration = Duration::from_secs(4);
/// The profile's check interval, and what a loaded machine may be late.
const LATE: Duration = Duration::from_millis(500 + 2000);

fn create_ttl(client: &mut Client, path: &str) -> Result<()> {
    let ttl = i64::try_from(TTL.as_millis())?;
    let body = record().string(path).buffer(b"").acls(&open_acl()).int(5).long(ttl);
    client.call(op::CREATE_TTL, body)?.text_and_stat()?;
    Ok(())
}

fn create_container(client: &mut Client, path: &str) -> Result<()> {
    let body = record().string(path).buffer(b"").acls(&open_acl()).int(0);
    client.call(op::CREATE_CONTAINER, body)?.text_and_stat()?;
    Ok(())
}

/// The next event is the node's deletion, so long after the given moment.
fn expect_deleted(
    watcher: &mut Client,
    path: &str,
    since: Instant,
    from: Duration,
    until: Duration,
) -> Result<()> {
    let event = watcher.event().with_context(|| format!("the end of {path}"))?;
    expect_eq("event", (event.kind, event.path.as_str()), (event::DELETED, path))?;
    let took = since.elapsed();
    // The server's clock counts whole milliseconds.
    let early = took + Duration::from_millis(5) < from;
    expect(&format!("deleted after {from:?} to {until:?} ({took:?})"), !early && took < until)
}

fn set_restarts(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let path = context.path("n");
    create_ttl(&mut client, &path)?;
    std::thread::sleep(Duration::from_secs(1));
    let since = Instant::now();
    client.set(&path, b"x")?;
    client.exists(&path, true)?.stat()?;
    expect_deleted(&mut client, &path, since, TTL, TTL + LATE)
}

fn others_do_not(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (path, child) = (context.path("n"), context.path("n/c"));
    let since = Instant::now();
    create_ttl(&mut client, &path)?;
    client.exists(&path, true)?.stat()?;
    std::thread::sleep(Duration::from_millis(800));
    client.create(&child, b"")?;
    client.remove(&child)?;
    client.set_acl(&path, &open_acl(), -1)?.stat()?;
    expect_deleted(&mut client, &path, since, TTL, TTL + LATE)
}

fn child_keeps(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (path, child) = (context.path("n"), context.path("n/c"));
    create_ttl(&mut client, &path)?;
    client.create(&child, b"")?;
    client.exists(&path, true)?.stat()?;
    // Another TTL node without children shows that checks have passed since.
    let control = context.path("control");
    create_ttl(&mut client, &control)?;
    let since = Instant::now();
    client.exists(&control, true)?.stat()?;
    expect_deleted(&mut client, &control, since, Duration::ZERO, TTL + LATE)?;
    client.stat(&path).context("a node with a child stays")?;
    client.remove(&child)?;
    expect_deleted(&mut client, &path, Instant::now(), Duration::ZERO, LATE)
}

fn never_used(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (path, control, child) = (context.path("n"), context.path("used"), context.path("used/c"));
    create_container(&mut client, &path)?;
    for _ in 0..2 {
        create_container(&mut client, &control)?;
        client.create(&child, b"")?;
        client.exists(&control, true)?.stat()?;
        client.remove(&child)?;
        expect_deleted(&mut client, &control, Instant::now(), Duration::ZERO, LATE)?;
    }
    client.stat(&path).context("the container that was never used")?;
    Ok(())
}

fn last_child(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let [path, one, two] = ["n", "n/1", "n/2"].map(|name| context.path(name));
    create_container(&mut client, &path)?;
    client.create(&one, b"")?;
    client.create(&two, b"")?;
    client.exists(&path, true)?.stat()?;
    client.remove(&one)?;
    let control = context.path("used");
    create_container(&mut client, &control)?;
    client.create(&context.path("used/c"), b"")?;
    client.exists(&control, true)?.stat()?;
    client.remove(&context.path("used/c"))?;
    expect_deleted(&mut client, &control, Instant::now(), Duration::ZERO, LATE)?;
    client.stat(&path).context("one child is left")?;
    client.remove(&two)?;
    expect_deleted(&mut client, &path, Instant::now(), Duration::ZERO, LATE)
}
