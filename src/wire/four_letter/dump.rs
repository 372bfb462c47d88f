//! `dump`: sessions by the moment when they expire, and their ephemerals.

use std::net::SocketAddr;

use super::{JavaAddress, put};
use crate::keeper::request::SessionId;

/// Those that expire at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket<T> {
    /// When, in milliseconds since 1970.
    pub unix_ms: i64,
    /// Who.
    pub members: Vec<T>,
}

impl<T> Bucket<T> {
    /// Buckets in the order of time, from members with a moment each.
    pub fn sorted(mut members: Vec<(i64, T)>) -> Vec<Self> {
        members.sort_by_key(|(unix_ms, _)| *unix_ms);
        let mut buckets: Vec<Self> = Vec::new();
        for (unix_ms, member) in members {
            match buckets.last_mut().filter(|bucket| bucket.unix_ms == unix_ms) {
                Some(bucket) => bucket.members.push(member),
                None => buckets.push(Self { unix_ms, members: vec![member] }),
            }
        }
        buckets
    }
}

/// `dump` (`ExpiryQueue.dump`, `DataTree.dumpEphemerals`).
pub fn dump(
    sessions: &[Bucket<SessionId>],
    ephemerals: &[(SessionId, Vec<String>)],
    connections: &[Bucket<(SocketAddr, SessionId)>],
) -> String {
    let mut text = "SessionTracker dump:\n".to_owned();
    sets(&mut text, "Session Sets", sessions, |text, session| {
        put(text, format_args!("\t0x{:x}\n", session.0));
    });
    text.push_str("ephemeral nodes dump:\n");
    put(&mut text, format_args!("Sessions with Ephemerals ({}):\n", ephemerals.len()));
    for (session, paths) in ephemerals {
        put(&mut text, format_args!("0x{:x}:\n", session.0));
        for path in paths {
            put(&mut text, format_args!("\t{path}\n"));
        }
    }
    text.push_str("Connections dump:\n");
    sets(&mut text, "Connections Sets", connections, |text, (peer, session)| {
        let peer = JavaAddress(*peer);
        put(text, format_args!("\tip: {peer} sessionId: 0x{:x}\n", session.0));
    });
    text
}

fn sets<T>(
    text: &mut String,
    title: &str,
    buckets: &[Bucket<T>],
    member_line: impl Fn(&mut String, &T),
) {
    let members: usize = buckets.iter().map(|bucket| bucket.members.len()).sum();
    put(text, format_args!("{title} ({})/({members}):\n", buckets.len()));
    for Bucket { unix_ms, members } in buckets {
        put(text, format_args!("{} expire at {}:\n", members.len(), java_date(*unix_ms)));
        for member in members {
            member_line(text, member);
        }
    }
}

/// A moment as Java's `Date.toString` has it in UTC: `Sun Nov 29 21:10:19 UTC 2026`.
fn java_date(unix_ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = unix_ms.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_date(days);
    let weekday = usize::try_from(days.rem_euclid(7)).ok().and_then(|at| DAYS.get(at));
    let month = usize::try_from(month - 1).ok().and_then(|at| MONTHS.get(at));
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        weekday.unwrap_or(&"???"),
        month.unwrap_or(&"???"),
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

/// The Gregorian date of a day counted from 1970-01-01: year, month from 1, day from 1.
///
/// Years are counted from March, so that the odd day comes last; 400 years are 146,097 days.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_java() {
        assert_eq!(java_date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(java_date(951_782_399_999), "Mon Feb 28 23:59:59 UTC 2000");
        assert_eq!(java_date(951_782_400_000), "Tue Feb 29 00:00:00 UTC 2000");
        assert_eq!(java_date(1_795_986_619_000), "Sun Nov 29 21:10:19 UTC 2026");
        assert_eq!(java_date(4_107_542_400_000), "Mon Mar 01 00:00:00 UTC 2100");
        assert_eq!(java_date(-1), "Wed Dec 31 23:59:59 UTC 1969");
    }

    #[test]
    fn members_of_one_moment_share_a_bucket() {
        let buckets = Bucket::sorted(vec![(2, 'a'), (1, 'b'), (2, 'c')]);
        let expected = [
            Bucket { unix_ms: 1, members: vec!['b'] },
            Bucket { unix_ms: 2, members: vec!['a', 'c'] },
        ];
        assert_eq!(buckets, expected);
    }
}
