//! The zxid offset of a tree that came from a ZooKeeper. All here count in revisions, and clients
//! in what those become: this is where the two meet.

use jute::Stat;
use zkshim::keeper::request::{Body, Connect, MultiResult, Operation, Outgoing, Request};

/// What a shim says, without the offset.
pub(crate) fn take_off(outgoing: &mut Outgoing, offset: i64) {
    match outgoing {
        Outgoing::Connected(_) => {}
        Outgoing::Event(event) => less(&mut event.zxid.0, offset),
        Outgoing::Reply(reply) => {
            less(&mut reply.zxid.0, offset);
            match &mut reply.outcome {
                Ok(
                    Body::PathStat(_, stat)
                    | Body::Stat(stat)
                    | Body::Data(_, stat)
                    | Body::NamesStat(_, stat)
                    | Body::Acl(_, stat),
                ) => less_stat(stat, offset),
                Ok(Body::Multi(results)) => {
                    results.iter_mut().for_each(|result| less_result(result, offset));
                }
                _ => {}
            }
        }
    }
}

fn less_result(result: &mut MultiResult, offset: i64) {
    match result {
        MultiResult::Create2(_, stat)
        | MultiResult::SetData(stat)
        | MultiResult::GetData(_, stat) => less_stat(stat, offset),
        _ => {}
    }
}

fn less_stat(stat: &mut Stat, offset: i64) {
    for zxid in [&mut stat.czxid, &mut stat.mzxid, &mut stat.pzxid] {
        less(zxid, offset);
    }
}

/// 0 and -1 say that there is none.
fn less(zxid: &mut i64, offset: i64) {
    if *zxid > 0 {
        *zxid -= offset;
    }
}

/// What a client shows, with the offset.
pub(crate) fn put_on(connect: &mut Connect, offset: i64) {
    more(&mut connect.last_zxid_seen.0, offset);
}

/// As [`put_on`], for a request.
pub(crate) fn put_on_request(request: &mut Request, offset: i64) {
    if let Operation::SetWatches(set) = &mut request.operation {
        more(&mut set.relative_zxid.0, offset);
    }
}

fn more(zxid: &mut i64, offset: i64) {
    if *zxid > 0 {
        *zxid += offset;
    }
}
