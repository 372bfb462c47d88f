//! Requests as bytes, and bytes as answers, with the conformance suite's own encoder.
//!
//! Knows no sockets.

use anyhow::{Context, Result, bail, ensure};

use crate::conformance::message::Reply;
use crate::conformance::multi::{Operation, Outcome, outcomes, request as multi};
use crate::conformance::wire::{self, Reader, Writer, op, open_acl, record};
use crate::history::record::{Answer, Request, Stat};

/// The frame of a request, with its length.
#[must_use]
pub(crate) fn frame(xid: i32, request: &Request) -> Vec<u8> {
    let (opcode, body) = parts(request);
    let bytes = record().int(xid).int(opcode).raw(&body.bytes()).bytes();
    record().buffer(&bytes).bytes()
}

fn parts(request: &Request) -> (i32, Writer) {
    match request {
        Request::Create { path, data, mode } => {
            let body = record().string(path).buffer(data.as_bytes()).acls(&open_acl());
            (op::CREATE, body.int(*mode as i32))
        }
        Request::Delete { path, version } => (op::DELETE, record().string(path).int(*version)),
        Request::Set { path, data, version } => {
            (op::SET_DATA, record().string(path).buffer(data.as_bytes()).int(*version))
        }
        Request::Check { path, version } => (op::CHECK, record().string(path).int(*version)),
        Request::Get { path, watch } => (op::GET_DATA, record().string(path).flag(*watch)),
        Request::Exists { path, watch } => (op::EXISTS, record().string(path).flag(*watch)),
        Request::Children { path, watch } => {
            (op::GET_CHILDREN2, record().string(path).flag(*watch))
        }
        Request::Sync { path } => (op::SYNC, record().string(path)),
        Request::Multi(steps) => {
            let operations: Vec<Operation> = steps
                .iter()
                .map(parts)
                .map(|(opcode, body)| Operation::new(opcode, &body))
                .collect();
            (op::MULTI, multi(&operations))
        }
        Request::SetWatches { zxid, data, exist, child } => {
            let lists =
                [data, exist, child].into_iter().fold(record().long(*zxid), |body, list| {
                    body.strings(&list.iter().map(String::as_str).collect::<Vec<_>>())
                });
            (op::SET_WATCHES, lists)
        }
        Request::Ping => (op::PING, record()),
        Request::Close => (op::CLOSE_SESSION, record()),
    }
}

/// What a reply says to a request.
///
/// # Errors
/// It is no answer to that request.
pub(crate) fn answer(request: &Request, reply: &Reply) -> Result<Answer> {
    if reply.error != 0 {
        return Ok(Answer::Error(reply.error));
    }
    let mut reader = Reader::new(&reply.body);
    let answer = match request {
        Request::Multi(steps) => {
            let results = outcomes(reply)?;
            ensure!(results.len() == steps.len(), "{} results of a multi", results.len());
            let results = results.into_iter().map(result).collect::<Result<_>>()?;
            return Ok(Answer::Results(results));
        }
        Request::Create { .. } => Answer::Path(reader.string()?),
        Request::Set { .. } | Request::Exists { .. } => Answer::Stat(stat(reader.stat()?)),
        Request::Get { .. } => {
            let data = reader.buffer()?.unwrap_or_default();
            Answer::Data(text(data)?, stat(reader.stat()?))
        }
        Request::Children { .. } => {
            let mut names = reader.strings()?;
            names.sort();
            Answer::Children(names, stat(reader.stat()?))
        }
        Request::Sync { .. } => {
            reader.string()?;
            Answer::Done
        }
        _ => Answer::Done,
    };
    reader.end()?;
    Ok(answer)
}

fn result(outcome: Outcome) -> Result<Answer> {
    Ok(match outcome {
        Outcome::Create(path) => Answer::Path(path),
        Outcome::Delete | Outcome::Check => Answer::Done,
        Outcome::SetData(found) => Answer::Stat(stat(found)),
        Outcome::Error(code) => Answer::Error(code),
        other => bail!("{other:?} in the answer to a multi of writes"),
    })
}

fn text(data: Vec<u8>) -> Result<String> {
    String::from_utf8(data).context("data that nobody wrote")
}

fn stat(found: wire::Stat) -> Stat {
    Stat {
        czxid: found.czxid,
        mzxid: found.mzxid,
        pzxid: found.pzxid,
        version: found.version,
        cversion: found.cversion,
        owner: found.ephemeral_owner,
        children: found.num_children,
    }
}
