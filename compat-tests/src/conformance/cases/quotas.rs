//! Section 10.8, second part: quotas; and W37, the watch on a quota's statistics.

use anyhow::{Context as _, Result};

use crate::conformance::case::{Case, Profile, case};
use crate::conformance::client::Client;
use crate::conformance::context::Context;
use crate::conformance::expect::{expect_eq, expect_one_of};
use crate::conformance::multi::{Operation, Outcome, outcomes};
use crate::conformance::wire::{code, open_acl};

/// The cases of this part.
pub const CASES: &[Case] = &[
    case("Q1", "creating the statistics counts the subtree", statistics_are_counted),
    case("Q2", "tracked changes move the data of the statistics only", tracked),
    case("Q3", "hard limits on bytes are -125, before the version", bytes_limit)
        .profile(Profile::Quota),
    case("Q4", "a hard limit on count is -125, after the name", count_limit)
        .profile(Profile::Quota),
    case("Q5", "without limits nothing is tracked", untracked),
    case("Q6", "limits that are not enforced are only counted", not_enforced),
    case("Q7", "each operation of a multi is held to the usage before it", multi_limit)
        .profile(Profile::Quota),
    case("Q8", "what adds nothing passes a limit that is exceeded", nothing_added)
        .profile(Profile::Quota),
    case("Q9", "limits that a multi changes hold from the next request on", multi_of_limits)
        .profile(Profile::Quota),
];

/// The case of the watches' section that needs a quota.
pub const WATCH_CASES: &[Case] =
    &[case("W37", "tracked changes fire no watch on the statistics", statistics_are_silent)];

const LIMITS: &[u8] = b"count=2,bytes=-1=;byteHardLimit=10;countHardLimit=3";

/// A quota on a node, as the command line tool makes it: parents, limits, statistics.
struct Quota {
    limits: String,
    statistics: String,
}

impl Quota {
    fn create(client: &mut Client, subtree: &str, limits: &[u8]) -> Result<Self> {
        let quota = Self::nodes(client, subtree)?;
        client.create(&quota.limits, limits)?;
        client.create(&quota.statistics, b"count=0,bytes=0")?;
        Ok(quota)
    }

    fn nodes(client: &mut Client, subtree: &str) -> Result<Self> {
        let mut node = String::from("/zookeeper/quota");
        for name in subtree.split('/').skip(1) {
            node = format!("{node}/{name}");
            let reply = client.create_as(&node, b"", &open_acl(), 0)?;
            expect_one_of("making a quota's node", &reply.error, &[0, code::NODE_EXISTS])?;
        }
        let limits = format!("{node}/zookeeper_limits");
        Ok(Self { limits, statistics: format!("{node}/zookeeper_stats") })
    }

    fn expect_statistics(&self, client: &mut Client, want: &str) -> Result<()> {
        let (data, stat) = client.get_data(&self.statistics, false)?.data_and_stat()?;
        let text = String::from_utf8(data.context("null statistics")?)?;
        expect_eq("statistics", text.clone(), want.to_owned())?;
        expect_eq("dataLength", usize::try_from(stat.data_length)?, text.len())
    }
}

/// A subtree with an empty root and a quota on it.
fn limited(context: &Context<'_>, client: &mut Client) -> Result<(String, Quota)> {
    let root = context.path("qq");
    client.create(&root, b"")?;
    let quota = Quota::create(client, &root, LIMITS)?;
    Ok((root, quota))
}

fn statistics_are_counted(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let root = context.path("qq");
    client.create(&root, b"")?;
    let quota = Quota::nodes(&mut client, &root)?;
    client.create(&quota.limits, LIMITS)?;
    client.create(&quota.statistics, b"whatever this is")?;
    quota.expect_statistics(&mut client, "count=1,bytes=0")
}

fn tracked(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (root, quota) = limited(context, &mut client)?;
    let before = client.stat(&quota.statistics)?;
    client.create(&format!("{root}/a"), b"12345")?;
    quota.expect_statistics(&mut client, "count=2,bytes=5")?;
    let after = client.stat(&quota.statistics)?;
    expect_eq("version", after.version, before.version)?;
    expect_eq("mzxid", after.mzxid, before.mzxid)?;
    expect_eq("mtime", after.mtime, before.mtime)?;
    client.set(&format!("{root}/a"), b"12")?;
    quota.expect_statistics(&mut client, "count=2,bytes=2")?;
    client.remove(&format!("{root}/a"))?;
    quota.expect_statistics(&mut client, "count=1,bytes=0")
}

fn bytes_limit(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (root, quota) = limited(context, &mut client)?;
    let (a, b) = (format!("{root}/a"), format!("{root}/b"));
    client.create(&a, b"12345")?;
    let six = client.create_as(&b, b"123456", &open_acl(), 0)?;
    six.fails(code::QUOTA_EXCEEDED).context("create")?;
    let eleven = b"12345678901";
    client.set_data(&a, eleven, 0)?.fails(code::QUOTA_EXCEEDED).context("setData")?;
    client.set_data(&a, eleven, 77)?.fails(code::QUOTA_EXCEEDED).context("wrong version")?;
    quota.expect_statistics(&mut client, "count=2,bytes=5")?;
    client.create(&b, b"12345").context("just within the limit")?;
    Ok(())
}

fn count_limit(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (root, _quota) = limited(context, &mut client)?;
    client.create(&format!("{root}/a"), b"")?;
    client.create(&format!("{root}/b"), b"")?;
    let fourth = client.create_flags(&format!("{root}/c"), 0)?;
    fourth.fails(code::QUOTA_EXCEEDED).context("the fourth node")?;
    client.create_flags(&format!("{root}/a"), 0)?.fails(code::NODE_EXISTS).context("its name")?;
    Ok(())
}

fn untracked(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (root, quota) = limited(context, &mut client)?;
    client.remove(&quota.limits)?;
    client.create(&format!("{root}/a"), b"12345")?;
    quota.expect_statistics(&mut client, "count=1,bytes=0")
}

fn not_enforced(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (root, quota) = limited(context, &mut client)?;
    for name in ["a", "b", "c"] {
        client.create(&format!("{root}/{name}"), b"12345")?;
    }
    quota.expect_statistics(&mut client, "count=4,bytes=15")
}

/// A multi of two, whose second operation exceeds a quota.
fn expect_refused(client: &mut Client, operations: &[Operation]) -> Result<()> {
    let want = vec![Outcome::Error(0), Outcome::Error(code::QUOTA_EXCEEDED)];
    expect_eq("results", outcomes(&client.multi(operations)?)?, want)
}

fn expect_done(client: &mut Client, operations: &[Operation]) -> Result<()> {
    let outcomes = outcomes(&client.multi(operations)?)?;
    let failed = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Error(_)));
    expect_eq("an operation failed", failed, false)
}

fn multi_limit(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (root, quota) = limited(context, &mut client)?;
    let (a, b, c) = (format!("{root}/a"), format!("{root}/b"), format!("{root}/c"));
    client.create(&a, b"12345")?;
    let create = |path: &str| Operation::create(path, 0);
    expect_done(&mut client, &[create(&b), create(&c)]).context("one too many, in two")?;
    quota.expect_statistics(&mut client, "count=4,bytes=5")?;
    client.remove(&c)?;
    let instead = [Operation::delete(&b, -1), create(&c)];
    expect_refused(&mut client, &instead).context("one instead of another")?;
    // 5 more than 5 each time, for the second one is 15 after 10.
    let twice = [Operation::set(&a, &[b'1'; 10], -1), Operation::set(&a, &[b'2'; 15], -1)];
    expect_done(&mut client, &twice).context("5 more, twice")?;
    quota.expect_statistics(&mut client, "count=3,bytes=15")
}

fn nothing_added(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (root, quota) = limited(context, &mut client)?;
    let (a, b) = (format!("{root}/a"), format!("{root}/b"));
    client.create(&a, b"12345")?;
    client.set(&quota.limits, b"byteHardLimit=3")?;
    client.create(&b, b"").context("a znode without data")?;
    client.set(&a, b"54321").context("other data of the same length")?;
    client.set_data(&a, b"1234", -1)?.fails(code::QUOTA_EXCEEDED).context("less, and too much")?;
    client.set(&a, b"123").context("little enough")?;
    client.set(&quota.limits, b"countHardLimit=1")?;
    client.set(&a, b"1234").context("data under a limit on znodes")?;
    client.create_flags(&format!("{root}/c"), 0)?.fails(code::QUOTA_EXCEEDED)?;
    Ok(())
}

fn multi_of_limits(context: &Context<'_>) -> Result<()> {
    let mut client = context.client()?;
    let (root, quota) = limited(context, &mut client)?;
    let create = |name: &str| Operation::create(&format!("{root}/{name}"), 0);
    client.create(&format!("{root}/a"), b"")?;
    client.create(&format!("{root}/b"), b"")?;
    for (what, first) in [
        ("raised", Operation::set(&quota.limits, b"countHardLimit=9", -1)),
        ("deleted", Operation::delete(&quota.limits, -1)),
        ("without statistics", Operation::delete(&quota.statistics, -1)),
    ] {
        expect_refused(&mut client, &[first, create("c")]).context(what)?;
    }
    client.set(&quota.limits, b"countHardLimit=4")?;
    let lowered = Operation::set(&quota.limits, b"countHardLimit=1", -1);
    expect_done(&mut client, &[lowered, create("c")]).context("lowered too late")?;
    client.create_flags(&format!("{root}/d"), 0)?.fails(code::QUOTA_EXCEEDED)?;
    Ok(())
}

fn statistics_are_silent(context: &Context<'_>) -> Result<()> {
    let (mut a, mut b) = (context.client()?, context.client()?);
    let (root, quota) = limited(context, &mut b)?;
    a.get_data(&quota.statistics, true)?.ok()?;
    b.create(&format!("{root}/a"), b"12345")?;
    b.set(&format!("{root}/a"), b"1")?;
    b.remove(&format!("{root}/a"))?;
    a.expect_no_event()?;
    a.check_watches(&quota.statistics, 2)?.ok_empty().context("the watch is still there")?;
    Ok(())
}
