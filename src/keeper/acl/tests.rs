//! Access control against the vectors that were measured on a real server.

use std::net::{IpAddr, Ipv4Addr};

use jute::{Acl, Id, Text};
use proptest::prelude::*;

use crate::keeper::acl::{
    IDENTITIES_MAX, IDENTITY_BYTES_MAX, Identity, authenticate, ip_identity, masked, normalize,
    permits, perms, user_name,
};
use crate::keeper::error::ErrorCode;

const SUPER_TEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
const BOB: &str = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM=";

fn entry(perms: i32, scheme: &str, id: &str) -> Acl {
    Acl { perms, id: Id { scheme: Some(Text::from(scheme)), id: Some(Text::from(id)) } }
}

fn identity(scheme: &str, id: &str) -> Identity {
    Identity { scheme: Text::from(scheme), id: Text::from(id) }
}

fn local() -> Vec<Identity> {
    vec![ip_identity(IpAddr::from([127, 0, 0, 1]))]
}

fn local_with(passwords: &[&str]) -> Vec<Identity> {
    let mut identities = local();
    for password in passwords {
        let outcome =
            authenticate(Some("digest"), Some(password.as_bytes()), None, &mut identities);
        assert_eq!(outcome, Ok(()));
    }
    identities
}

#[test]
fn digest_ids_are_those_of_java() {
    for (auth, id) in [
        ("super:test", SUPER_TEST),
        ("u1:p1", "u1:fpT/y03U+EjItKZOSLGvjnJlyng="),
        ("u2:p2", "u2:o9NxcCGDPOlcV7JVhmKHOf5ctVE="),
        ("bob:pw", BOB),
        ("own:1", "own:3strnAs1eHJhnqskvzJ2Jzj9IVU="),
        ("nocolon", "nocolon:Ra+cHr2ZoHvBjtNArFGNGlVie4g="),
    ] {
        assert_eq!(local_with(&[auth]), [local(), vec![identity("digest", id)]].concat());
    }
}

#[test]
fn addresses_are_written_as_java_writes_them() {
    for (address, text) in [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::A", "2001:db8:0:0:0:0:0:a"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
    ] {
        let address = address.parse().expect("an address");
        assert_eq!(ip_identity(address), identity("ip", text));
    }
}

#[test]
fn acls_are_accepted_as_the_real_server_accepts_them() {
    let invalid = Err(ErrorCode::InvalidAcl);
    for (scheme, id, outcome) in [
        ("world", "anyone", Ok(())),
        ("world", "someone", invalid),
        ("world", "", invalid),
        ("digest", "u1", invalid),
        ("digest", "u1:", invalid),
        ("digest", "", invalid),
        ("digest", ":", invalid),
        ("digest", "a:b", Ok(())),
        ("digest", "a:b:c", invalid),
        ("digest", ":b", Ok(())),
        ("digest", "a:b:", Ok(())),
        ("ip", "127.0.0.1", Ok(())),
        ("ip", "127.0.0.0/8", Ok(())),
        ("ip", "0.0.0.0/0", Ok(())),
        ("ip", "10.0.0.0/33", invalid),
        ("ip", "10.0.0.0/-1", invalid),
        ("ip", "10.0.0.0/", invalid),
        ("ip", "10.0.0.0/8/8", invalid),
        ("ip", "10.0.0", invalid),
        ("ip", "10.0.0.0.0", invalid),
        ("ip", "10.0.0.0x1", invalid),
        ("ip", "010.0.0.1", Ok(())),
        ("ip", "300.1.1.1", invalid),
        ("ip", "", invalid),
        ("ip", "::1/128", Ok(())),
        ("ip", "::1/129", invalid),
        ("ip", "2001:db8::/32", Ok(())),
        ("ip", "1::2::3", invalid),
        ("ip", "12345::", invalid),
        ("ip", "::ffff:10.1.2.3", invalid),
        ("ip", "fe80::1%eth0", invalid),
        ("auth", "", invalid),
        ("super", "x", invalid),
        ("sasl", "bob", invalid),
        ("x509", "CN=x", invalid),
        ("nonsense", "x", invalid),
    ] {
        let acl = [entry(perms::ALL, scheme, id)];
        let normalized = normalize(Some(&acl), &local());
        assert_eq!(normalized, outcome.map(|()| acl.to_vec()), "{scheme}:{id}");
    }
}

#[test]
fn a_missing_acl_is_invalid() {
    assert_eq!(normalize(None, &local()), Err(ErrorCode::InvalidAcl));
    assert_eq!(normalize(Some(&[]), &local()), Err(ErrorCode::InvalidAcl));
}

#[test]
fn nulls_in_an_acl_are_told_apart() {
    let acl = |scheme: Option<&str>, id: Option<&str>| {
        [Acl { perms: 31, id: Id { scheme: scheme.map(Text::from), id: id.map(Text::from) } }]
    };
    for (scheme, id, code) in [
        (None, Some("x"), ErrorCode::InvalidAcl),
        (None, None, ErrorCode::InvalidAcl),
        (Some("world"), None, ErrorCode::MarshallingError),
        (Some("digest"), None, ErrorCode::MarshallingError),
        (Some("ip"), None, ErrorCode::MarshallingError),
        (Some("auth"), None, ErrorCode::InvalidAcl),
    ] {
        assert_eq!(normalize(Some(&acl(scheme, id)), &local()), Err(code), "{scheme:?}:{id:?}");
    }
    let bob = normalize(Some(&acl(Some("auth"), None)), &local_with(&["bob:pw"]));
    assert_eq!(bob, Ok(vec![entry(31, "digest", BOB)]));
}

#[test]
fn the_first_bad_entry_decides() {
    let null_id = Acl { perms: 1, id: Id { scheme: Some(Text::from("world")), id: None } };
    let unknown = entry(1, "nonsense", "x");
    let one_way = [entry(1, "world", "anyone"), null_id.clone(), unknown.clone()];
    let other_way = [entry(1, "world", "anyone"), unknown, null_id];
    assert_eq!(normalize(Some(&one_way), &local()), Err(ErrorCode::MarshallingError));
    assert_eq!(normalize(Some(&other_way), &local()), Err(ErrorCode::InvalidAcl));
}

#[test]
fn strange_permissions_are_kept() {
    for perms in [0, 255, i32::MAX, -1] {
        let acl = [entry(perms, "world", "anyone")];
        assert_eq!(normalize(Some(&acl), &local()), Ok(acl.to_vec()));
    }
}

#[test]
fn exact_duplicates_are_dropped_and_the_first_kept() {
    let acl = [
        entry(31, "world", "anyone"),
        entry(1, "digest", "a:b"),
        entry(31, "world", "anyone"),
        entry(1, "world", "anyone"),
        entry(1, "digest", "a:b"),
    ];
    let kept = vec![acl[0].clone(), acl[1].clone(), acl[3].clone()];
    assert_eq!(normalize(Some(&acl), &local()), Ok(kept));
}

#[test]
fn auth_becomes_the_authenticated_identities_in_their_order() {
    let identities = local_with(&["u2:p2", "u1:p1"]);
    let acl = [entry(1, "world", "anyone"), entry(7, "auth", "whatever"), entry(8, "auth", "")];
    let (u1, u2) = ("u1:fpT/y03U+EjItKZOSLGvjnJlyng=", "u2:o9NxcCGDPOlcV7JVhmKHOf5ctVE=");
    let expanded = vec![
        entry(1, "world", "anyone"),
        entry(7, "digest", u2),
        entry(7, "digest", u1),
        entry(8, "digest", u2),
        entry(8, "digest", u1),
    ];
    assert_eq!(normalize(Some(&acl), &identities), Ok(expanded));
}

#[test]
fn auth_does_not_expand_to_the_super_user() {
    let mut identities = local();
    let auth = Some(&b"super:test"[..]);
    assert_eq!(authenticate(Some("digest"), auth, Some(SUPER_TEST), &mut identities), Ok(()));
    let normalized = normalize(Some(&[entry(31, "auth", "")]), &identities);
    assert_eq!(normalized, Ok(vec![entry(31, "digest", SUPER_TEST)]));
}

#[test]
fn each_permission_grants_itself_and_nothing_else() {
    let bits = [perms::READ, perms::WRITE, perms::CREATE, perms::DELETE, perms::ADMIN];
    let (stranger, owner) = (local(), local_with(&["own:1"]));
    for granted in [0].into_iter().chain(bits) {
        let acl = [
            entry(perms::ALL, "digest", "own:3strnAs1eHJhnqskvzJ2Jzj9IVU="),
            entry(granted, "world", "anyone"),
        ];
        for wanted in bits {
            assert_eq!(permits(&acl, wanted, &stranger), granted == wanted);
            assert!(permits(&acl, wanted, &owner));
        }
        // What getACL wants: one of the two is enough.
        let either = permits(&acl, perms::READ | perms::ADMIN, &stranger);
        assert_eq!(either, granted == perms::READ || granted == perms::ADMIN);
    }
}

#[test]
fn an_empty_acl_grants_everything_to_anyone() {
    assert!(permits(&[], perms::ADMIN, &local()));
    assert!(permits(&[], perms::WRITE, &[]));
}

#[test]
fn the_super_user_may_do_what_is_granted_to_nobody() {
    let acl = [entry(0, "world", "anyone")];
    assert!(permits(&acl, perms::WRITE, &[identity("super", "")]));
    assert!(!permits(&acl, perms::WRITE, &local()));
}

#[test]
fn an_identity_matches_entries_of_its_own_scheme_only() {
    let identities = [identity("digest", "a:b")];
    assert!(permits(&[entry(1, "digest", "a:b")], 1, &identities));
    for (scheme, id) in [("sasl", "a:b"), ("digest", "a:c"), ("world", "a:b"), ("auth", "a:b")] {
        assert!(!permits(&[entry(1, scheme, id)], 1, &identities), "{scheme}:{id}");
    }
    assert!(!permits(&[Acl::default()], 1, &identities));
}

#[test]
fn addresses_match_ranges_of_their_family() {
    for (address, range, is_in) in [
        ("127.0.0.1", "127.0.0.1", true),
        ("127.0.0.1", "127.0.0.2", false),
        ("127.9.8.7", "127.0.0.0/8", true),
        ("128.0.0.1", "127.0.0.0/8", false),
        ("10.1.2.3", "10.1.2.99/24", true),
        ("10.1.2.3", "10.1.2.0/31", false),
        ("10.1.2.3", "010.1.02.3", true),
        ("10.1.2.3", "99.99.99.99/0", true),
        ("::ffff:10.1.2.3", "10.1.2.3", true),
        ("::1", "0.0.0.0/0", false),
        ("10.1.2.3", "::/0", false),
        ("::1", "::1", true),
        ("::1", "0:0:0:0:0:0:0:1/128", true),
        ("2001:db8::1", "2001:DB8::/32", true),
        ("2001:db9::1", "2001:db8::/32", false),
        ("2001:db9::1", "::/0", true),
        ("10.1.2.3", "no range", false),
    ] {
        let identities = [ip_identity(address.parse().expect("an address"))];
        let found = permits(&[entry(1, "ip", range)], 1, &identities);
        assert_eq!(found, is_in, "{address} in {range}");
    }
}

#[test]
fn hashes_are_hidden_and_nothing_else() {
    let acl = [
        entry(31, "digest", BOB),
        entry(1, "digest", "a:b:c"),
        entry(1, "digest", "nothing"),
        entry(1, "ip", "::1"),
        entry(1, "world", "anyone"),
    ];
    let hidden = [
        entry(31, "digest", "bob:x"),
        entry(1, "digest", "a:x"),
        acl[2].clone(),
        acl[3].clone(),
        acl[4].clone(),
    ];
    assert_eq!(masked(&acl), hidden);
}

#[test]
fn schemes_that_prove_nothing_are_refused() {
    let schemes = ["world", "auth", "super", "sasl", "x509", "nonsense", ""].map(Some);
    for scheme in schemes.into_iter().chain([None]) {
        let mut identities = local();
        let outcome = authenticate(scheme, Some(b"a:b"), None, &mut identities);
        assert_eq!((outcome, identities), (Err(ErrorCode::AuthFailed), local()), "{scheme:?}");
    }
    let outcome = authenticate(Some("digest"), None, None, &mut local());
    assert_eq!(outcome, Err(ErrorCode::AuthFailed));
}

#[test]
fn the_scheme_ip_succeeds_and_adds_nothing() {
    let mut identities = local();
    assert_eq!(authenticate(Some("ip"), None, None, &mut identities), Ok(()));
    assert_eq!(identities, local());
}

#[test]
fn the_super_digest_makes_a_super_user_of_its_holder_only() {
    let super_user = identity("super", "");
    for (auth, is_super) in [("super:test", true), ("super:guess", false)] {
        let mut identities = local();
        let auth = Some(auth.as_bytes());
        let outcome = authenticate(Some("digest"), auth, Some(SUPER_TEST), &mut identities);
        assert_eq!(outcome, Ok(()));
        assert_eq!(identities.contains(&super_user), is_super);
        assert_eq!(identities.last().map(user_name), Some(Text::from("super")));
    }
    assert!(!local_with(&["super:test"]).contains(&super_user));
}

#[test]
fn proving_the_same_twice_adds_one_identity() {
    let once = local_with(&["bob:pw", "u1:p1"]);
    assert_eq!(local_with(&["bob:pw", "u1:p1", "bob:pw"]), once);
}

#[test]
fn identities_are_bounded() {
    let passwords: Vec<String> = (1..IDENTITIES_MAX).map(|i| format!("u:{i}")).collect();
    let passwords: Vec<&str> = passwords.iter().map(String::as_str).collect();
    let mut identities = local_with(&passwords);
    assert_eq!(identities.len(), IDENTITIES_MAX);
    let another = authenticate(Some("digest"), Some(b"u:0"), None, &mut identities);
    assert_eq!(another, Err(ErrorCode::AuthFailed));
    let known = authenticate(Some("digest"), Some(b"u:1"), None, &mut identities);
    assert_eq!(known, Ok(()));
}

#[test]
fn the_bytes_of_identities_are_bounded() {
    let mut identities = local();
    let mut outcomes = (0..4).map(|number| {
        let auth = format!("{number}{}:p", "u".repeat(IDENTITY_BYTES_MAX / 3));
        authenticate(Some("digest"), Some(auth.as_bytes()), None, &mut identities)
    });
    assert_eq!(outcomes.next(), Some(Ok(())));
    assert_eq!(outcomes.next(), Some(Ok(())));
    assert_eq!(outcomes.next(), Some(Err(ErrorCode::AuthFailed)));
}

#[test]
fn user_names_have_no_hashes() {
    for (scheme, id, name) in [
        ("digest", BOB, "bob"),
        ("ip", "127.0.0.1", "127.0.0.1"),
        ("ip", "0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1"),
        ("super", "", ""),
    ] {
        assert_eq!(user_name(&identity(scheme, id)), Text::from(name), "{scheme}:{id}");
    }
}

proptest! {
    #[test]
    fn any_auth_data_gives_its_holder_what_is_meant_for_him(auth: Vec<u8>) {
        let mut identities = local();
        prop_assert_eq!(authenticate(Some("digest"), Some(&auth), None, &mut identities), Ok(()));
        let acl = normalize(Some(&[entry(perms::WRITE, "auth", "")]), &identities);
        let acl = acl.expect("the connection is authenticated");
        prop_assert!(permits(&acl, perms::WRITE, &identities));
        prop_assert!(!permits(&acl, perms::READ, &identities));
        prop_assert!(!permits(&acl, perms::WRITE, &local()));
    }

    #[test]
    fn a_range_holds_the_addresses_with_its_leading_bits(
        ours: u32, theirs: u32, bits in 0..=32u32,
    ) {
        let acl = [entry(1, "ip", &format!("{}/{bits}", Ipv4Addr::from_bits(ours)))];
        let identities = [ip_identity(IpAddr::V4(Ipv4Addr::from_bits(theirs)))];
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        prop_assert_eq!(permits(&acl, 1, &identities), ours & mask == theirs & mask);
        prop_assert_eq!(normalize(Some(&acl), &[]), Ok(acl.to_vec()));
    }

    #[test]
    fn any_acl_is_normalized_or_refused(ids in prop::collection::vec(("\\PC{0,4}|ip|digest|world", "[0-9a-f.:/%]{0,12}"), 0..4)) {
        let acl: Vec<Acl> = ids.iter().map(|(scheme, id)| entry(1, scheme, id)).collect();
        if let Ok(normalized) = normalize(Some(&acl), &local()) {
            prop_assert_eq!(normalize(Some(&normalized), &local()), Ok(normalized.clone()));
        }
    }
}
