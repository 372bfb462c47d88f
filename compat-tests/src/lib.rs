//! What the compatibility tests share: servers to run against, real ones and ours, and the real
//! clients that run against them.

pub mod servers;

pub mod clients;
