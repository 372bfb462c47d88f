//! A znode that one client alone writes: what it may hold, whatever became of the answers, and
//! after etcd was restored to an earlier time.

use std::time::Instant;

use crate::faults::record::Restored;

/// A znode that one client alone writes. It holds a number that grows by one with each write.
#[derive(Debug)]
pub struct Own {
    /// Where it is.
    pub path: String,
    /// When the write was first sent that is to be acknowledged next.
    pub begun: Option<Instant>,
    /// What it surely held, one after the other.
    held: Vec<Held>,
    /// A write of the next number may have been applied.
    in_doubt: bool,
    /// It must be read before it is written.
    unsettled: bool,
    padding_bytes: usize,
}

/// What it surely held.
#[derive(Clone, Copy, Debug)]
struct Held {
    number: u64,
    version: i32,
    /// Of the write that made it.
    zxid: i64,
    /// When that was learnt.
    at: Instant,
}

impl Own {
    /// One that has not been looked at; each number is followed by so many bytes that belong to
    /// it alone.
    #[must_use]
    pub fn new(path: String, padding_bytes: usize) -> Self {
        let (held, begun) = (Vec::new(), None);
        Self { path, begun, held, in_doubt: false, unsettled: true, padding_bytes }
    }

    /// Whether it must be read before it is written.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.unsettled || self.in_doubt || self.held.is_empty()
    }

    /// Whether it is not known to have been there.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.held.is_empty()
    }

    /// What a number looks like.
    #[must_use]
    pub fn text(&self, number: u64) -> String {
        let mut text = number.to_string();
        let mut state = number;
        while text.len() < self.padding_bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(&format!(" {state:016x}"));
        }
        text
    }

    /// The next write: the data, and the version that it is for.
    pub fn plan(&mut self) -> Option<(String, i32)> {
        let last = *self.held.last()?;
        self.in_doubt = true;
        Some((self.text(last.number + 1), last.version))
    }

    /// It was made: it holds 0.
    pub fn made(&mut self, zxid: i64) {
        self.hold(0, 0, zxid);
    }

    /// The write was answered with this version; says what is wrong with that.
    pub fn written(&mut self, version: i32, zxid: i64) -> Option<String> {
        let last = *self.held.last()?;
        if version != last.version + 1 {
            return Some(format!("{} is at {version} after {}", self.path, last.version));
        }
        self.hold(last.number + 1, version, zxid);
        None
    }

    /// The write was refused, which cannot be: nobody else writes here.
    pub fn refused(&mut self) {
        self.in_doubt = false;
        self.held.clear();
    }

    /// It was read; says what is wrong with what was found.
    pub fn found(&mut self, data: &[u8], version: i32, zxid: i64) -> Option<String> {
        let text = String::from_utf8_lossy(data);
        let number = text.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        let whole = number.filter(|number| self.text(*number) == text);
        let Some(number) = whole else {
            return Some(format!("{} holds {} bytes that nobody wrote", self.path, data.len()));
        };
        let last = self.held.last().map(|last| (last.number, last.version));
        let (found, doubted) = ((number, version), self.in_doubt);
        self.hold(number, version, zxid);
        let (last_number, last_version) = last?;
        let next = (last_number + 1, last_version + 1);
        let fits = Some(found) == last || (doubted && found == next);
        (!fits).then(|| format!("{} holds {found:?} after {last:?}", self.path))
    }

    /// etcd was set back: what was written after that moment of its history is gone.
    pub fn restored(&mut self, restored: &Restored) {
        let before = self.held.len();
        self.held.retain(|held| held.zxid <= restored.kept || held.at > restored.at);
        // A write in doubt followed on what is gone.
        self.in_doubt &= self.held.len() == before;
        self.unsettled = true;
    }

    fn hold(&mut self, number: u64, version: i32, zxid: i64) {
        (self.in_doubt, self.unsettled) = (false, false);
        self.held.push(Held { number, version, zxid, at: Instant::now() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made at zxid 10, then 1 and 2 at 11 and 12.
    fn twice_written() -> Own {
        let mut own = Own::new("/own".to_owned(), 40);
        own.made(10);
        for (version, zxid) in [(1, 11), (2, 12)] {
            assert!(own.plan().is_some());
            assert_eq!(own.written(version, zxid), None);
        }
        own
    }

    #[test]
    fn a_write_in_doubt_was_applied_or_was_not() {
        for (number, version, fits) in [(2, 2, true), (3, 3, true), (1, 1, false), (3, 2, false)] {
            let mut own = twice_written();
            assert!(own.plan().is_some());
            let text = own.text(number);
            assert_eq!(own.found(text.as_bytes(), version, 13).is_none(), fits, "{number}");
        }
    }

    #[test]
    fn nothing_is_forgotten_without_a_doubt_or_a_restore() {
        let mut own = twice_written();
        let text = own.text(1);
        assert!(own.found(text.as_bytes(), 1, 11).is_some());
    }

    #[test]
    fn after_a_restore_it_holds_what_it_held_then_and_nothing_later() {
        for (number, version, fits) in [(1, 1, true), (2, 2, false), (0, 0, false)] {
            let mut own = twice_written();
            own.restored(&Restored { at: Instant::now(), kept: 11 });
            assert!(own.is_unsettled());
            let text = own.text(number);
            assert_eq!(own.found(text.as_bytes(), version, 11).is_none(), fits, "{number}");
        }
    }

    #[test]
    fn half_of_what_was_written_is_noticed() {
        let mut own = twice_written();
        let text = own.text(2);
        assert!(text.len() >= 40);
        assert!(own.found(&text.as_bytes()[..30], 2, 12).is_some());
    }
}
