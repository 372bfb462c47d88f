//! A znode's name under its parent, kept as small as names are.

/// Names of up to so many bytes stand in the znode itself.
const SHORT_MAX: usize = 22;

/// A name's bytes.
#[derive(Debug)]
pub(super) enum Name {
    Short(u8, [u8; SHORT_MAX]),
    Long(Box<[u8]>),
}

impl Name {
    /// No znode but the root has this name.
    pub(super) const EMPTY: Self = Self::Short(0, [0; SHORT_MAX]);

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        let mut bytes = [0; SHORT_MAX];
        match (bytes.get_mut(..name.len()), u8::try_from(name.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(name.as_bytes());
                Self::Short(length, bytes)
            }
            _ => Self::Long(name.as_bytes().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_are_found_again() {
        for length in [0, 1, SHORT_MAX - 1, SHORT_MAX, SHORT_MAX + 1, 300] {
            let name = "n".repeat(length);
            assert_eq!(Name::from(name.as_str()).bytes(), name.as_bytes());
        }
        assert_eq!(size_of::<Name>(), 24);
    }
}
