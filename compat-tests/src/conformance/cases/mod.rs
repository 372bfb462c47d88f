//! The table of all cases, by section.

use crate::conformance::case::Section;

pub mod change;
pub mod create;
pub mod framing;
pub mod headers;
pub mod lifetimes;
pub mod moves;
pub mod persistent;
pub mod quotas;
pub mod reads;
pub mod sessions;
pub mod set_watches;
pub mod transactions;
pub mod watches;

/// All sections in their order.
pub const SECTIONS: &[Section] = &[
    Section { number: "10.1", title: "Framing and handshake", parts: &[framing::CASES] },
    Section { number: "10.2", title: "Headers", parts: &[headers::CASES] },
    Section {
        number: "10.3",
        title: "Create, delete, set",
        parts: &[create::CASES, change::CASES],
    },
    Section { number: "10.4", title: "Reads and Stat", parts: &[reads::CASES] },
    Section { number: "10.5", title: "multi", parts: &[transactions::CASES] },
    Section {
        number: "10.6",
        title: "Watches",
        parts: &[watches::CASES, persistent::CASES, set_watches::CASES, quotas::WATCH_CASES],
    },
    Section { number: "10.7", title: "Sessions", parts: &[sessions::CASES, moves::CASES] },
    Section {
        number: "10.8",
        title: "TTL, containers, quotas",
        parts: &[lifetimes::CASES, quotas::CASES],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_are_171_cases_and_no_number_twice() {
        let cases = SECTIONS.iter().flat_map(|section| section.parts.iter().copied().flatten());
        let ids: Vec<_> = cases.map(|case| case.id).collect();
        let distinct: BTreeSet<_> = ids.iter().copied().collect();
        assert_eq!((ids.len(), distinct.len()), (171, 171));
    }
}
