//! Access control: who a connection is, and what an ACL lets it do.
//!
//! Schemes served: `world`, `auth`, `digest`, `ip`, and `super` for the holder of the super
//! user's password. Which permission an operation wants, and whether ACLs are looked at at all
//! (`skipACL`), is the caller's business.

mod ip;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use indexmap::IndexSet;
use jute::{Acl, Id, Text};
use rustc_hash::FxBuildHasher;
use sha1::{Digest as _, Sha1};

use crate::keeper::error::ErrorCode;

/// The permission bits (`ZooDefs.Perms`). Higher bits are stored and returned, and mean nothing.
pub mod perms {
    /// Read data, children and Stat, and receive events.
    pub const READ: i32 = 1;
    /// Set data.
    pub const WRITE: i32 = 2;
    /// Create children.
    pub const CREATE: i32 = 4;
    /// Delete children.
    pub const DELETE: i32 = 8;
    /// Set the ACL, and see the hashes in it.
    pub const ADMIN: i32 = 16;
    /// All of them.
    pub const ALL: i32 = 31;
}

/// Identities that one connection may gather; further ones are refused. ZooKeeper has no limit.
pub const IDENTITIES_MAX: usize = 1000;

/// What the ids of all of them may take: a user's name may be as long as a request.
pub const IDENTITY_BYTES_MAX: usize = 1 << 20;

/// One of the things that a connection has proved to be. A connection starts with its
/// [`ip_identity`] and gathers more by [`authenticate`]; it never loses one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// `ip`, `digest` or `super`.
    pub scheme: Text,
    /// What the scheme calls it: an address, `user:hash`, or nothing.
    pub id: Text,
}

impl Identity {
    fn new(scheme: &'static str, id: impl Into<Text>) -> Self {
        Self { scheme: Text::from_static(scheme), id: id.into() }
    }
}

/// What every connection is from the start: its address as Java writes it
/// (`InetAddress.getHostAddress`).
pub fn ip_identity(peer: IpAddr) -> Identity {
    Identity::new("ip", ip::java_text(peer))
}

/// Whether the ACL of a znode grants one of the `wanted` permissions to one of the identities
/// (`ZooKeeperServer.checkACL`). An empty ACL grants everything.
pub fn permits(acl: &[Acl], wanted: i32, identities: &[Identity]) -> bool {
    acl.is_empty()
        || is_super(identities)
        || acl.iter().any(|entry| entry.perms & wanted != 0 && is_meant(&entry.id, identities))
}

fn is_super(identities: &[Identity]) -> bool {
    identities.iter().any(|identity| &*identity.scheme == "super")
}

fn is_meant(id: &Id, identities: &[Identity]) -> bool {
    let (Some(scheme), Some(id)) = (id.scheme.as_deref(), id.id.as_deref()) else { return false };
    let same_scheme = |identity: &&Identity| &*identity.scheme == scheme;
    match scheme {
        "world" => id == "anyone",
        "ip" => identities.iter().filter(same_scheme).any(|held| ip::matches(&held.id, id)),
        _ => identities.iter().filter(same_scheme).any(|held| &*held.id == id),
    }
}

/// The ACL to store for the one that a request gives: exact duplicates are dropped, and entries
/// of the scheme `auth` become one entry for each authenticated identity, in the order in which
/// the connection gathered them (`PrepRequestProcessor.fixupACL`).
///
/// # Errors
///
/// [`ErrorCode::InvalidAcl`] for a null or empty ACL, for an entry of no known scheme or with an
/// id that its scheme does not accept, and for `auth` without an authenticated identity.
/// [`ErrorCode::MarshallingError`] for a null id, where ZooKeeper trips over the null.
pub fn normalize(acl: Option<&[Acl]>, identities: &[Identity]) -> Result<Vec<Acl>, ErrorCode> {
    let entries: IndexSet<&Acl, FxBuildHasher> = acl.into_iter().flatten().collect();
    if entries.is_empty() {
        return Err(ErrorCode::InvalidAcl);
    }
    let mut normalized = Vec::with_capacity(entries.len());
    for entry in entries {
        let scheme = entry.id.scheme.as_deref().ok_or(ErrorCode::InvalidAcl)?;
        if scheme == "auth" {
            expand(entry.perms, identities, &mut normalized)?;
            continue;
        }
        let id = entry.id.id.as_deref().ok_or(ErrorCode::MarshallingError)?;
        let is_accepted = match scheme {
            "world" => id == "anyone",
            "digest" => is_digest_id(id),
            "ip" => ip::is_range(id),
            _ => false,
        };
        if !is_accepted {
            return Err(ErrorCode::InvalidAcl);
        }
        normalized.push(entry.clone());
    }
    Ok(normalized)
}

fn expand(perms: i32, identities: &[Identity], into: &mut Vec<Acl>) -> Result<(), ErrorCode> {
    let before = into.len();
    let authenticated = identities.iter().filter(|identity| &*identity.scheme == "digest");
    into.extend(authenticated.map(|identity| {
        let (scheme, id) = (Some(identity.scheme.clone()), Some(identity.id.clone()));
        Acl { perms, id: Id { scheme, id } }
    }));
    if into.len() == before { Err(ErrorCode::InvalidAcl) } else { Ok(()) }
}

/// Two parts as Java's `String.split` counts them: it drops empty ones at the end, so that `:b`
/// and `a:b:` have two, and `a:` has one (`DigestAuthenticationProvider.isValid`).
fn is_digest_id(id: &str) -> bool {
    let id = id.trim_end_matches(':');
    !id.is_empty() && id.matches(':').count() == 1
}

/// The ACL as getACL shows it to those who may not administer the znode: without the hashes
/// (`FinalRequestProcessor`, ZOOKEEPER-1392).
pub fn masked(acl: &[Acl]) -> Vec<Acl> {
    let mask = |entry: &Acl| {
        let is_digest = entry.id.scheme.as_deref() == Some("digest");
        let user = entry.id.id.as_deref().and_then(|id| id.split_once(':')).map(|(user, _)| user);
        match user.filter(|_| is_digest) {
            Some(user) => {
                let id = Some(Text::from(format!("{user}:x")));
                Acl { perms: entry.perms, id: Id { scheme: entry.id.scheme.clone(), id } }
            }
            None => entry.clone(),
        }
    };
    acl.iter().map(mask).collect()
}

/// Takes an auth packet and adds what it proves to the identities, which keep their order and
/// have no duplicates. `super_digest` is the digest id whose holder is the super user as well.
///
/// # Errors
///
/// [`ErrorCode::AuthFailed`] for a scheme that proves nothing, for digest without data, and past
/// [`IDENTITIES_MAX`] or [`IDENTITY_BYTES_MAX`]. The connection is closed after such an answer.
pub fn authenticate(
    scheme: Option<&str>,
    auth: Option<&[u8]>,
    super_digest: Option<&str>,
    identities: &mut Vec<Identity>,
) -> Result<(), ErrorCode> {
    match scheme {
        // It proves again what every connection starts with.
        Some("ip") => Ok(()),
        Some("digest") => {
            let user_and_password = auth.ok_or(ErrorCode::AuthFailed)?;
            let digest = digest_id(&String::from_utf8_lossy(user_and_password));
            if super_digest == Some(&digest) {
                add(Identity::new("super", ""), identities)?;
            }
            add(Identity::new("digest", digest), identities)
        }
        _ => Err(ErrorCode::AuthFailed),
    }
}

fn add(identity: Identity, identities: &mut Vec<Identity>) -> Result<(), ErrorCode> {
    if identities.contains(&identity) {
        return Ok(());
    }
    let bytes: usize = identities.iter().map(|known| known.id.len()).sum();
    if identities.len() >= IDENTITIES_MAX || bytes + identity.id.len() > IDENTITY_BYTES_MAX {
        return Err(ErrorCode::AuthFailed);
    }
    identities.push(identity);
    Ok(())
}

/// `user:` and the hash of the whole of `user:password`; without a colon the whole text is the
/// user (`DigestAuthenticationProvider.generateDigest`).
fn digest_id(user_and_password: &str) -> String {
    let user = user_and_password.split(':').next().unwrap_or_default();
    format!("{user}:{}", STANDARD.encode(Sha1::digest(user_and_password)))
}

/// Who an identity is to a human, as whoAmI tells it: without the hash
/// (`AuthenticationProvider.getUserName`). The super user, whose scheme has no provider, is
/// nobody (`AuthUtil.getUser`).
pub fn user_name(identity: &Identity) -> Text {
    match &*identity.scheme {
        "digest" => Text::from(identity.id.split(':').next().unwrap_or_default()),
        "super" => Text::default(),
        _ => identity.id.clone(),
    }
}
