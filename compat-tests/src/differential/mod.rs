//! Differential fuzzing: a seeded script of sessions and requests is played to a real ZooKeeper
//! and to zkshim over raw sockets, and every answer and event is compared.
//!
//! A script is played one batch of pipelined requests after the other, and each other session
//! syncs after a batch, so that the real server's answers are determined by the script.

pub mod answer;
pub mod chance;
pub mod compare;
pub mod deviations;
pub mod generate;
pub mod multis;
pub mod order;
pub mod play;
pub mod run;
pub mod script;
pub mod servers;
pub mod shrink;
pub mod vocabulary;
