//! What the compatibility tests share: servers to run against, real ones and ours, the real
//! clients that run against them, the conformance suite, and the suites of others.

pub mod clients;
pub mod conformance;
pub mod differential;
pub mod faults;
pub mod history;
pub mod overload;
pub mod servers;
pub mod suites;
