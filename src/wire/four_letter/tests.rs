//! The texts against answers recorded from a ZooKeeper 3.9.5.

use super::dump::{Bucket, dump};
use super::monitor::{Monitor, mntr};
use super::*;

const VERSION: &str =
    "3.9.5-293c895a8d966a3ecb92872be4a1daf87d725da2, built on 2026-02-11 20:18 UTC";

fn server() -> Server {
    Server {
        version: VERSION.to_owned(),
        latency: Latency { min_ms: 0, max_ms: 212, total_ms: 961, count: 338 },
        received: 354,
        sent: 355,
        connections: 3,
        outstanding: 0,
        zxid: Zxid(0x140),
        mode: "standalone",
        znodes: 32,
    }
}

fn peer(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn connections() -> Vec<Connection> {
    let asking = Connection {
        peer: peer(33656),
        interest: 0,
        queued: 0,
        received: 1,
        sent: 0,
        session: None,
    };
    let session = ConnectionSession {
        session: SessionId(0x0100_0009_7565_0036),
        last_operation: "PING",
        established_unix_ms: 1_795_986_608_238,
        timeout_ms: 10_000,
        last_xid: Some(0x3b),
        last_zxid: Zxid(0x140),
        last_response_ms: 1_419_833,
        last_latency_ms: 0,
        latency: Latency { min_ms: 0, max_ms: 5, total_ms: 61, count: 61 },
    };
    let serving = Connection {
        peer: peer(33630),
        interest: 1,
        queued: 0,
        received: 61,
        sent: 62,
        session: Some(session),
    };
    vec![asking, serving]
}

#[test]
fn srvr_is_laid_out_as_recorded() {
    let expected = format!(
        "Zookeeper version: {VERSION}\n\
         Latency min/avg/max: 0/2.8432/212\n\
         Received: 354\n\
         Sent: 355\n\
         Connections: 3\n\
         Outstanding: 0\n\
         Zxid: 0x140\n\
         Mode: standalone\n\
         Node count: 33\n"
    );
    assert_eq!(srvr(&server()), expected);
}

#[test]
fn stat_has_the_connections_in_brief_between_version_and_figures() {
    let expected = format!(
        "Zookeeper version: {VERSION}\n\
         Clients:\n \
         /127.0.0.1:33656[0](queued=0,recved=1,sent=0)\n \
         /127.0.0.1:33630[1](queued=0,recved=61,sent=62)\n\
         \n\
         Latency min/avg/max: 0/2.8432/212\n"
    );
    let text = stat(&server(), &connections());
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.ends_with("Mode: standalone\nNode count: 33\n"), "{text}");
}

#[test]
fn cons_is_laid_out_as_recorded() {
    let expected = " /127.0.0.1:33656[0](queued=0,recved=1,sent=0)\n \
        /127.0.0.1:33630[1](queued=0,recved=61,sent=62,sid=0x100000975650036,lop=PING,\
        est=1795986608238,to=10000,lcxid=0x3b,lzxid=0x140,lresp=1419833,llat=0,minlat=0,\
        avglat=1,maxlat=5)\n\n";
    assert_eq!(cons(&connections()), expected);
}

#[test]
fn addresses_stand_as_java_prints_them() {
    let shown = |text: &str| JavaAddress(text.parse().expect("an address")).to_string();
    assert_eq!(shown("[::1]:2181"), "/[0:0:0:0:0:0:0:1]:2181");
    assert_eq!(shown("[fe80::a0]:1"), "/[fe80:0:0:0:0:0:0:a0]:1");
    assert_eq!(shown("[::ffff:10.0.0.7]:1"), "/10.0.0.7:1");
}

#[test]
fn a_mean_has_one_to_four_decimals() {
    let mean = |total_ms, count| Latency { total_ms, count, ..Latency::default() }.mean();
    assert_eq!(mean(0, 0), "0.0");
    assert_eq!(mean(0, 9), "0.0");
    assert_eq!(mean(903, 8), "112.875");
    assert_eq!(mean(22, 350), "0.0629");
    assert_eq!(mean(2, 1), "2.0");
}

#[test]
fn conf_has_the_recorded_keys_in_order() {
    let configuration = Configuration {
        client_port: 23181,
        data_dir: "/data/version-2".to_owned(),
        data_bytes: 67_111_729,
        tick_ms: 2000,
        connections_per_address_max: 60,
        session_timeout_min_ms: 4000,
        session_timeout_max_ms: 40_000,
    };
    let expected = "clientPort=23181\nsecureClientPort=-1\ndataDir=/data/version-2\n\
        dataDirSize=67111729\ndataLogDir=/data/version-2\ndataLogSize=67111729\n\
        tickTime=2000\nmaxClientCnxns=60\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n\
        clientPortListenBacklog=-1\nserverId=0\n";
    assert_eq!(conf(&configuration), expected);
}

#[test]
fn dump_is_laid_out_as_recorded() {
    let (first, second) = (SessionId(0x0100_0009_7565_0036), SessionId(0x0100_0009_7565_0037));
    let sessions = Bucket::sorted(vec![(1_795_986_629_000, second), (1_795_986_621_000, first)]);
    let workers = ["/app/workers/w-0000000004", "/app/workers/w-0000000005"];
    let ephemerals =
        [(first, workers.map(str::to_owned).to_vec()), (second, vec!["/app/lock".to_owned()])];
    let connections = Bucket::sorted(vec![
        (1_795_986_621_000, (peer(33630), first)),
        (1_795_986_631_000, (peer(33678), SessionId(0))),
        (1_795_986_631_000, (peer(33640), second)),
    ]);
    let expected = "SessionTracker dump:\n\
        Session Sets (2)/(2):\n\
        1 expire at Sun Nov 29 21:10:21 UTC 2026:\n\
        \t0x100000975650036\n\
        1 expire at Sun Nov 29 21:10:29 UTC 2026:\n\
        \t0x100000975650037\n\
        ephemeral nodes dump:\n\
        Sessions with Ephemerals (2):\n\
        0x100000975650036:\n\
        \t/app/workers/w-0000000004\n\
        \t/app/workers/w-0000000005\n\
        0x100000975650037:\n\
        \t/app/lock\n\
        Connections dump:\n\
        Connections Sets (2)/(3):\n\
        1 expire at Sun Nov 29 21:10:21 UTC 2026:\n\
        \tip: /127.0.0.1:33630 sessionId: 0x100000975650036\n\
        2 expire at Sun Nov 29 21:10:31 UTC 2026:\n\
        \tip: /127.0.0.1:33678 sessionId: 0x0\n\
        \tip: /127.0.0.1:33640 sessionId: 0x100000975650037\n";
    assert_eq!(dump(&sessions, &ephemerals, &connections), expected);
}

#[test]
fn watches_are_shown_by_session_and_by_path() {
    let watches = [
        (SessionId(0x36), "/app/config".into()),
        (SessionId(0x36), "/app/nothere".into()),
        (SessionId(0x37), "/app/config".into()),
    ];
    let by_session = "0x36\n\t/app/config\n\t/app/nothere\n0x37\n\t/app/config\n\n";
    assert_eq!(wchc(&watches), by_session);
    let by_path = "/app/config\n\t0x36\n\t0x37\n/app/nothere\n\t0x36\n\n";
    assert_eq!(wchp(&watches), by_path);
    assert_eq!(wchs(2, 2, 3), "2 connections watching 2 paths\nTotal watches:3\n");
    assert_eq!((wchc(&[]), wchp(&[])), ("\n".to_owned(), "\n".to_owned()));
}

#[test]
fn every_line_of_mntr_is_a_key_one_tab_and_a_value() {
    let text = mntr(&Monitor { server: server(), ..Monitor::default() });
    assert!(text.starts_with(&format!("zk_version\t{VERSION}\nzk_server_state\tstandalone\n")));
    assert!(text.ends_with('\n'));
    let mut keys = std::collections::BTreeSet::new();
    for line in text.lines() {
        let (key, value) = line.split_once('\t').expect("a tab");
        assert!(key.starts_with("zk_") && !key.contains(char::is_whitespace), "{line}");
        assert!(!value.is_empty() && !value.contains('\t'), "{line}");
        assert!(keys.insert(key), "{key} stands twice");
    }
}

#[test]
fn mntr_has_what_agents_read() {
    let text = mntr(&Monitor {
        server: server(),
        ephemerals: 4,
        watches: 5,
        approximate_data_size: 331,
        sessions: 2,
        uptime_ms: 802_030,
        open_files: Some(65),
        open_files_max: Some(20_000),
        ..Monitor::default()
    });
    let expected = [
        "zk_avg_latency\t2.8432",
        "zk_max_latency\t212",
        "zk_min_latency\t0",
        "zk_packets_received\t354",
        "zk_packets_sent\t355",
        "zk_num_alive_connections\t3",
        "zk_outstanding_requests\t0",
        "zk_znode_count\t33",
        "zk_watch_count\t5",
        "zk_ephemerals_count\t4",
        "zk_approximate_data_size\t331",
        "zk_open_file_descriptor_count\t65",
        "zk_max_file_descriptor_count\t20000",
        "zk_uptime\t802030",
        "zk_global_sessions\t2",
    ];
    for line in expected {
        assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
    }
}

#[test]
fn a_word_is_known_by_its_four_bytes() {
    assert_eq!(Word::parse(*b"ruok"), Some(Word::Ruok));
    assert_eq!(Word::parse([0xff, 0xf4, 0xff, 0xfd]), Some(Word::TelnetClose));
    assert_eq!(Word::parse(*b"zzzz"), None);
    assert_eq!(Word::parse([0, 0, 0, 45]), None);
    assert_eq!(Word::ALL.len(), 19);
}

#[test]
fn only_srvr_is_allowed_unless_the_list_says_more() {
    let allowed = |list| {
        let list = AllowList::parse(list).expect("a good list");
        Word::ALL.iter().filter(|word| list.allows(**word)).count()
    };
    assert_eq!(allowed(""), 1);
    assert_eq!(allowed(" ruok , mntr,"), 3);
    assert_eq!(allowed("*"), Word::ALL.len());
    assert_eq!(AllowList::parse("ruok, rouk"), Err(UnknownWord("rouk".to_owned())));
    assert_eq!(
        not_allowed(Word::Stat),
        "stat is not executed because it is not in the whitelist.\n"
    );
}

#[test]
fn a_server_that_does_not_serve_says_so_in_each_words_own_way() {
    let line = "This ZooKeeper instance is not currently serving requests";
    assert_eq!(not_serving(Word::Srvr), Some(format!("{line}\n")));
    assert_eq!(not_serving(Word::Hash), Some(line.to_owned()));
    assert_eq!(not_serving(Word::Isro), Some("null".to_owned()));
    for word in [Word::Ruok, Word::Envi, Word::Gtmk, Word::Stmk] {
        assert_eq!(not_serving(word), None);
    }
}
