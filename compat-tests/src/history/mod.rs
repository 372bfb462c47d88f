//! Histories of real runs: what clients did and saw under load and faults, and whether any
//! promise was broken.
//!
//! The face, in the order of use (`zk-history` and `tests/history.rs` do just this):
//!
//! - `workload::Workload::new(servers, seed)` (fields `clients`, `session_timeout`, `pace` may be
//!   changed), then `.start()` gives a `workload::Running`. It has a thread of its own and rides
//!   out whatever happens to the servers; `answered()` counts answers, to see when it is served.
//! - `running.stop()` ends the sessions, reads everything that is left (so some server must serve
//!   by then), and gives a `record::History`, which can be saved to a file and loaded.
//! - `check::check(&history)` gives a `check::Verdict`; it prints as a report, `is_clean()` says
//!   whether nothing is wrong, and `violations` are sentences.

pub mod check;
mod client;
mod frames;
pub mod liar;
mod places;
mod queue;
pub mod record;
mod turns;
pub mod workload;
