//! What the compatibility tests share: servers to run against, real ones and ours.

pub mod servers;
