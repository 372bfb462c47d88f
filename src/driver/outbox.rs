//! What waits to be written to one connection.
//!
//! The driver puts in and never waits; the connection's writing half takes out all there is.
//! A client that does not read fills its outbox up to the limit and is cut.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::keeper::request::{Body, MultiResult, Outgoing, Reply};

/// One connection's queue of replies and events. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Shared>);

/// What [`Outbox::take`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Roughly how many bytes it is; to be given back by [`Outbox::written`].
    pub bytes: usize,
    /// Nothing comes after it: write it, then close the connection.
    pub last: bool,
}

#[derive(Debug)]
struct Shared {
    /// Held for a few instructions only, never across an await.
    queue: Mutex<Queue>,
    /// Wakes the writing half: there is something, or nothing will come any more.
    ready: Notify,
    /// Wakes whoever waits for the cut.
    cut: Notify,
    /// The most bytes that may wait or be on their way to the socket.
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    outgoing: Vec<Outgoing>,
    /// What is in `outgoing`.
    bytes: usize,
    /// What was taken and is not written yet.
    bytes_taken: usize,
    /// What has been put in since the limit was reached.
    bytes_beyond: usize,
    /// The core asked for the close.
    closed: bool,
    /// The limit was reached: nothing is taken in any more.
    cut: bool,
}

impl Outbox {
    /// An empty outbox that holds about twice `bytes_max` at most, and the answers that reached
    /// the limit.
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Shared {
            queue: Mutex::default(),
            ready: Notify::new(),
            cut: Notify::new(),
            bytes_max,
        }))
    }

    /// Puts in all of `batch`, in order, and leaves it empty. What comes after the close or the
    /// cut is dropped, since nobody would read it.
    pub fn push(&self, batch: &mut Vec<Outgoing>) {
        let bytes: usize = batch.iter().map(weight).sum();
        let mut queue = self.queue();
        if queue.closed || queue.cut {
            batch.clear();
            return;
        }
        // The answers to what was asked at once may be larger than the limit (a server has no
        // limit on what it sends), and an event may come while a client still reads them. So
        // what is beyond the limit has the same limit again.
        if queue.bytes + queue.bytes_taken <= self.0.bytes_max {
            queue.bytes_beyond = 0;
        } else if queue.bytes_beyond > self.0.bytes_max {
            batch.clear();
            queue.cut = true;
            queue.outgoing = Vec::new();
            drop(queue);
            self.0.cut.notify_one();
            return;
        } else {
            queue.bytes_beyond += bytes;
        }
        queue.bytes += bytes;
        if queue.outgoing.is_empty() {
            // Not copied, and whoever waits for answers keeps no room for them.
            std::mem::swap(&mut queue.outgoing, batch);
        } else {
            queue.outgoing.append(batch);
        }
        drop(queue);
        self.0.ready.notify_one();
    }

    /// What is in there is the last; the connection is to be closed after it.
    pub fn close(&self) {
        self.queue().closed = true;
        self.0.ready.notify_one();
    }

    /// Waits until there is something, or nothing will come any more, and swaps it with `into`,
    /// which must be empty. While it waits there is no room for either.
    ///
    /// Safe to cancel: nothing is taken before it returns.
    pub async fn take(&self, into: &mut Vec<Outgoing>) -> Taken {
        loop {
            {
                let mut queue = self.queue();
                if !queue.outgoing.is_empty() || queue.closed {
                    std::mem::swap(&mut queue.outgoing, into);
                    let bytes = std::mem::take(&mut queue.bytes);
                    queue.bytes_taken += bytes;
                    return Taken { bytes, last: queue.closed };
                }
                (queue.outgoing, *into) = (Vec::new(), Vec::new());
            }
            self.0.ready.notified().await;
        }
    }

    /// What was taken has left, `bytes` in all.
    pub fn written(&self, bytes: usize) {
        let mut queue = self.queue();
        queue.bytes_taken = queue.bytes_taken.saturating_sub(bytes);
    }

    /// Roughly how many bytes wait or are on their way to the socket.
    pub fn bytes(&self) -> usize {
        let queue = self.queue();
        queue.bytes + queue.bytes_taken
    }

    /// Waits until the limit was reached. Safe to cancel.
    pub async fn cut(&self) {
        loop {
            if self.queue().cut {
                return;
            }
            self.0.cut.notified().await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().expect("nothing panics while it holds the queue")
    }
}

/// About how many bytes it is on the wire: what is large in it, and a little for the rest.
fn weight(outgoing: &Outgoing) -> usize {
    const SMALL: usize = 96;
    match outgoing {
        Outgoing::Connected(_) => SMALL,
        Outgoing::Event(event) => SMALL + event.path.len(),
        Outgoing::Reply(Reply { outcome: Err(_), .. }) => SMALL,
        Outgoing::Reply(Reply { outcome: Ok(body), .. }) => SMALL + body_weight(body),
    }
}

fn body_weight(body: &Body) -> usize {
    const ENTRY: usize = 64;
    match body {
        Body::Empty | Body::Stat(_) | Body::Number(_) | Body::Watched => 0,
        Body::Path(path) => path.as_ref().map_or(0, |path| path.len()),
        Body::PathStat(path, _) => path.len(),
        Body::Data(data, _) => data.as_ref().map_or(0, |data| data.len()),
        Body::Token(data) => data.as_ref().map_or(0, |data| data.len()),
        Body::Names(names) | Body::NamesStat(names, _) => names.0.len(),
        Body::Acl(acl, _) => acl.len() * ENTRY,
        Body::Identities(identities) => identities.len() * ENTRY,
        Body::Multi(results) => results.iter().map(|result| ENTRY + result_weight(result)).sum(),
    }
}

fn result_weight(result: &MultiResult) -> usize {
    match result {
        MultiResult::Create(path) | MultiResult::Create2(path, _) => path.len(),
        MultiResult::GetData(data, _) => data.as_ref().map_or(0, |data| data.len()),
        MultiResult::GetChildren(names) => names.0.len(),
        MultiResult::Delete
        | MultiResult::SetData(_)
        | MultiResult::Check
        | MultiResult::Error(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::request::{Connected, Names, Xid};
    use crate::keeper::zxid::Zxid;
    use bytes::Bytes;

    fn reply(bytes: usize) -> Outgoing {
        let names = Names(Bytes::from(vec![0; bytes]));
        Outgoing::Reply(Reply { xid: Xid(1), zxid: Zxid(1), outcome: Ok(Body::Names(names)) })
    }

    #[tokio::test]
    async fn all_that_waits_is_taken_at_once_and_in_order() {
        let outbox = Outbox::new(1000);
        outbox.push(&mut vec![Outgoing::Connected(Connected::Refused)]);
        outbox.push(&mut vec![reply(3)]);
        let mut taken = Vec::new();
        assert!(!outbox.take(&mut taken).await.last);
        assert_eq!(taken, [Outgoing::Connected(Connected::Refused), reply(3)]);
    }

    #[tokio::test]
    async fn a_close_comes_with_what_was_put_in_before_and_drops_what_comes_after() {
        let outbox = Outbox::new(1000);
        outbox.push(&mut vec![reply(3)]);
        outbox.close();
        outbox.push(&mut vec![reply(4)]);
        let mut taken = Vec::new();
        assert!(outbox.take(&mut taken).await.last);
        assert_eq!(taken, [reply(3)]);
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_is_cut() {
        let outbox = Outbox::new(1000);
        outbox.push(&mut vec![reply(5000)]);
        let mut taken = Vec::new();
        let first = outbox.take(&mut taken).await;
        assert_eq!(taken.len(), 1, "one large answer alone is no reason to cut");
        for _ in 0..20 {
            outbox.push(&mut vec![reply(1)]);
        }
        outbox.cut().await;
        outbox.written(first.bytes);
    }

    #[tokio::test]
    async fn what_comes_while_large_answers_are_read_is_no_reason_to_cut() {
        let outbox = Outbox::new(1000);
        for _ in 0..10 {
            outbox.push(&mut (0..100).map(|_| reply(1000)).collect());
            let mut taken = Vec::new();
            let bytes = outbox.take(&mut taken).await.bytes;
            outbox.push(&mut vec![reply(1)]);
            outbox.written(bytes);
            taken.clear();
            let rest = outbox.take(&mut taken).await.bytes;
            outbox.written(rest);
        }
        assert!(!outbox.queue().cut);
    }

    #[tokio::test]
    async fn what_was_written_counts_no_more() {
        let outbox = Outbox::new(1000);
        for _ in 0..10 {
            outbox.push(&mut vec![reply(900)]);
            let mut taken = Vec::new();
            let bytes = outbox.take(&mut taken).await.bytes;
            outbox.written(bytes);
        }
        assert!(!outbox.queue().cut);
    }
}
