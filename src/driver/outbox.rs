//! What waits to be written to one connection.
//!
//! The driver puts in and never waits; the connection's writing half takes out all there is.
//! A client that does not read fills its outbox up to the limit and is cut; so is the worst of
//! them when all outboxes together hold too much.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::timeout;

use crate::driver::backlog::{Backlog, Held};
use crate::keeper::request::{Body, MultiResult, Outgoing, Reply};

/// How long a client may take to read the last of what it is sent before its connection is
/// closed.
const LAST_MAX: Duration = Duration::from_secs(10);

/// One connection's queue of replies and events. Clones are the same queue.
///
/// One task waits for it, that of the connection: the last that has asked is woken.
#[derive(Clone, Debug)]
pub struct Outbox(Arc<Shared>);

/// What [`Outbox::poll_take`] found; to be given back by [`Outbox::written`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// More may come.
    Some,
    /// Nothing comes after it: write it, then close the connection.
    Last,
    /// Nothing, and nothing is to be sent any more: see [`Outbox::cut`].
    Cut,
}

#[derive(Debug)]
struct Shared {
    /// Held for a few instructions only, never across an await.
    queue: Mutex<Queue>,
    /// The most bytes that may wait or be on their way to the socket.
    bytes_max: usize,
    backlog: Backlog,
}

#[derive(Debug, Default)]
struct Queue {
    outgoing: Vec<Outgoing>,
    /// What is in `outgoing`, on the wire and in the memory.
    bytes: usize,
    held: Held,
    /// What was taken and is not written yet.
    bytes_taken: usize,
    held_taken: Held,
    /// What has been put in since the limit was reached.
    bytes_beyond: usize,
    /// The core asked for the close.
    closed: bool,
    /// A limit was reached: nothing is taken in any more.
    cut: bool,
    /// Who waits, for something to write or for the cut.
    waiting: Option<Waker>,
}

impl Queue {
    fn wait(&mut self, context: &Context<'_>) {
        if !self.waiting.as_ref().is_some_and(|waiting| waiting.will_wake(context.waker())) {
            self.waiting = Some(context.waker().clone());
        }
    }

    /// Whoever waits looks again.
    fn wake(mut queue: MutexGuard<'_, Self>) {
        let waiting = queue.waiting.take();
        drop(queue);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Nothing of it is sent any more. What was taken goes as soon as its writer hears of it.
    fn cut(&mut self, backlog: &Backlog) {
        self.cut = true;
        backlog.release(std::mem::take(&mut self.held));
        backlog.release(std::mem::take(&mut self.held_taken));
        self.outgoing = Vec::new();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let queue = self.queue.get_mut().expect("nothing panics while it holds the queue");
        self.backlog.release(std::mem::take(&mut queue.held));
        self.backlog.release(std::mem::take(&mut queue.held_taken));
    }
}

impl Outbox {
    /// An empty outbox that holds about twice `bytes_max` at most, and the answers that reached
    /// the limit. All that it holds counts in `backlog`.
    pub fn new(bytes_max: usize, backlog: &Backlog) -> Self {
        Self(Arc::new(Shared { queue: Mutex::default(), bytes_max, backlog: backlog.clone() }))
    }

    /// Puts in all of `batch`, in order, and leaves it empty. What comes after the close or the
    /// cut is dropped, since nobody would read it.
    pub fn push(&self, batch: &mut Vec<Outgoing>) {
        let (mut bytes, mut held) = (0, Held::default());
        for outgoing in &*batch {
            bytes += weigh(outgoing, &mut held);
        }
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
            queue.cut(&self.0.backlog);
            Queue::wake(queue);
            return;
        } else {
            queue.bytes_beyond += bytes;
        }
        queue.bytes += bytes;
        self.0.backlog.hold(&mut queue.held, held);
        if queue.outgoing.is_empty() {
            // Not copied, and whoever waits for answers keeps no room for them.
            std::mem::swap(&mut queue.outgoing, batch);
        } else {
            queue.outgoing.append(batch);
        }
        Queue::wake(queue);
    }

    /// What is in there is the last; the connection is to be closed after it.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        Queue::wake(queue);
    }

    /// Nothing more is sent: see [`Self::cut`].
    pub fn cut_off(&self) {
        let mut queue = self.queue();
        queue.cut(&self.0.backlog);
        Queue::wake(queue);
    }

    /// Who waits looks again, also at what is nothing of the outbox.
    pub fn wake(&self) {
        Queue::wake(self.queue());
    }

    /// What waits for all connections.
    pub fn backlog(&self) -> &Backlog {
        &self.0.backlog
    }

    /// What of the backlog this one answers for.
    pub fn share(&self) -> usize {
        let queue = self.queue();
        let backlog = &self.0.backlog;
        backlog.share_of(&queue.held) + backlog.share_of(&queue.held_taken)
    }

    /// Waits until there is something, or nothing will come any more, and swaps it with `into`,
    /// which must be empty; what was taken before must have been given back. While it waits
    /// there is no room for either.
    ///
    /// Safe to cancel: nothing is taken before it returns.
    pub fn poll_take(&self, context: &Context<'_>, into: &mut Vec<Outgoing>) -> Poll<Taken> {
        let mut queue = self.queue();
        if queue.cut {
            return Poll::Ready(Taken::Cut);
        }
        if queue.outgoing.is_empty() && !queue.closed {
            (queue.outgoing, *into) = (Vec::new(), Vec::new());
            queue.wait(context);
            return Poll::Pending;
        }
        std::mem::swap(&mut queue.outgoing, into);
        queue.bytes_taken += std::mem::take(&mut queue.bytes);
        queue.held_taken = std::mem::take(&mut queue.held);
        Poll::Ready(if queue.closed { Taken::Last } else { Taken::Some })
    }

    /// All that was taken has left.
    pub fn written(&self) {
        let mut queue = self.queue();
        queue.bytes_taken = 0;
        self.0.backlog.release(std::mem::take(&mut queue.held_taken));
    }

    /// Roughly how many bytes wait or are on their way to the socket.
    pub fn bytes(&self) -> usize {
        let queue = self.queue();
        queue.bytes + queue.bytes_taken
    }

    /// Waits until a limit was reached, or what stands before the close is not read. Safe to
    /// cancel, and then begins anew.
    pub async fn cut(&self) {
        if poll_fn(|context| self.poll_cut(context, true)).await {
            return;
        }
        // In a box, since all connections would have room for it. Whoever has not read until then
        // is cut as well.
        let cut = poll_fn(|context| self.poll_cut(context, false));
        let _ = Box::pin(timeout(LAST_MAX, cut)).await;
    }

    /// Whether a limit was reached, or, where that is asked for, the close was.
    fn poll_cut(&self, context: &Context<'_>, or_closed: bool) -> Poll<bool> {
        let mut queue = self.queue();
        if queue.cut || (or_closed && queue.closed) {
            return Poll::Ready(queue.cut);
        }
        queue.wait(context);
        Poll::Pending
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().expect("nothing panics while it holds the queue")
    }
}

/// About how many bytes it is on the wire: what is large in it, and a little for the rest. What it
/// takes in the memory is added to `held`.
fn weigh(outgoing: &Outgoing, held: &mut Held) -> usize {
    const SMALL: usize = 96;
    const ROOM: usize = 2 * size_of::<Outgoing>();
    held.add_own(ROOM);
    SMALL
        + match outgoing {
            Outgoing::Connected(_) => 0,
            Outgoing::Event(event) => bytes(event.path.as_bytes(), held),
            Outgoing::Reply(Reply { outcome: Err(_), .. }) => 0,
            Outgoing::Reply(Reply { outcome: Ok(body), .. }) => weigh_body(body, held),
        }
}

fn weigh_body(body: &Body, held: &mut Held) -> usize {
    match body {
        Body::Empty | Body::Stat(_) | Body::Number(_) | Body::Watched => 0,
        Body::Path(path) => path.as_ref().map_or(0, |path| bytes(path.as_bytes(), held)),
        Body::PathStat(path, _) => bytes(path.as_bytes(), held),
        Body::Data(data, _) => data.as_ref().map_or(0, |data| bytes(data, held)),
        Body::Token(data) => data.as_ref().map_or(0, |data| bytes(data, held)),
        Body::Names(names) | Body::NamesStat(names, _) => bytes(&names.0, held),
        Body::Acl(acl, _) => entries(acl, held),
        Body::Identities(identities) => entries(identities, held),
        Body::Multi(results) => {
            let results_bytes = results.iter().map(|result| weigh_result(result, held));
            let results_bytes: usize = results_bytes.sum();
            results_bytes + entries(results, held)
        }
    }
}

fn weigh_result(result: &MultiResult, held: &mut Held) -> usize {
    match result {
        MultiResult::Create(path) | MultiResult::Create2(path, _) => bytes(path.as_bytes(), held),
        MultiResult::GetData(data, _) => data.as_ref().map_or(0, |data| bytes(data, held)),
        MultiResult::GetChildren(names) => bytes(&names.0, held),
        MultiResult::Delete
        | MultiResult::SetData(_)
        | MultiResult::Check
        | MultiResult::Error(_) => 0,
    }
}

fn bytes(buffer: &[u8], held: &mut Held) -> usize {
    held.add(buffer);
    buffer.len()
}

fn entries<T>(list: &[T], held: &mut Held) -> usize {
    const ENTRY: usize = 64;
    held.add_own(size_of_val(list));
    list.len() * ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::request::{Connected, Names, Xid};
    use crate::keeper::zxid::Zxid;
    use bytes::Bytes;

    fn outbox(bytes_max: usize) -> Outbox {
        Outbox::new(bytes_max, &Backlog::new(1 << 20))
    }

    async fn take(outbox: &Outbox, into: &mut Vec<Outgoing>) -> Taken {
        poll_fn(|context| outbox.poll_take(context, into)).await
    }

    fn reply(bytes: usize) -> Outgoing {
        let names = Names(Bytes::from(vec![0; bytes]));
        Outgoing::Reply(Reply { xid: Xid(1), zxid: Zxid(1), outcome: Ok(Body::Names(names)) })
    }

    #[tokio::test]
    async fn all_that_waits_is_taken_at_once_and_in_order() {
        let outbox = outbox(1000);
        outbox.push(&mut vec![Outgoing::Connected(Connected::Refused)]);
        outbox.push(&mut vec![reply(3)]);
        let mut taken = Vec::new();
        assert_eq!(take(&outbox, &mut taken).await, Taken::Some);
        assert_eq!(taken, [Outgoing::Connected(Connected::Refused), reply(3)]);
    }

    #[tokio::test]
    async fn a_close_comes_with_what_was_put_in_before_and_drops_what_comes_after() {
        let outbox = outbox(1000);
        outbox.push(&mut vec![reply(3)]);
        outbox.close();
        outbox.push(&mut vec![reply(4)]);
        let mut taken = Vec::new();
        assert_eq!(take(&outbox, &mut taken).await, Taken::Last);
        assert_eq!(taken, [reply(3)]);
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_is_cut() {
        let outbox = outbox(1000);
        outbox.push(&mut vec![reply(5000)]);
        let mut taken = Vec::new();
        take(&outbox, &mut taken).await;
        assert_eq!(taken.len(), 1, "one large answer alone is no reason to cut");
        for _ in 0..20 {
            outbox.push(&mut vec![reply(1)]);
        }
        outbox.cut().await;
        outbox.written();
    }

    #[tokio::test]
    async fn what_comes_while_large_answers_are_read_is_no_reason_to_cut() {
        let outbox = outbox(1000);
        for _ in 0..10 {
            outbox.push(&mut (0..100).map(|_| reply(1000)).collect());
            let mut taken = Vec::new();
            take(&outbox, &mut taken).await;
            outbox.push(&mut vec![reply(1)]);
            outbox.written();
            taken.clear();
            take(&outbox, &mut taken).await;
            outbox.written();
        }
        assert!(!outbox.queue().cut);
    }

    #[tokio::test]
    async fn what_was_written_counts_no_more() {
        let outbox = outbox(1000);
        for _ in 0..10 {
            outbox.push(&mut vec![reply(900)]);
            let mut taken = Vec::new();
            take(&outbox, &mut taken).await;
            outbox.written();
        }
        assert!(!outbox.queue().cut);
    }

    #[tokio::test]
    async fn all_that_waits_counts_in_the_backlog_until_it_is_written_or_cut() {
        let backlog = Backlog::new(1 << 20);
        let outboxes = [(); 4].map(|()| Outbox::new(1 << 20, &backlog));
        let answer = reply(10_000);
        for outbox in &outboxes {
            outbox.push(&mut vec![answer.clone(), reply(100)]);
        }
        let [first, second, third, fourth] = outboxes;
        assert_eq!(backlog.bytes(), 10_000 + 4 * (100 + 4 * size_of::<Outgoing>()));
        assert_eq!(first.share(), 2500 + 100 + 4 * size_of::<Outgoing>());
        let mut taken = Vec::new();
        take(&first, &mut taken).await;
        take(&second, &mut taken).await;
        assert_eq!(backlog.bytes(), 10_000 + 4 * (100 + 4 * size_of::<Outgoing>()));
        first.written();
        second.cut_off();
        second.written();
        drop(third);
        assert_eq!(backlog.bytes(), fourth.share());
        fourth.cut_off();
        fourth.push(&mut vec![answer]);
        assert_eq!(backlog.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_stands_before_a_close_is_not_waited_for_without_end() {
        let outbox = outbox(1000);
        outbox.push(&mut vec![reply(3)]);
        let still = timeout(2 * LAST_MAX, outbox.cut()).await;
        assert!(still.is_err(), "it may wait as long as the session lasts");
        outbox.close();
        timeout(2 * LAST_MAX, outbox.cut()).await.expect("it is cut");
    }
}
