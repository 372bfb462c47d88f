//! Znode paths: what is a path, and what its parts are.
//!
//! Paths are compared as exact strings; nothing is ever normalised. Which operation makes which
//! check is the planner's and the reader's business.

/// Whether the path passes the full syntax check (`PathUtils.validatePath`): it begins with `/`,
/// does not end with `/` unless it is the root, has no empty, `.` or `..` component, and no
/// character that ZooKeeper refuses.
pub fn is_valid(path: &str) -> bool {
    let Some(below_root) = path.strip_prefix('/') else { return false };
    below_root.is_empty() || below_root.split('/').all(is_valid_component)
}

fn is_valid_component(component: &str) -> bool {
    !matches!(component, "" | "." | "..") && component.chars().all(is_allowed)
}

/// `PathUtils.validatePath` looks at UTF-16 units and refuses those of surrogates, so that no
/// character above U+FFFF passes; U+FFF0 to U+FFFF include what malformed input decodes to.
fn is_allowed(character: char) -> bool {
    !matches!(character,
        '\u{0}'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{e000}'..='\u{f8ff}'
        | '\u{fff0}'..='\u{ffff}'
        | '\u{10000}'..)
}

/// Whether the path has a parent to look for: a `/` somewhere, and no NUL. It is what create
/// checks first (`PrepRequestProcessor.validatePathForCreate`), and all that delete checks of a
/// path besides [`is_reserved`] (`PrepRequestProcessor.getParentPathAndValidate`).
pub fn has_slash_and_no_nul(path: &str) -> bool {
    path.contains('/') && !path.contains('\0')
}

/// Whether the znode is one of those that cannot be deleted
/// (`PrepRequestProcessor.getParentPathAndValidate` asks `ZKDatabase.isSpecialPath`).
pub fn is_reserved(path: &str) -> bool {
    matches!(path, "/" | "/zookeeper" | "/zookeeper/quota" | "/zookeeper/config")
}

/// Everything before the last `/`: `""` for a top-level znode, for the root, and for a path
/// without a `/`.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// As [`parent`], but the root under its own name: `/` instead of `""`.
pub fn parent_or_root(path: &str) -> &str {
    match parent(path) {
        "" => "/",
        parent => parent,
    }
}

/// Everything after the last `/`: the znode's name under its parent, `""` for the root.
pub fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The proper ancestors of an absolute path, from the nearest up to `/`. The root has none, nor
/// has a path that does not begin with `/`.
pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let above = |path: &str| path.starts_with('/') && path.len() > 1;
    let mut next = above(path).then(|| parent_or_root(path));
    std::iter::from_fn(move || {
        let ancestor = next?;
        next = above(ancestor).then(|| parent_or_root(ancestor));
        Some(ancestor)
    })
}

/// The path of a sequential znode: ten digits of the parent's creation counter behind the path
/// that was asked for. A minus sign takes the place of a digit, as in Java's `%010d`.
pub fn with_sequence(path: &str, sequence: i32) -> String {
    format!("{path}{sequence:010}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_and_odd_but_legal_paths_are_valid() {
        for path in [
            "/",
            "/a",
            "/a/b",
            "/...",
            "/.a",
            "/a.",
            "/a/..b",
            "/a b",
            "/ ",
            "/\u{a0}",
            "/\u{d7ff}",
            "/\u{f900}",
            "/\u{ffef}",
            "/zookeeper/quota",
        ] {
            assert!(is_valid(path), "{path:?}");
        }
    }

    #[test]
    fn malformed_paths_are_not_valid() {
        for path in [
            "", "a", "b/c", "//", "//x", "/a/", "/a//b", "/.", "/..", "/./x", "/a/.", "/a/../b",
            "/a/..", " /a",
        ] {
            assert!(!is_valid(path), "{path:?}");
        }
    }

    #[test]
    fn forbidden_characters_make_a_path_invalid() {
        for character in [
            '\u{0}',
            '\u{1}',
            '\u{1f}',
            '\u{7f}',
            '\u{9f}',
            '\u{e000}',
            '\u{f8ff}',
            '\u{fff0}',
            '\u{fffd}',
            '\u{ffff}',
            '\u{10000}',
            '\u{1f600}',
            '\u{10ffff}',
        ] {
            assert!(!is_valid(&format!("/a{character}b")), "{character:?}");
        }
    }

    #[test]
    fn create_and_delete_want_a_slash_and_no_nul() {
        for path in ["/", "/a", "foo/bar", "/a/", "//x"] {
            assert!(has_slash_and_no_nul(path), "{path:?}");
        }
        for path in ["", "b", "/a\0", "\0/"] {
            assert!(!has_slash_and_no_nul(path), "{path:?}");
        }
    }

    #[test]
    fn only_the_four_special_paths_are_reserved() {
        for path in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
            assert!(is_reserved(path), "{path:?}");
        }
        for path in ["", "/a", "/zookeeper/", "/zookeeper/x", "/zookeeper/quota/a"] {
            assert!(!is_reserved(path), "{path:?}");
        }
    }

    #[test]
    fn a_path_is_cut_at_its_last_slash() {
        for (path, parent_is, name_is) in [
            ("/a/b", "/a", "b"),
            ("/a", "", "a"),
            ("/", "", ""),
            ("", "", ""),
            ("b", "", "b"),
            ("foo/bar", "foo", "bar"),
            ("/a/", "/a", ""),
            ("//x", "/", "x"),
            ("/./x", "/.", "x"),
        ] {
            assert_eq!((parent(path), name(path)), (parent_is, name_is), "{path:?}");
        }
    }

    #[test]
    fn the_parent_of_a_top_level_znode_is_the_root() {
        assert_eq!(parent_or_root("/a"), "/");
        assert_eq!(parent_or_root("/a/b"), "/a");
    }

    #[test]
    fn ancestors_go_from_the_nearest_to_the_root() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(ancestors("/a").collect::<Vec<_>>(), ["/"]);
        assert_eq!(ancestors("/").count(), 0);
        assert_eq!(ancestors("").count(), 0);
        assert_eq!(ancestors("a/b").count(), 0);
    }

    #[test]
    fn a_sequence_has_ten_digits_and_its_sign_counts() {
        for (sequence, suffix) in [
            (0, "0000000000"),
            (1, "0000000001"),
            (i32::MAX, "2147483647"),
            (-5, "-000000005"),
            (i32::MIN, "-2147483648"),
        ] {
            assert_eq!(with_sequence("/a/n-", sequence), format!("/a/n-{suffix}"));
        }
        assert_eq!(with_sequence("/a/.", 0), "/a/.0000000000");
    }

    /// The rule as it is written for UTF-16 units, one condition after the other.
    fn is_valid_by_the_letter(path: &str) -> bool {
        let units: Vec<u16> = path.encode_utf16().collect();
        let forbidden =
            |unit: &u16| matches!(unit, 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff);
        path.starts_with('/')
            && (path == "/" || !path.ends_with('/'))
            && !path.contains("//")
            && !path.split('/').any(|component| component == "." || component == "..")
            && !units.iter().any(forbidden)
    }

    proptest! {
        #[test]
        fn validity_is_as_the_rule_for_utf16_units_says(path in "(/|\\.|a|\\PC|\u{1f}){0,8}") {
            prop_assert_eq!(is_valid(&path), is_valid_by_the_letter(&path));
        }

        #[test]
        fn a_valid_path_is_its_parent_and_its_name(path in "(/[a-z]{1,3}){1,5}") {
            prop_assert!(is_valid(&path));
            prop_assert_eq!(format!("{}/{}", parent(&path), name(&path)), path.clone());
            prop_assert_eq!(ancestors(&path).count(), path.matches('/').count());
        }
    }
}
