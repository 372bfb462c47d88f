//! The znodes that a workload uses, below its root, by what they are used for.

use crate::history::record::{Mode, Request};

/// How many there are of each kind: few, so that clients get into each other's way.
const REGISTERS: usize = 4;
const NAMES: usize = 6;
const PAIRS: usize = 2;
const TOKENS: usize = 2;
const LOCKS: usize = 2;

/// See the file's text.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    root: String,
    /// Their data is set and read by all, and they are never deleted.
    pub(crate) registers: Vec<String>,
    /// They are created and deleted by all.
    pub(crate) names: Vec<String>,
    /// Both of a pair are only ever set together, by a multi.
    pub(crate) pairs: Vec<[String; 2]>,
    /// A token is at one of two places, and moved by a multi.
    pub(crate) tokens: Vec<[String; 2]>,
    /// Parents of queues of ephemeral sequential znodes, of which the first holds the lock.
    pub(crate) locks: Vec<String>,
    /// The parent of sequential znodes.
    pub(crate) sequence: String,
    /// A register for each client, which it alone sets, with many requests at once.
    pub(crate) own: Vec<String>,
}

impl Places {
    pub(crate) fn new(root: &str, clients: usize) -> Self {
        let many = |count: usize, kind: &str| {
            (0..count).map(|index| format!("{root}/{kind}/{index}")).collect::<Vec<_>>()
        };
        let twins = |count: usize, kind: &str| {
            let twin = |index| ["a", "b"].map(|side| format!("{root}/{kind}/{side}{index}"));
            (0..count).map(twin).collect::<Vec<_>>()
        };
        Self {
            root: root.to_owned(),
            registers: many(REGISTERS, "registers"),
            names: many(NAMES, "names"),
            pairs: twins(PAIRS, "pairs"),
            tokens: twins(TOKENS, "tokens"),
            locks: many(LOCKS, "locks"),
            sequence: format!("{root}/sequence"),
            own: many(clients, "own"),
        }
    }

    /// The parent of all names, whose children come and go.
    pub(crate) fn names_parent(&self) -> String {
        format!("{}/names", self.root)
    }

    /// All that must be there before the clients come, parents first.
    pub(crate) fn furniture(&self) -> Vec<Request> {
        let kinds = ["registers", "names", "pairs", "tokens", "locks", "sequence", "own"];
        let parents = kinds.map(|kind| format!("{}/{kind}", self.root));
        let tokens = self.tokens.iter().map(|[first, _]| first.clone());
        let all = parents.into_iter().chain(self.registers.iter().cloned());
        let all = all.chain(self.pairs.iter().flatten().cloned()).chain(tokens);
        let all = all.chain(self.locks.iter().cloned()).chain(self.own.iter().cloned());
        all.map(|path| Request::Create { path, data: "new".to_owned(), mode: Mode::Plain })
            .collect()
    }

    /// The parents whose children the auditor lists and reads.
    pub(crate) fn parents(&self) -> Vec<String> {
        let kinds = ["registers", "names", "pairs", "tokens", "sequence", "own"];
        let parents = kinds.map(|kind| format!("{}/{kind}", self.root));
        parents.into_iter().chain(self.locks.iter().cloned()).collect()
    }
}
