//! What the codec costs: the records of the commonest requests and answers, both ways.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::Criterion;
use jute::{
    Acl, CreateRequest, GetChildrenResponse, GetDataRequest, GetDataResponse, Id, Input, Record,
    Stat, Text,
};

fn stat() -> Stat {
    Stat {
        czxid: 1,
        mzxid: 2,
        ctime: 3,
        mtime: 4,
        version: 5,
        cversion: 6,
        aversion: 7,
        ephemeral_owner: 8,
        data_length: 100,
        num_children: 9,
        pzxid: 10,
    }
}

fn both_ways<T: Record + std::fmt::Debug>(criterion: &mut Criterion, record: &T) {
    let mut out = BytesMut::new();
    record.encode(&mut out);
    let frame = out.clone().freeze();
    criterion.bench_function(&format!("encode {}", T::NAME), |bencher| {
        bencher.iter(|| {
            out.clear();
            black_box(record).encode(&mut out);
            out.len()
        });
    });
    criterion.bench_function(&format!("decode {}", T::NAME), |bencher| {
        bencher
            .iter(|| T::decode(&mut Input::new(black_box(&frame))).expect("it was encoded by us"));
    });
}

fn records(criterion: &mut Criterion) {
    let path = || Some(Text::from("/kyuubi/servers/server-0000000001".to_owned()));
    let data = Some(Bytes::from_static(&[b'z'; 100]));
    both_ways(criterion, &GetDataRequest { path: path(), watch: false });
    both_ways(criterion, &GetDataResponse { data: data.clone(), stat: stat() });
    let id = Id { scheme: Some("world".to_owned().into()), id: Some("anyone".to_owned().into()) };
    let acl = Some(vec![Acl { perms: 31, id }]);
    both_ways(criterion, &CreateRequest { path: path(), data, acl, flags: 0 });
    let children = (0..100).map(|number| Some(Text::from(format!("child-{number:010}"))));
    both_ways(criterion, &GetChildrenResponse { children: Some(children.collect()) });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    records(&mut criterion);
    criterion.final_summary();
}
