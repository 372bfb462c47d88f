//! Section 10.6, first part: one-shot watches.

use std::thread;

use anyhow::{Context as _, Result, bail};

use crate::conformance::case::{Case, case};
use crate::conformance::client::Client;
use crate::conformance::context::Context;
use crate::conformance::expect::{expect, expect_eq};
use crate::conformance::message::{Event, Message};
use crate::conformance::multi::Operation;
use crate::conformance::session::ConnectRequest;
use crate::conformance::wire::{acl, code, event, hex, op, open_acl, record};

/// The cases of this part.
pub const CASES: &[Case] = &[
    case("W1", "one's own event comes before one's own reply", own_event_first),
    case("W2", "the bytes of a notification", event_bytes),
    case("W3", "an exists watch on a missing node fires at its creation", exists_missing),
    case("W4", "reads of a missing node leave no watch", failed_reads),
    case("W5", "data and child watch: one event at the delete, both gone", delete_fires_once),
    case("W6", "exists and getData leave one watch", same_watch),
    case("W7", "a child watch fires once, not for data", child_watch),
    case("W8", "a data watch ignores ACLs and children", data_watch),
    case("W14", "a multi fires per operation, with one zxid", multi_events),
    case("W16", "a failed multi fires nothing", failed_multi),
    case("W18", "a watch on the empty path never fires", empty_path),
    case("W31", "an event that may not be read uses up the watch", private_event),
    case("W32", "getData without READ leaves no watch", unreadable),
    case("W33", "watches end with the connection", reattached),
    case("W34", "a close shows its own event, then its reply", own_close),
    case("W36", "no reply overtakes an armed watch's event", no_overtaking),
];

/// The node `n` of the case, and two sessions.
fn watched(context: &Context<'_>) -> Result<(Client, Client, String)> {
    let (mut a, b) = (context.client()?, context.client()?);
    let path = context.path("n");
    a.create(&path, b"")?;
    Ok((a, b, path))
}

fn own_event_first(context: &Context<'_>) -> Result<()> {
    let (mut a, _b, path) = watched(context)?;
    a.get_data(&path, true)?.ok()?;
    let xid = a.send(op::SET_DATA, record().string(&path).buffer(b"x").int(-1))?;
    let (first, second) = (a.message()?, a.message()?);
    let Message::Reply(reply) = second else { bail!("second: {second:?}, first: {first:?}") };
    expect_eq("xid", reply.xid, xid)?;
    reply.stat()?;
    let want = Event { kind: event::DATA_CHANGED, path, zxid: reply.zxid };
    expect_eq("first", first, Message::Event(want))
}

fn event_bytes(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b, path) = watched(context)?;
    a.get_data(&path, true)?.ok()?;
    let zxid = b.set(&path, b"x")?;
    let want = record().int(-1).long(zxid).int(0).int(3).int(3).string(&path).bytes();
    expect_eq("notification", hex(&a.socket.frame()?), hex(&want))
}

fn exists_missing(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let path = context.path("miss");
    a.exists(&path, true)?.fails(code::NO_NODE)?;
    let zxid = b.create(&path, b"")?;
    b.remove(&path)?;
    let events = a.expect_events(&[(event::CREATED, &path)])?;
    expect_eq("zxid", events.first().map(|event| event.zxid), Some(zxid))
}

fn failed_reads(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let path = context.path("miss");
    a.get_data(&path, true)?.fails(code::NO_NODE)?;
    a.get_children(&path, true)?.fails(code::NO_NODE)?;
    b.create(&path, b"")?;
    b.set(&path, b"x")?;
    a.expect_no_event()
}

fn delete_fires_once(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b, path) = watched(context)?;
    a.get_data(&path, true)?.ok()?;
    a.get_children(&path, true)?.ok()?;
    b.remove(&path)?;
    a.expect_events(&[(event::DELETED, &path)])?;
    a.check_watches(&path, 3)?.fails(code::NO_WATCHER)?;
    Ok(())
}

fn same_watch(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b, path) = watched(context)?;
    a.exists(&path, true)?.ok()?;
    a.get_data(&path, true)?.ok()?;
    b.set(&path, b"1")?;
    b.set(&path, b"2")?;
    a.expect_events(&[(event::DATA_CHANGED, &path)])?;
    Ok(())
}

fn child_watch(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b, path) = watched(context)?;
    b.create(&context.path("n/c"), b"")?;
    a.get_children(&path, true)?.ok()?;
    b.set(&context.path("n/c"), b"x")?;
    b.create(&context.path("n/k"), b"")?;
    b.create(&context.path("n/k2"), b"")?;
    a.expect_events(&[(event::CHILDREN_CHANGED, &path)])?;
    Ok(())
}

fn data_watch(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b, path) = watched(context)?;
    a.get_data(&path, true)?.ok()?;
    b.set_acl(&path, &open_acl(), -1)?.stat()?;
    b.create(&context.path("n/c"), b"")?;
    a.expect_no_event()?;
    b.set(&path, b"x")?;
    a.expect_events(&[(event::DATA_CHANGED, &path)])?;
    Ok(())
}

fn multi_events(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b, parent) = watched(context)?;
    let (one, two) = (context.path("n/a"), context.path("n/b"));
    a.get_children(&parent, true)?.ok()?;
    a.exists(&one, true)?.fails(code::NO_NODE)?;
    a.exists(&two, true)?.fails(code::NO_NODE)?;
    let operations = [
        Operation::create(&one, 0),
        Operation::create(&two, 0),
        Operation::set(&one, b"x", -1),
        Operation::delete(&two, -1),
    ];
    let zxid = b.multi(&operations)?.ok()?.zxid;
    let want = [
        (event::CREATED, one.as_str()),
        (event::CHILDREN_CHANGED, &parent),
        (event::CREATED, &two),
    ];
    let events = a.expect_events(&want)?;
    expect_eq("zxids", events.iter().map(|one| one.zxid).collect(), vec![zxid; 3])
}

fn failed_multi(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b, path) = watched(context)?;
    a.get_data(&path, true)?.ok()?;
    a.get_children(&path, true)?.ok()?;
    let operations = [
        Operation::set(&path, b"x", -1),
        Operation::create(&context.path("n/c"), 0),
        Operation::check(&path, 77),
    ];
    b.multi(&operations)?.ok()?;
    a.expect_no_event()?;
    expect_eq("version", b.stat(&path)?.version, 0)
}

fn empty_path(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let (data, _) = a.get_data("", true)?.data_and_stat()?;
    b.set("/", &data.unwrap_or_default())?;
    a.expect_no_event()?;
    a.check_watches("", 2)?.ok_empty().context("the watch is still there")?;
    Ok(())
}

fn private_event(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    b.auth_digest("b:secret")?;
    let path = context.path("n");
    a.exists(&path, true)?.fails(code::NO_NODE)?;
    b.create_as(&path, b"", &[acl(31, "auth", "")], 0)?.ok()?;
    b.set_acl(&path, &open_acl(), -1)?.ok()?;
    b.set(&path, b"x")?;
    a.expect_no_event()?;
    a.check_watches(&path, 2)?.fails(code::NO_WATCHER)?;
    Ok(())
}

fn unreadable(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    b.auth_digest("b:secret")?;
    let path = context.path("n");
    b.create_as(&path, b"", &[acl(31, "auth", "")], 0)?.ok()?;
    a.get_data(&path, true)?.fails(code::NO_AUTH)?;
    a.check_watches(&path, 3)?.fails(code::NO_WATCHER)?;
    Ok(())
}

fn reattached(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b, path) = watched(context)?;
    a.get_data(&path, true)?.ok()?;
    a.get_children(&path, true)?.ok()?;
    let session = a.abandon();
    let mut again = context.client_on(0, &ConnectRequest::resume(&session))?;
    b.set(&path, b"x")?;
    b.create(&context.path("n/c"), b"")?;
    again.expect_no_event()
}

fn own_close(context: &Context<'_>) -> Result<()> {
    let mut a = context.client()?;
    let path = context.path("e");
    a.create_ephemeral(&path)?;
    a.get_data(&path, true)?.ok()?;
    a.keep_session();
    let xid = a.send(op::CLOSE_SESSION, record())?;
    let (first, second) = (a.message()?, a.message()?);
    let Message::Reply(reply) = second else { bail!("second: {second:?}, first: {first:?}") };
    expect_eq("xid", reply.ok_empty()?.xid, xid)?;
    let want = Event { kind: event::DELETED, path, zxid: reply.zxid };
    expect_eq("first", first, Message::Event(want))?;
    a.socket.expect_close()
}

/// A reads and watches without pause, four requests in flight, while B sets 400 times.
fn no_overtaking(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b, path) = watched(context)?;
    let read = || record().string(&path).flag(true);
    thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<i64> {
            let mut last = 0;
            for number in 0..400 {
                last = b.set(&path, format!("{number}").as_bytes())?;
            }
            Ok(last)
        });
        for _ in 0..4 {
            a.send(op::GET_DATA, read())?;
        }
        // The mzxid that was read when the watch was set, while it is armed.
        let mut armed: Option<i64> = None;
        let (mut newest, mut replies, mut in_flight) = (0, 0, 4);
        while in_flight > 0 {
            let (zxid, what) = match a.message()? {
                Message::Event(event) => {
                    expect("an event only comes for an armed watch", armed.take().is_some())?;
                    (event.zxid, "event")
                }
                Message::Reply(reply) => {
                    let mzxid = reply.data_and_stat()?.1.mzxid;
                    let seen = *armed.get_or_insert(mzxid);
                    expect_eq("the data a reply shows under an armed watch", mzxid, seen)?;
                    replies += 1;
                    in_flight -= 1;
                    if !writer.is_finished() {
                        a.send(op::GET_DATA, read())?;
                        in_flight += 1;
                    }
                    (reply.zxid, "reply")
                }
            };
            expect(&format!("zxids do not fall ({what})"), zxid >= newest)?;
            newest = zxid;
        }
        let Ok(last) = writer.join() else { bail!("the writing thread panicked") };
        let last = last?;
        expect("there were many reads", replies > 20)?;
        // Sets that came after the last read show as one event.
        if let Some(mzxid) = armed.filter(|mzxid| *mzxid < last) {
            let event = a.event()?;
            expect("the last event is of a later set", mzxid < event.zxid && event.zxid <= last)?;
        }
        Ok(())
    })
}
