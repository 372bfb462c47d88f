//! The error codes that a server sends (`KeeperException.Code`).
//!
//! A code is an answer to a client, not a failure of this program.

/// An error code as it stands in a reply header or in a result of a multi.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ErrorCode {
    /// -2: only inside a multi's results, for the operations after the one that failed.
    RuntimeInconsistency = -2,
    /// -5: the request's record could not be decoded, or refers to nothing.
    MarshallingError = -5,
    /// -6: the operation is not known, or switched off.
    Unimplemented = -6,
    /// -8: a path, flag or value outside what is allowed.
    BadArguments = -8,
    /// -101: the znode, or the parent of the znode to create, does not exist.
    NoNode = -101,
    /// -102: no entry of the ACL grants this connection the permission.
    NoAuth = -102,
    /// -103: the expected version is not the present one.
    BadVersion = -103,
    /// -108: an ephemeral znode has no children.
    NoChildrenForEphemerals = -108,
    /// -110: the znode to create exists.
    NodeExists = -110,
    /// -111: the znode to delete has children.
    NotEmpty = -111,
    /// -112: the session has expired.
    SessionExpired = -112,
    /// -114: the ACL is empty, or names what no scheme accepts.
    InvalidAcl = -114,
    /// -115: an auth packet was refused.
    AuthFailed = -115,
    /// -121: no watch of that kind is registered.
    NoWatcher = -121,
    /// -123: `reconfig` is disabled, as it is by default.
    ReconfigDisabled = -123,
    /// -125: a hard quota would be exceeded.
    QuotaExceeded = -125,
}

impl ErrorCode {
    /// The number on the wire.
    pub fn code(self) -> i32 {
        self as i32
    }
}
