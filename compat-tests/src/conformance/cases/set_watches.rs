//! Section 10.6, second part: setWatches, by which clients renew their watches.

use anyhow::{Result, bail};

use crate::conformance::case::{Case, case};
use crate::conformance::client::Client;
use crate::conformance::context::Context;
use crate::conformance::expect::expect_eq;
use crate::conformance::message::Message;
use crate::conformance::wire::{event, op, record};

/// The cases of this part.
pub const CASES: &[Case] = &[
    case("W24", "data watches fire for what changed or went", data_watches),
    case("W25", "equal zxids mean seen", equal_zxids),
    case("W26", "exist watches fire for what exists", exist_watches),
    case("W27", "child watches fire for what changed or went", child_watches),
    case("W28", "one path in three lists gives three events", three_lists),
    case("W29", "persistent watches are set without events", persistent_watches),
];

/// The lists of a setWatches, and its relative zxid.
struct Lists<'a> {
    zxid: i64,
    data: &'a [&'a str],
    exist: &'a [&'a str],
    child: &'a [&'a str],
}

/// Sends the lists; these events must come before the reply, with zxid −1, and nothing else.
fn expect_at_once(client: &mut Client, lists: &Lists<'_>, want: &[(i32, &str)]) -> Result<()> {
    let body = record().long(lists.zxid).strings(lists.data).strings(lists.exist);
    // An answered request first, so that with several servers this one has seen all.
    client.expect_no_event()?;
    let xid = client.send(op::SET_WATCHES, body.strings(lists.child))?;
    let mut got = Vec::new();
    let reply = loop {
        match client.message()? {
            Message::Event(event) => got.push((event.kind, event.path, event.zxid)),
            Message::Reply(reply) => break reply,
        }
    };
    let want: Vec<_> = want.iter().map(|(kind, path)| (*kind, (*path).to_owned(), -1)).collect();
    expect_eq("events before the reply", got, want)?;
    expect_eq("xid", reply.ok_empty()?.xid, xid)?;
    client.expect_no_event()
}

fn data_watches(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let [new, old, missing] = ["a", "b", "missing"].map(|name| context.path(name));
    let zxid = b.create(&old, b"")?;
    b.create(&new, b"")?;
    let data = &[new.as_str(), &old, &missing];
    let want = [(event::DATA_CHANGED, new.as_str()), (event::DELETED, &missing)];
    let lists = Lists { zxid, data, exist: &[], child: &[] };
    expect_at_once(&mut a, &lists, &want)?;
    b.set(&new, b"x")?;
    b.create(&missing, b"")?;
    a.expect_no_event()?;
    b.set(&old, b"x")?;
    a.expect_events(&[(event::DATA_CHANGED, &old)])?;
    Ok(())
}

fn equal_zxids(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let [data, parent, child] = ["d", "p", "p/c"].map(|name| context.path(name));
    let mzxid = b.create(&data, b"")?;
    let lists = Lists { zxid: mzxid, data: &[&data], exist: &[], child: &[] };
    expect_at_once(&mut a, &lists, &[])?;
    b.create(&parent, b"")?;
    let pzxid = b.create(&child, b"")?;
    let lists = Lists { zxid: pzxid, data: &[], exist: &[], child: &[&parent] };
    expect_at_once(&mut a, &lists, &[])?;
    b.set(&data, b"x")?;
    b.remove(&child)?;
    let want = [(event::DATA_CHANGED, data.as_str()), (event::CHILDREN_CHANGED, &parent)];
    a.expect_events(&want)?;
    Ok(())
}

fn exist_watches(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let (there, missing) = (context.path("there"), context.path("missing"));
    let zxid = b.create(&there, b"")? + 1_000_000;
    let lists = Lists { zxid, data: &[], exist: &[&there, &missing], child: &[] };
    expect_at_once(&mut a, &lists, &[(event::CREATED, &there)])?;
    b.set(&there, b"x")?;
    a.expect_no_event()?;
    b.create(&missing, b"")?;
    a.expect_events(&[(event::CREATED, &missing)])?;
    Ok(())
}

fn child_watches(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let [parent, child, missing] = ["p", "p/c", "missing"].map(|name| context.path(name));
    let zxid = b.create(&parent, b"")?;
    b.create(&child, b"")?;
    let lists = Lists { zxid, data: &[], exist: &[], child: &[&parent, &missing] };
    let want = [(event::CHILDREN_CHANGED, parent.as_str()), (event::DELETED, &missing)];
    expect_at_once(&mut a, &lists, &want)?;
    b.remove(&child)?;
    a.expect_no_event()
}

fn three_lists(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let path = context.path("n");
    b.create(&path, b"")?;
    let one = [path.as_str()];
    let lists = Lists { zxid: 0, data: &one, exist: &one, child: &one };
    let want = [event::DATA_CHANGED, event::CREATED, event::CHILDREN_CHANGED];
    expect_at_once(&mut a, &lists, &want.map(|kind| (kind, path.as_str())))
}

fn persistent_watches(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let [there, missing, deep] = ["there", "missing", "there/c"].map(|name| context.path(name));
    b.create(&there, b"")?;
    a.expect_no_event()?;
    let none: &[&str] = &[];
    let body = record().long(0).strings(none).strings(none).strings(none);
    let body = body.strings(&[&missing]).strings(&[&there]);
    a.send(op::SET_WATCHES2, body)?;
    match a.message()? {
        Message::Reply(reply) => reply.ok_empty()?,
        Message::Event(event) => bail!("an event at once: {event:?}"),
    };
    b.set(&there, b"x")?;
    b.create(&missing, b"")?;
    b.create(&deep, b"")?;
    let want = [
        (event::DATA_CHANGED, there.as_str()),
        (event::CREATED, &missing),
        (event::CREATED, &deep),
    ];
    a.expect_events(&want)?;
    Ok(())
}
