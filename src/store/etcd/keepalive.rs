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
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;

/// A stream of renewals with what waits on it.
pub(super) struct Lane {
    leader: Leader,
    renewals: mpsc::UnboundedReceiver<LeaseId>,
    events: mpsc::Sender<StoreEvent>,
    lives: Lives,
    /// What is not answered, oldest first.
    waiting: VecDeque<LeaseId>,
    /// The leader was silent: until when another member is asked.
    detour_until: Option<Instant>,
}

/// Why a stream is replaced.
enum End {
    /// Nobody asks any more, or nobody listens.
    Closed,
    /// It broke, or was silent for too long.
    Broken(String),
    /// Another member leads, or may be asked again.
    Moved,
    /// etcd does not know the token any more, and has done nothing.
    Expelled,
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
        loop {
            // Nothing is opened before there is something to renew.
            if self.waiting.is_empty() {
                let Some(lease) = self.renewals.recv().await else { return };
                self.waiting.push_back(lease);
            }
            match self.carry().await {
                End::Closed => return,
                // What still waits is asked of the other member.
                End::Moved => self.detour_until = None,
                // It is asked again with another token.
                End::Expelled => tokio::time::sleep(REOPEN_PAUSE).await,
                End::Broken(reason) => {
                    tracing::debug!(reason, "a stream of renewals broke");
                    self.detour_until = Some(Instant::now() + DETOUR);
                    tokio::time::sleep(REOPEN_PAUSE).await;
                    // Whether these were renewed cannot be learnt any more.
                    for lease in std::mem::take(&mut self.waiting) {
                        if self.events.send(StoreEvent::Renewed(lease, None)).await.is_err() {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Opens a stream, asks for what waits, and carries all that comes.
    async fn carry(&mut self) -> End {
        let connection = async {
            match self.detour_until {
                Some(_) => self.leader.detour().await,
                None => self.leader.connected().await,
            }
        };
        let Ok(connection) = tokio::time::timeout(SILENCE_MAX, connection).await else {
            return End::Broken("not connected to etcd".into());
        };
        let opened = tokio::select! {
            opened = tokio::time::timeout(SILENCE_MAX, Stream::open(&connection, &self.waiting)) => {
                opened
            }
            () = self.leader.changed() => return End::Moved,
        };
        let Stream { requests, mut answers } = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(reason)) => return End::Broken(reason),
            Err(_) => return End::Broken("no stream was opened".into()),
        };
        let detoured = self.detour_until.is_some();
        let detour_end = self.detour_until.unwrap_or_else(Instant::now);
        // When the last answer came, or something began to wait.
        let mut heard = Instant::now();
        loop {
            let waits = !self.waiting.is_empty();
            tokio::select! {
                // A message is kept in the stream until it is whole, so this may be cut off.
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => {
                        heard = Instant::now();
                        if self.answered(answer).await.is_err() {
                            return End::Closed;
                        }
                    }
                    Ok(None) => return End::Broken("the stream ended".into()),
                    Err(status) if status.code() == Code::Unauthenticated => {
                        return End::Expelled;
                    }
                    Err(status) => return End::Broken(status.message().to_owned()),
                },
                lease = self.renewals.recv() => match lease {
                    Some(lease) => {
                        if !waits {
                            heard = Instant::now();
                        }
                        self.waiting.push_back(lease);
                        if requests.send(PbLeaseKeepAliveRequest { id: lease.0 }).is_err() {
                            return End::Broken("the stream ended".into());
                        }
                    }
                    None => return End::Closed,
                },
                () = tokio::time::sleep_until(heard + SILENCE_MAX), if waits => {
                    return End::Broken(format!("silent for {SILENCE_MAX:?}"));
                }
                () = self.leader.changed() => return End::Moved,
                () = tokio::time::sleep_until(detour_end), if !waits && detoured => {
                    return End::Moved;
                }
            }
        }
    }

    /// Tells an answer; an error says that nobody listens.
    async fn answered(&mut self, answer: PbLeaseKeepAliveResponse) -> Result<(), ()> {
        let lease = LeaseId(answer.id);
        if let Some(index) = self.waiting.iter().position(|waiting| *waiting == lease) {
            self.waiting.remove(index);
        }
        // 0 says that there is no such lease.
        let ttl = Duration::from_secs(u64::try_from(answer.ttl).unwrap_or(0));
        self.lives.note(lease, ttl);
        self.events.send(StoreEvent::Renewed(lease, Some(ttl))).await.map_err(|_| ())
    }
}

/// A stream that answers nothing for so long though something waits is given up, and what waits
/// with it.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// How long a leader that was silent is passed by.
const DETOUR: Duration = Duration::from_secs(20);
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

struct Stream {
    requests: mpsc::UnboundedSender<PbLeaseKeepAliveRequest>,
    answers: Streaming<PbLeaseKeepAliveResponse>,
}

impl Stream {
    /// Opens a stream; the crate's own call is for one lease a stream. The first renewals go
    /// along, because etcd says nothing, not even its headers, before it has something to
    /// answer.
    async fn open(connection: &Connection, first: &VecDeque<LeaseId>) -> Result<Self, String> {
        let (requests, receiver) = mpsc::unbounded_channel();
        let mut client = tonic::client::Grpc::new(connection.channel.clone());
        client.ready().await.map_err(|error| error.to_string())?;
        for lease in first {
            let request = PbLeaseKeepAliveRequest { id: lease.0 };
            requests.send(request).expect("the receiver is here");
        }
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let codec = ProstCodec::<PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse>::default();
        let mut request = Request::new(UnboundedReceiverStream::new(receiver));
        if let Some(token) = connection.token().await? {
            // From `rpctypes.TokenFieldNameGRPC`.
            request.metadata_mut().insert("token", token);
        }
        let answer = client.streaming(request, path, codec).await;
        let answers = answer.map_err(|status| status.message().to_owned())?.into_inner();
        Ok(Self { requests, answers })
    }
}
