//! The few frames of the ZooKeeper client protocol that a load generator sends and reads.
//! Written by hand, apart from the server's codec, so that a mistake there cannot hide here.
//! Knows no sockets.

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Everybody may do everything: the ACL of all znodes made here.
const ACL_WORLD: (i32, &str, &str) = (31, "world", "anyone");

/// Largest reply that is read; a list of a million children has about 30 MB.
const FRAME_BYTES_MAX: usize = 256 << 20;

/// The xid of a notification (`ClientCnxn.SendThread.readResponse`).
const XID_NOTIFICATION: i32 = -1;

/// The xid of a ping and of its reply.
const XID_PING: i32 = -2;

/// How a created znode lives, with the number that stands for it in `CreateMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreateMode {
    /// Stays until it is deleted.
    Persistent = 0,
    /// Goes with its session.
    Ephemeral = 1,
    /// Goes with its session, and gets the parent's next number as suffix.
    EphemeralSequential = 3,
}

/// A request, by the record that it is sent as.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op<'a> {
    /// `CreateRequest`, always with the ACL `world:anyone:cdrwa`.
    Create { path: &'a str, data: &'a [u8], mode: CreateMode },
    /// `DeleteRequest`, any version.
    Delete { path: &'a str },
    /// `ExistsRequest`.
    Exists { path: &'a str, watch: bool },
    /// `GetDataRequest`.
    GetData { path: &'a str, watch: bool },
    /// `SetDataRequest`, any version.
    SetData { path: &'a str, data: &'a [u8] },
    /// `GetChildrenRequest`, without a watch.
    GetChildren { path: &'a str },
    /// `GetChildren2Request`, without a watch.
    GetChildren2 { path: &'a str },
    /// `SyncRequest`.
    Sync { path: &'a str },
    /// A ping: its xid is always -2.
    Ping,
    /// Ends the session.
    CloseSession,
}

impl Op<'_> {
    /// The number in `ZooDefs.OpCode`.
    fn code(&self) -> i32 {
        match self {
            Self::Create { .. } => 1,
            Self::Delete { .. } => 2,
            Self::Exists { .. } => 3,
            Self::GetData { .. } => 4,
            Self::SetData { .. } => 5,
            Self::GetChildren { .. } => 8,
            Self::Sync { .. } => 9,
            Self::Ping => 11,
            Self::GetChildren2 { .. } => 12,
            Self::CloseSession => -11,
        }
    }

    /// The xid to send it under, given the next one of the connection.
    pub(crate) fn xid(&self, next: i32) -> i32 {
        if matches!(self, Self::Ping) { XID_PING } else { next }
    }

    /// Appends the whole frame.
    pub(crate) fn put(&self, xid: i32, out: &mut BytesMut) {
        put_frame(out, |out| {
            out.put_i32(xid);
            out.put_i32(self.code());
            self.put_record(out);
        });
    }

    fn put_record(&self, out: &mut BytesMut) {
        match *self {
            Self::Create { path, data, mode } => {
                put_buffer(out, path.as_bytes());
                put_buffer(out, data);
                let (perms, scheme, id) = ACL_WORLD;
                out.put_i32(1);
                out.put_i32(perms);
                put_buffer(out, scheme.as_bytes());
                put_buffer(out, id.as_bytes());
                out.put_i32(mode as i32);
            }
            Self::Delete { path } => {
                put_buffer(out, path.as_bytes());
                out.put_i32(-1);
            }
            Self::Exists { path, watch } | Self::GetData { path, watch } => {
                put_buffer(out, path.as_bytes());
                out.put_u8(u8::from(watch));
            }
            Self::SetData { path, data } => {
                put_buffer(out, path.as_bytes());
                put_buffer(out, data);
                out.put_i32(-1);
            }
            Self::GetChildren { path } | Self::GetChildren2 { path } => {
                put_buffer(out, path.as_bytes());
                out.put_u8(0);
            }
            Self::Sync { path } => put_buffer(out, path.as_bytes()),
            Self::Ping | Self::CloseSession => {}
        }
    }
}

/// Appends a `ConnectRequest` for a new session.
pub(crate) fn put_connect(timeout_ms: i32, out: &mut BytesMut) {
    put_frame(out, |out| {
        out.put_i32(0);
        out.put_i64(0);
        out.put_i32(timeout_ms);
        out.put_i64(0);
        put_buffer(out, &[0; 16]);
        out.put_u8(0);
    });
}

fn put_frame(out: &mut BytesMut, body: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_i32(0);
    body(out);
    let length = i32::try_from(out.len() - start - 4).expect("our own frames are small");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn put_buffer(out: &mut BytesMut, bytes: &[u8]) {
    out.put_i32(i32::try_from(bytes.len()).expect("our own paths and data are small"));
    out.put_slice(bytes);
}

/// Takes the next whole frame's body off `incoming`, if it is there.
pub(crate) fn take_frame(incoming: &mut BytesMut) -> Result<Option<Bytes>> {
    let Some(head) = incoming.first_chunk::<4>() else { return Ok(None) };
    let length = i32::from_be_bytes(*head);
    let length = usize::try_from(length).ok().filter(|length| *length <= FRAME_BYTES_MAX);
    let length = length.context("absurd frame length")?;
    if incoming.len() < 4 + length {
        return Ok(None);
    }
    incoming.advance(4);
    Ok(Some(incoming.split_to(length).freeze()))
}

/// The answer to a `ConnectRequest`.
#[derive(Debug)]
pub(crate) struct Connected {
    /// The negotiated timeout.
    pub(crate) timeout_ms: i32,
}

impl Connected {
    /// Reads a `ConnectResponse` and refuses one that grants no session.
    pub(crate) fn read(body: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(body);
        reader.i32()?;
        let timeout_ms = reader.i32()?;
        let session = reader.i64()?;
        let password = reader.buffer()?.context("null password")?;
        let read_only = reader.u8()?;
        reader.end()?;
        ensure!(timeout_ms > 0 && session != 0, "no session was granted");
        ensure!(password.len() == 16, "password of {} bytes", password.len());
        ensure!(read_only == 0, "the server is read-only");
        Ok(Self { timeout_ms })
    }
}

/// What comes from the server after the handshake.
#[derive(Debug)]
pub(crate) enum Message {
    /// The answer to a request.
    Reply(Reply),
    /// A watch has fired on this path.
    Event { path: String },
}

/// The answer to a request, its body not yet read.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The request's number.
    pub(crate) xid: i32,
    /// As of which transaction it was answered.
    pub(crate) zxid: i64,
    /// ZooKeeper's error code, 0 for success.
    pub(crate) err: i32,
    /// The response record.
    pub(crate) body: Bytes,
}

impl Message {
    /// Reads the body of a frame.
    pub(crate) fn read(mut frame: Bytes) -> Result<Self> {
        ensure!(frame.len() >= 16, "a reply of {} bytes has no header", frame.len());
        let (xid, zxid, err) = (frame.get_i32(), frame.get_i64(), frame.get_i32());
        if xid != XID_NOTIFICATION {
            return Ok(Self::Reply(Reply { xid, zxid, err, body: frame }));
        }
        let mut reader = Reader::new(&frame);
        reader.i32()?;
        let state = reader.i32()?;
        let path = reader.string()?;
        reader.end()?;
        ensure!(state == 3, "a notification with state {state}");
        Ok(Self::Event { path })
    }
}

/// The fields of a `Stat` that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// How often the data was set.
    pub(crate) version: i32,
    /// Bytes of data.
    pub(crate) data_bytes: i32,
    /// Direct children.
    pub(crate) children: i32,
}

/// Reads jute's primitive types off a response record.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// A `Stat`.
    pub(crate) fn stat(&mut self) -> Result<Stat> {
        self.take(32)?;
        let version = self.i32()?;
        self.take(16)?;
        let data_bytes = self.i32()?;
        let children = self.i32()?;
        self.take(8)?;
        Ok(Stat { version, data_bytes, children })
    }

    /// A buffer, `None` for the null one.
    pub(crate) fn buffer(&mut self) -> Result<Option<&'a [u8]>> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).context("negative length")?;
                self.take(length).map(Some)
            }
        }
    }

    /// A string that is not null.
    pub(crate) fn string(&mut self) -> Result<String> {
        let bytes = self.buffer()?.context("null string")?;
        Ok(String::from_utf8(bytes.to_vec())?)
    }

    /// A list of strings.
    pub(crate) fn strings(&mut self) -> Result<Vec<String>> {
        let count = self.i32()?;
        (0..count).map(|_| self.string()).collect()
    }

    /// How many strings a list holds, each checked to start with `prefix`.
    pub(crate) fn count_strings(&mut self, prefix: &str) -> Result<i32> {
        let count = self.i32()?;
        for _ in 0..count {
            let name = self.buffer()?.context("null string")?;
            ensure!(name.starts_with(prefix.as_bytes()), "a name that nobody created");
        }
        Ok(count)
    }

    /// Refuses a record with bytes left over.
    pub(crate) fn end(&self) -> Result<()> {
        ensure!(self.rest.is_empty(), "{} bytes after the end of the record", self.rest.len());
        Ok(())
    }

    fn u8(&mut self) -> Result<u8> {
        self.take(1).map(|mut bytes| bytes.get_u8())
    }

    fn i32(&mut self) -> Result<i32> {
        self.take(4).map(|mut bytes| bytes.get_i32())
    }

    fn i64(&mut self) -> Result<i64> {
        self.take(8).map(|mut bytes| bytes.get_i64())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            bail!("the record ends {} bytes early", count - self.rest.len());
        };
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_request_has_forty_five_bytes() {
        let mut out = BytesMut::new();
        put_connect(30_000, &mut out);
        assert_eq!(out.len(), 4 + 45);
        assert_eq!(out.first_chunk(), Some(&45_i32.to_be_bytes()));
    }

    #[test]
    fn get_data_request_is_as_captured() {
        let mut out = BytesMut::new();
        Op::GetData { path: "/a", watch: true }.put(7, &mut out);
        let expected = [0, 0, 0, 15, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 2, b'/', b'a', 1];
        assert_eq!(&out[..], &expected);
    }

    #[test]
    fn half_a_frame_waits_and_an_absurd_one_is_refused() {
        let mut incoming = BytesMut::from(&[0, 0, 0, 2, 9][..]);
        assert_eq!(take_frame(&mut incoming).expect("sane length"), None);
        incoming.put_u8(8);
        let frame = take_frame(&mut incoming).expect("sane length");
        assert_eq!(frame, Some(Bytes::from_static(&[9, 8])));
        assert!(take_frame(&mut BytesMut::from(&[255; 8][..])).is_err());
    }

    #[test]
    fn stat_is_read_from_its_sixty_eight_bytes() {
        let mut body = vec![0; 68];
        (body[35], body[55], body[59]) = (5, 100, 2);
        let mut reader = Reader::new(&body);
        let stat = reader.stat().expect("long enough");
        assert_eq!(stat, Stat { version: 5, data_bytes: 100, children: 2 });
        assert!(reader.end().is_ok());
        assert!(Reader::new(&body[..67]).stat().is_err());
    }
}
