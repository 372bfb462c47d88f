//! Names of the schema → names in Rust.

/// A record's name: acronyms become words, `GetACLRequest` → `GetAclRequest`.
pub(crate) fn record_name(name: &str) -> String {
    words(last_part(name)).iter().map(|word| capitalised(word)).collect()
}

/// A field's name: `ephemeralOwner` → `ephemeral_owner`, with an underscore after Rust's own
/// words.
pub(crate) fn field_name(name: &str) -> String {
    let name = words(name).join("_").to_ascii_lowercase();
    if KEYWORDS.contains(&name.as_str()) { name + "_" } else { name }
}

/// The record's own name in a dotted one.
pub(crate) fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Splits before each capital that follows a small letter or a digit, or that precedes a small
/// letter.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_capital = at > 0 && letters[at - 1].is_ascii_uppercase();
        let before_small = letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
        let begins = letter.is_ascii_uppercase() && (!after_capital || before_small);
        match words.last_mut() {
            Some(word) if !begins => word.push(*letter),
            _ => words.push(String::from(*letter)),
        }
    }
    words
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
}

const KEYWORDS: [&str; 6] = ["type", "ref", "match", "use", "move", "in"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acronyms_become_words() {
        assert_eq!(record_name("ACL"), "Acl");
        assert_eq!(record_name("org.apache.zookeeper.data.GetACLRequest"), "GetAclRequest");
        assert_eq!(record_name("CreateTTLRequest"), "CreateTtlRequest");
        assert_eq!(record_name("WhoAmIResponse"), "WhoAmIResponse");
        assert_eq!(record_name("GetChildren2Request"), "GetChildren2Request");
    }

    #[test]
    fn fields_are_in_snake_case() {
        assert_eq!(field_name("ephemeralOwner"), "ephemeral_owner");
        assert_eq!(field_name("timeOut"), "time_out");
        assert_eq!(field_name("type"), "type_");
    }
}
