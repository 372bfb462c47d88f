//! What a request costs between the socket's bytes and the core, and its answer on the way back.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput};
use jute::primitives::MAXBUFFER_DEFAULT;
use jute::{Stat, Value};
use zkshim::keeper::request::{Body, Data, Event, EventKind, Outgoing, Reply, Xid};
use zkshim::keeper::tree::open_acl;
use zkshim::keeper::zxid::Zxid;
use zkshim::wire::decode::decode_request;
use zkshim::wire::encode::encode;
use zkshim::wire::frame::Splitter;

const FRAMES: usize = 64;

/// A create with the open ACL, as a client sends it.
fn create() -> Bytes {
    let record = jute::CreateRequest {
        path: Some("/parent/child".to_owned().into()),
        data: Some(Bytes::from_static(&[b'z'; 100])),
        acl: Some(open_acl()),
        flags: 0,
    };
    let mut out = BytesMut::new();
    jute::RequestHeader { xid: 1, type_: 1 }.encode(&mut out);
    record.encode(&mut out);
    out.freeze()
}

/// A getData, as a client sends it.
fn request(xid: i32) -> Bytes {
    let mut out = BytesMut::new();
    let record =
        jute::GetDataRequest { path: Some("/parent/child".to_owned().into()), watch: false };
    jute::RequestHeader { xid, type_: 4 }.encode(&mut out);
    record.encode(&mut out);
    out.freeze()
}

fn splitting(criterion: &mut Criterion) {
    let mut stream = BytesMut::new();
    for xid in 0..FRAMES {
        let body = request(xid as i32);
        stream.extend_from_slice(&(body.len() as i32).to_be_bytes());
        stream.extend_from_slice(&body);
    }
    let mut group = criterion.benchmark_group("frames");
    group.throughput(Throughput::Elements(FRAMES as u64));
    group.bench_function("split 64", |bencher| {
        let mut splitter = Splitter::new(MAXBUFFER_DEFAULT);
        let split = |mut stream: BytesMut| {
            let mut frames = 0;
            while let Ok(Some(frame)) = splitter.next_frame(&mut stream) {
                black_box(frame);
                frames += 1;
            }
            assert_eq!(frames, FRAMES);
        };
        bencher.iter_batched(|| stream.clone(), split, BatchSize::SmallInput);
    });
    group.finish();
}

fn both_ways(criterion: &mut Criterion) {
    let frame = request(1);
    criterion.bench_function("wire: decode getData", |bencher| {
        bencher.iter(|| decode_request(black_box(&frame)).expect("it is well formed"));
    });
    let frame = create();
    criterion.bench_function("wire: decode create", |bencher| {
        bencher.iter(|| decode_request(black_box(&frame)).expect("it is well formed"));
    });
    let body = Body::Data(Some(Data::from(&[b'z'; 100][..])), Stat::default());
    let reply = Outgoing::Reply(Reply { xid: Xid(1), zxid: Zxid(2), outcome: Ok(body) });
    let mut out = BytesMut::new();
    criterion.bench_function("wire: encode the answer to getData", |bencher| {
        bencher.iter(|| {
            out.clear();
            encode(black_box(&reply), true, &mut out);
            out.len()
        });
    });
    let (kind, path) = (EventKind::NodeDataChanged, "/parent/child".to_owned().into());
    let event = Outgoing::Event(Event { kind, path, zxid: Zxid(2) });
    criterion.bench_function("wire: encode an event", |bencher| {
        bencher.iter(|| {
            out.clear();
            encode(black_box(&event), true, &mut out);
            out.len()
        });
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    splitting(&mut criterion);
    both_ways(&mut criterion);
    criterion.final_summary();
}
