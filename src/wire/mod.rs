//! The two directions between bytes and the core's requests and answers.
//!
//! Bytes come in through `frame` and `decode`, and go out through `encode`. Nothing here knows
//! sessions, the tree or any socket, and any bytes at all are survived.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod frame;
pub mod weight;

pub mod decode;
pub mod encode;
pub mod send_buffer;

pub mod four_letter;

/// The numbers of the operations (`ZooDefs.OpCode`).
mod opcode {
    pub(super) const CLOSE_SESSION: i32 = -11;
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const GET_ACL: i32 = 6;
    pub(super) const SET_ACL: i32 = 7;
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const SYNC: i32 = 9;
    pub(super) const PING: i32 = 11;
    pub(super) const GET_CHILDREN2: i32 = 12;
    pub(super) const CHECK: i32 = 13;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE2: i32 = 15;
    pub(super) const RECONFIG: i32 = 16;
    pub(super) const CHECK_WATCHES: i32 = 17;
    pub(super) const REMOVE_WATCHES: i32 = 18;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const CREATE_TTL: i32 = 21;
    pub(super) const MULTI_READ: i32 = 22;
    pub(super) const AUTH: i32 = 100;
    pub(super) const SET_WATCHES: i32 = 101;
    pub(super) const SASL: i32 = 102;
    pub(super) const GET_EPHEMERALS: i32 = 103;
    pub(super) const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub(super) const SET_WATCHES2: i32 = 105;
    pub(super) const ADD_WATCH: i32 = 106;
    pub(super) const WHO_AM_I: i32 = 107;
    /// In a multi's results: an error, and the end.
    pub(super) const ERROR: i32 = -1;
}
