//! The table of all cases, by section.

use crate::conformance::case::Section;

pub mod change;
pub mod create;
pub mod framing;
pub mod headers;
pub mod moves;
pub mod reads;
pub mod sessions;
pub mod set_watches;
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
    Section { number: "10.6", title: "Watches", parts: &[watches::CASES, set_watches::CASES] },
    Section { number: "10.7", title: "Sessions", parts: &[sessions::CASES, moves::CASES] },
];
