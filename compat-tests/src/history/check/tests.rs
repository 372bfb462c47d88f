//! Small histories by hand, known to be right or wrong.

use super::*;
use crate::conformance::wire::{code, event};
use crate::history::record::{Answer, Entry, Log, Mode, Stat};

const MS: u64 = 1_000_000;

/// One client's log, in the making.
#[derive(Default)]
struct Script {
    log: Log,
    session: i64,
    xid: i32,
}

impl Script {
    fn new(session: i64) -> Self {
        let mut script = Self { session, ..Self::default() };
        script.opens(1, false);
        script
    }

    fn note(&mut self, at: u64, what: What) {
        self.log.entries.push(Entry { at: at * MS, what });
    }

    fn opens(&mut self, at: u64, resumed: bool) {
        let (session, timeout_ms, server, asked) = (self.session, 4000, 0, at * MS);
        self.xid = 0;
        self.note(at, What::Opened { session, timeout_ms, server, resumed, asked });
    }

    fn sends(&mut self, at: u64, request: Request) {
        self.xid += 1;
        let xid = self.xid;
        self.note(at, What::Sent { xid, request });
    }

    fn gets(&mut self, at: u64, zxid: i64, answer: Answer) {
        let xid = self.xid;
        self.note(at, What::Answered { xid, zxid, answer });
    }

    /// One request and its answer.
    fn asks(&mut self, sent: u64, request: Request, answered: u64, zxid: i64, answer: Answer) {
        self.sends(sent, request);
        self.gets(answered, zxid, answer);
    }

    fn cut(&mut self, at: u64) {
        self.note(at, What::Cut { reason: "a test".to_owned() });
    }

    /// A read behind a sync, in one pipeline.
    fn reads(&mut self, sent: u64, answered: u64, zxid: i64, answer: Answer) {
        self.sends(sent, Request::Sync { path: "/r".to_owned() });
        self.sends(sent, Request::Get { path: "/r".to_owned(), watch: false });
        self.xid -= 1;
        self.gets(answered, zxid, Answer::Done);
        self.xid += 1;
        self.gets(answered, zxid, answer);
    }
}

fn create() -> Request {
    Request::Create { path: "/r".to_owned(), data: "new".to_owned(), mode: Mode::Plain }
}

fn set(data: &str, version: i32) -> Request {
    Request::Set { path: "/r".to_owned(), data: data.to_owned(), version }
}

/// `/r` with zxid 1 at its birth.
fn stat(version: i32, mzxid: i64) -> Stat {
    Stat { czxid: 1, mzxid, version, ..Stat::default() }
}

fn data(text: &str, version: i32, mzxid: i64) -> Answer {
    Answer::Data(text.to_owned(), stat(version, mzxid))
}

/// A client that has created `/r` with zxid 1.
fn creator() -> Script {
    let mut one = Script::new(7);
    one.asks(2, create(), 3, 1, Answer::Path("/r".to_owned()));
    one
}

fn broken(scripts: Vec<Script>) -> Vec<&'static str> {
    let logs = scripts.into_iter().map(|script| script.log).collect();
    let verdict = check(&History { logs, ..History::default() });
    let mut rules: Vec<&'static str> = verdict.violations.iter().map(|found| found.rule).collect();
    rules.dedup();
    rules
}

#[test]
fn a_plain_history_is_right() {
    let mut one = creator();
    one.asks(10, set("a", -1), 20, 2, Answer::Stat(stat(1, 2)));
    one.asks(30, set("b", 0), 40, 3, Answer::Error(code::BAD_VERSION));
    one.reads(50, 60, 3, data("a", 1, 2));
    assert_eq!(broken(vec![one]), [""; 0]);
}

#[test]
fn a_stale_read_is_noticed_behind_a_sync_and_allowed_without() {
    let writer = || {
        let mut one = creator();
        one.asks(10, set("a", -1), 20, 2, Answer::Stat(stat(1, 2)));
        one
    };
    let mut two = Script::new(8);
    two.reads(30, 40, 1, data("new", 0, 1));
    assert_eq!(broken(vec![writer(), two]), ["linearizability", "order in real time"]);

    let mut two = Script::new(8);
    let get = Request::Get { path: "/r".to_owned(), watch: false };
    two.asks(30, get, 40, 1, data("new", 0, 1));
    assert_eq!(broken(vec![writer(), two]), [""; 0]);
}

#[test]
fn a_lost_update_is_noticed() {
    let mut one = creator();
    let mut two = Script::new(8);
    one.asks(10, set("a", 0), 20, 2, Answer::Stat(stat(1, 2)));
    two.asks(11, set("b", 0), 21, 3, Answer::Stat(stat(1, 3)));
    assert_eq!(broken(vec![one, two]), ["linearizability", "Stat"]);
}

/// A setData that is cut off; its session is served again, and then `/r` is read.
fn cut_off(version: i32, mzxid: i64, late: Option<(i32, i64)>) -> Vec<&'static str> {
    let mut one = creator();
    one.sends(10, set("a", -1));
    one.cut(20);
    one.opens(30, true);
    let text = if version == 0 { "new" } else { "a" };
    one.asks(40, create(), 50, 5, Answer::Error(code::NODE_EXISTS));
    one.reads(60, 70, 5, data(text, version, mzxid));
    if let Some((version, mzxid)) = late {
        one.reads(80, 90, 9, data("a", version, mzxid));
    }
    broken(vec![one])
}

#[test]
fn a_write_that_was_cut_off_is_done_once_or_never() {
    assert_eq!(cut_off(0, 1, None), [""; 0]);
    assert_eq!(cut_off(1, 4, None), [""; 0]);
    assert_eq!(cut_off(1, 4, Some((1, 4))), [""; 0]);
    // Twice, at once or one after the other.
    assert_eq!(cut_off(2, 4, None), ["linearizability"]);
    assert!(cut_off(1, 4, Some((2, 8))).contains(&"linearizability"));
    // After its session was served on another connection.
    assert_eq!(cut_off(0, 1, Some((1, 8))), ["linearizability"]);
}

#[test]
fn a_failure_in_the_wrong_place_is_noticed() {
    let fails_at = |sent| {
        let mut one = creator();
        let mut two = Script::new(8);
        one.asks(10, set("a", -1), 20, 2, Answer::Stat(stat(1, 2)));
        two.asks(sent, set("b", 0), 40, 2, Answer::Error(code::BAD_VERSION));
        one.asks(50, set("c", 1), 60, 3, Answer::Stat(stat(2, 3)));
        two.asks(70, set("d", 2), 80, 3, Answer::Error(code::BAD_VERSION));
        broken(vec![one, two])
    };
    assert_eq!(fails_at(30), ["linearizability"]);
    // NoNode of a znode that is there.
    let mut one = creator();
    let delete = Request::Delete { path: "/r".to_owned(), version: -1 };
    one.asks(10, delete, 20, 1, Answer::Error(code::NO_NODE));
    assert_eq!(broken(vec![one]), ["linearizability"]);
}

#[test]
fn half_of_a_multi_is_noticed() {
    let mut one = creator();
    let steps = vec![set("a", 0), Request::Delete { path: "/q".to_owned(), version: -1 }];
    let failed = vec![Answer::Error(0), Answer::Error(code::NO_NODE)];
    one.asks(10, Request::Multi(steps), 20, 2, Answer::Results(failed));
    one.reads(30, 40, 2, data("a", 1, 2));
    assert_eq!(broken(vec![one]), ["linearizability"]);
}

#[test]
fn an_ephemeral_that_outlives_its_session_is_noticed_and_so_is_one_that_goes_early() {
    let mut one = Script::new(7);
    let create =
        Request::Create { path: "/r".to_owned(), data: "new".to_owned(), mode: Mode::Ephemeral };
    one.asks(2, create, 3, 1, Answer::Path("/r".to_owned()));
    let own = Answer::Data("new".to_owned(), Stat { owner: 7, ..stat(0, 1) });
    let reader = |at, answer: Answer| {
        let mut two = Script::new(8);
        two.reads(at, at + 1, 2, answer);
        two
    };
    let log = one.log.clone();
    let alive = || Script { log: log.clone(), session: 7, xid: 1 };
    let closed = || {
        let mut one = alive();
        one.asks(10, Request::Close, 20, 2, Answer::Done);
        one
    };
    let gone = Answer::Error(code::NO_NODE);
    assert_eq!(broken(vec![closed(), reader(30, gone.clone())]), [""; 0]);
    assert_eq!(broken(vec![closed(), reader(30, own.clone())]), ["linearizability"]);
    assert_eq!(broken(vec![alive(), reader(3000, own)]), [""; 0]);
    assert_eq!(broken(vec![alive(), reader(3000, gone.clone())]), ["linearizability"]);
    // Its client has been silent for longer than the timeout.
    assert_eq!(broken(vec![alive(), reader(4100, gone)]), [""; 0]);
}

#[test]
fn a_number_that_is_given_twice_and_one_that_comes_too_late_are_noticed() {
    let make = |name: &str, data: &str| {
        let mode = Mode::Sequential;
        let request = Request::Create { path: "/s/n-".to_owned(), data: data.to_owned(), mode };
        (request, Answer::Path(format!("/s/n-{name}")))
    };
    let two_of = |first: &str, second: &str| {
        let (mut one, mut two) = (Script::new(7), Script::new(8));
        let (request, answer) = make(first, "a");
        one.asks(10, request, 20, 1, answer);
        let (request, answer) = make(second, "b");
        two.asks(30, request, 40, 2, answer);
        broken(vec![one, two])
    };
    assert_eq!(two_of("0000000000", "0000000001"), [""; 0]);
    assert!(two_of("0000000000", "0000000000").contains(&"sequence"));
    assert_eq!(two_of("0000000001", "0000000000"), ["sequence"]);
    assert_eq!(two_of("0000000000", "0000000002"), ["sequence"]);
}

#[test]
fn a_znode_whose_name_was_not_told_may_be_listed_until_it_is_deleted() {
    let mut one = Script::new(7);
    let (path, data) = ("/s/n-".to_owned(), "a".to_owned());
    one.sends(10, Request::Create { path, data, mode: Mode::Sequential });
    one.cut(20);
    one.opens(30, true);
    let list = || Request::Children { path: "/s".to_owned(), watch: false };
    let listed = |names: &[&str], children| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Answer::Children(names, Stat { children, ..Stat::default() })
    };
    one.asks(40, list(), 50, 2, listed(&["n-0000000000"], 1));
    let delete = Request::Delete { path: "/s/n-0000000000".to_owned(), version: -1 };
    one.asks(60, delete, 70, 3, Answer::Done);
    one.asks(80, list(), 90, 3, listed(&[], 0));
    assert_eq!(broken(vec![one]), [""; 0]);
}

#[test]
fn an_ephemeral_whose_name_was_not_told_may_go_after_it_was_read() {
    let mut one = Script::new(7);
    let (path, data) = ("/s/n-".to_owned(), "a".to_owned());
    one.sends(10, Request::Create { path, data, mode: Mode::EphemeralSequential });
    one.cut(20);
    let mut two = Script::new(8);
    let path = || "/s/n-0000000000".to_owned();
    let born = Answer::Stat(Stat { owner: 7, ..stat(0, 1) });
    two.asks(40, Request::Exists { path: path(), watch: true }, 50, 1, born);
    two.note(5000, What::Event { kind: event::DELETED, path: path(), zxid: 2 });
    let list = Request::Children { path: "/s".to_owned(), watch: false };
    two.asks(5100, list, 5200, 2, Answer::Children(Vec::new(), Stat::default()));
    assert_eq!(broken(vec![one, two]), [""; 0]);
}

#[test]
fn a_lock_with_two_holders_is_noticed() {
    let holder = |session, from, until| {
        let mut one = Script::new(session);
        one.sends(from - 1, Request::Sync { path: "/".to_owned() });
        one.gets(from, 1, Answer::Done);
        one.note(from, What::Taken { lock: "/l".to_owned() });
        one.note(until, What::Given { lock: "/l".to_owned() });
        one
    };
    assert_eq!(broken(vec![holder(7, 10, 20), holder(8, 21, 30)]), [""; 0]);
    assert_eq!(broken(vec![holder(7, 10, 20), holder(8, 19, 30)]), ["locks"]);
    // Nobody may believe to hold it for longer than its session lives without a word.
    assert_eq!(broken(vec![holder(7, 10, 9000), holder(8, 4010, 4020)]), [""; 0]);
    assert_eq!(broken(vec![holder(7, 10, 9000), holder(8, 4000, 4020)]), ["locks"]);
}

#[test]
fn a_session_that_is_refused_while_its_client_talks_is_noticed() {
    let refused = |at| {
        let mut one = creator();
        one.cut(10);
        one.note(at, What::Refused);
        broken(vec![one])
    };
    assert_eq!(refused(4100), [""; 0]);
    assert_eq!(refused(3900), ["sessions"]);
}

#[test]
fn a_session_that_was_closed_and_is_served_again_is_noticed() {
    let mut one = creator();
    one.asks(10, Request::Close, 20, 2, Answer::Done);
    one.cut(30);
    let log = one.log.clone();
    one.note(40, What::Refused);
    assert_eq!(broken(vec![one]), [""; 0]);
    let mut one = Script { log, session: 7, xid: 0 };
    one.opens(40, true);
    assert_eq!(broken(vec![one]), ["sessions"]);
}

/// A watch on `/r` is armed, `/r` changes with zxid 2, and these events come around the answer
/// that shows it.
fn watched(before: &[i64], after: &[i64]) -> Vec<&'static str> {
    let mut one = creator();
    let mut two = Script::new(8);
    let get = |watch| Request::Get { path: "/r".to_owned(), watch };
    two.asks(5, get(true), 6, 1, data("new", 0, 1));
    one.asks(10, set("a", -1), 20, 2, Answer::Stat(stat(1, 2)));
    let event =
        |zxid: &i64| What::Event { kind: event::DATA_CHANGED, path: "/r".to_owned(), zxid: *zxid };
    before.iter().for_each(|zxid| two.note(25, event(zxid)));
    two.asks(30, get(false), 40, 2, data("a", 1, 2));
    after.iter().for_each(|zxid| two.note(45, event(zxid)));
    broken(vec![one, two])
}

#[test]
fn an_event_that_is_lost_doubled_late_or_made_up_is_noticed() {
    assert_eq!(watched(&[2], &[]), [""; 0]);
    assert_eq!(watched(&[], &[]), ["watches"]);
    assert_eq!(watched(&[2, 2], &[]), ["watches"]);
    assert_eq!(watched(&[], &[2]), ["order of zxids", "watches"]);
    assert!(watched(&[1], &[]).contains(&"watches"));
}

#[test]
fn what_a_set_watches_owes_is_noticed() {
    let handed_over = |seen, events: &[i64]| {
        let mut one = creator();
        one.asks(10, set("a", -1), 20, 2, Answer::Stat(stat(1, 2)));
        let mut two = Script::new(8);
        let (data, none) = (vec!["/r".to_owned()], Vec::new());
        two.sends(30, Request::SetWatches { zxid: seen, data, exist: none.clone(), child: none });
        for zxid in events {
            let (kind, path) = (event::DATA_CHANGED, "/r".to_owned());
            two.note(35, What::Event { kind, path, zxid: *zxid });
        }
        two.gets(40, 2, Answer::Done);
        broken(vec![one, two])
    };
    assert_eq!(handed_over(1, &[-1]), [""; 0]);
    assert_eq!(handed_over(2, &[]), [""; 0]);
    assert_eq!(handed_over(1, &[]), ["watches"]);
    assert_eq!(handed_over(1, &[-1, -1]), ["watches"]);
    assert_eq!(handed_over(2, &[-1]), ["watches"]);
}
