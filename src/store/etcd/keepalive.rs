//! One long-lived stream of renewals. etcd answers a stream's renewals one after the other, so
//! the first that waits is the one that is answered next.

use crate::keeper::txn::{LeaseId, StoreEvent};
use crate::store::etcd::connection::Connection;
use crate::store::etcd::leader::Leader;
use crate::store::etcd::lives::Lives;
use etcd_client::proto::{PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

/// A stream of renewals with what waits on it.
pub(super) struct Lane {
    leader: Leader,
    renewals: mpsc::UnboundedReceiver<LeaseId>,
    events: mpsc::Sender<StoreEvent>,
    lives: Lives,
    /// What was sent on the stream and is not answered, oldest first.
    waiting: VecDeque<(LeaseId, Instant)>,
    /// The leader was silent: until when another member is asked.
    detour_until: Option<Instant>,
}

/// Why a stream is replaced.
enum End {
    /// Nobody asks any more, or nobody listens.
    Closed,
    /// It broke, or was silent for too long.
    Broken(String),
    /// Another member leads.
    Moved,
}

impl Lane {
    pub(super) fn new(
        leader: Leader,
        renewals: mpsc::UnboundedReceiver<LeaseId>,
        events: mpsc::Sender<StoreEvent>,
        lives: Lives,
    ) -> Self {
        Self { leader, renewals, events, lives, waiting: VecDeque::new(), detour_until: None }
    }

    /// Carries renewals until nobody asks any more.
    pub(super) async fn run(mut self) {
        // Nothing is opened before there is something to renew.
        while let Some(lease) = self.renewals.recv().await {
            match self.carry(lease).await {
                End::Closed => return,
                End::Moved => self.detour_until = None,
                End::Broken(reason) => {
                    tracing::debug!(reason, "a stream of renewals broke");
                    self.detour_until = Some(Instant::now() + DETOUR);
                    tokio::time::sleep(REOPEN_PAUSE).await;
                }
            }
            // Whether these were renewed cannot be learnt any more.
            for (lease, _) in std::mem::take(&mut self.waiting) {
                if self.events.send(StoreEvent::Renewed(lease, None)).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn carry(&mut self, first: LeaseId) -> End {
        self.waiting.push_back((first, Instant::now()));
        let opening = async {
            let connection = match self.detour_until {
                Some(_) => self.leader.detour().await,
                None => self.leader.connected().await,
            };
            Stream::open(&connection, first).await
        };
        let opened = tokio::time::timeout(SILENCE_MAX, opening).await;
        let Stream { requests, mut answers } = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(reason)) => return End::Broken(reason),
            Err(_) => return End::Broken("no stream was opened".into()),
        };
        let detoured = self.detour_until.is_some();
        let detour_end = self.detour_until.unwrap_or_else(Instant::now);
        loop {
            let since = self.waiting.front().map(|(_, since)| *since);
            let silent = since.unwrap_or_else(Instant::now) + SILENCE_MAX;
            tokio::select! {
                // A message is kept in the stream until it is whole, so this may be cut off.
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => if self.answered(answer).await.is_err() {
                        return End::Closed;
                    },
                    Ok(None) => return End::Broken("the stream ended".into()),
                    Err(status) => return End::Broken(status.message().to_owned()),
                },
                lease = self.renewals.recv() => match lease {
                    Some(lease) => {
                        self.waiting.push_back((lease, Instant::now()));
                        if requests.send(PbLeaseKeepAliveRequest { id: lease.0 }).is_err() {
                            return End::Broken("the stream ended".into());
                        }
                    }
                    None => return End::Closed,
                },
                () = tokio::time::sleep_until(silent), if since.is_some() => {
                    return End::Broken(format!("silent for {SILENCE_MAX:?}"));
                }
                () = self.leader.changed(), if since.is_none() => return End::Moved,
                () = tokio::time::sleep_until(detour_end), if since.is_none() && detoured => {
                    return End::Moved;
                }
            }
        }
    }

    /// Tells an answer; an error says that nobody listens.
    async fn answered(&mut self, answer: PbLeaseKeepAliveResponse) -> Result<(), ()> {
        let lease = LeaseId(answer.id);
        if let Some(index) = self.waiting.iter().position(|(waiting, _)| *waiting == lease) {
            self.waiting.remove(index);
        }
        // 0 says that there is no such lease.
        let ttl = Duration::from_secs(u64::try_from(answer.ttl).unwrap_or(0));
        self.lives.note(lease, ttl);
        self.events.send(StoreEvent::Renewed(lease, Some(ttl))).await.map_err(|_| ())
    }
}

/// A renewal that waits for longer is given up, and its stream with it.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How long a leader that was silent is passed by.
const DETOUR: Duration = Duration::from_secs(20);
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

struct Stream {
    requests: mpsc::UnboundedSender<PbLeaseKeepAliveRequest>,
    answers: Streaming<PbLeaseKeepAliveResponse>,
}

impl Stream {
    /// Opens a stream; the crate's own call is for one lease a stream. The first renewal goes
    /// along, because etcd says nothing, not even its headers, before it has something to
    /// answer.
    async fn open(connection: &Connection, first: LeaseId) -> Result<Self, String> {
        let (requests, receiver) = mpsc::unbounded_channel();
        let mut client = tonic::client::Grpc::new(connection.channel.clone());
        client.ready().await.map_err(|error| error.to_string())?;
        requests.send(PbLeaseKeepAliveRequest { id: first.0 }).expect("the receiver is here");
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let codec = ProstCodec::<PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse>::default();
        let request = Request::new(UnboundedReceiverStream::new(receiver));
        let answer = client.streaming(request, path, codec).await;
        let answers = answer.map_err(|status| status.message().to_owned())?.into_inner();
        Ok(Self { requests, answers })
    }
}
