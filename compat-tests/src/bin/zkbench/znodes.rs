//! The znodes that workloads run on: made before, removed afterwards.

use anyhow::{Result, bail, ensure};

use crate::connection::Connection;
use crate::frames::{CreateMode, Message, Op, Reader};

/// Bytes of data in every znode that is read or set.
pub(crate) const DATA: [u8; 100] = [b'z'; 100];

/// Deletes under way at once while cleaning up.
const DELETES_IN_FLIGHT: usize = 64;

const NO_NODE: i32 = -101;
const NOT_EMPTY: i32 = -111;

/// Creates a persistent znode with the standard data.
pub(crate) async fn create(connection: &mut Connection, path: &str) -> Result<()> {
    let op = Op::Create { path, data: &DATA, mode: CreateMode::Persistent };
    let reply = connection.demand(op).await?;
    let mut reader = Reader::new(&reply.body);
    let created = reader.string()?;
    ensure!(created == path, "created {created} instead of {path}");
    reader.end()
}

/// Deletes a znode and all below it; that there is nothing is fine.
pub(crate) async fn wipe(connection: &mut Connection, root: &str) -> Result<()> {
    let mut stack = vec![root.to_owned()];
    while let Some(path) = stack.pop() {
        let full = delete_all(connection, std::slice::from_ref(&path)).await?;
        if full.is_empty() {
            continue;
        }
        let children = children(connection, &path).await?;
        stack.push(path);
        stack.extend(delete_all(connection, &children).await?);
    }
    Ok(())
}

/// Deletes these znodes, several at a time, and returns those that have children.
pub(crate) async fn delete_all(
    connection: &mut Connection,
    paths: &[String],
) -> Result<Vec<String>> {
    let mut full = Vec::new();
    for chunk in paths.chunks(DELETES_IN_FLIGHT) {
        for path in chunk {
            connection.queue(Op::Delete { path });
        }
        connection.flush().await?;
        for path in chunk {
            match delete_outcome(connection).await? {
                0 | NO_NODE => {}
                NOT_EMPTY => full.push(path.clone()),
                err => bail!("delete of {path} was answered {err}"),
            }
        }
    }
    Ok(full)
}

async fn delete_outcome(connection: &mut Connection) -> Result<i32> {
    loop {
        match connection.poll_message()? {
            Some(Message::Reply(reply)) => return Ok(reply.err),
            Some(Message::Event { .. }) => {}
            None => connection.fill().await?,
        }
    }
}

async fn children(connection: &mut Connection, path: &str) -> Result<Vec<String>> {
    let reply = connection.demand(Op::GetChildren { path }).await?;
    let mut reader = Reader::new(&reply.body);
    let names = reader.strings()?;
    reader.end()?;
    Ok(names.into_iter().map(|name| format!("{path}/{name}")).collect())
}
