//! The conformance suite: what a stock ZooKeeper 3.9.5 does on its client port, as 171 cases.
//!
//! It speaks raw sockets with an encoder of its own and judges a real ZooKeeper and zkshim by the
//! same expectations.

pub mod case;
pub mod cases;
pub mod client;
pub mod context;
pub mod expect;
pub mod message;
pub mod multi;
pub mod report;
pub mod run;
pub mod session;
pub mod socket;
pub mod wire;
