//! Why bytes could not be decoded, and in which record and field.

use std::fmt;

use thiserror::Error;

/// Bytes that are not the record they should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{trail}{fault}")]
pub struct DecodeError {
    fault: Fault,
    trail: Trail,
}

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The bytes end before the value does.
    #[error("{needed} bytes needed, {left} left")]
    Truncated {
        /// The fewest bytes that the value would take.
        needed: usize,
        /// The bytes that are there.
        left: usize,
    },
    /// A length below -1, or above what a single field may have.
    #[error("length {length} is not within -1 and {max}")]
    Length {
        /// The length as announced.
        length: i32,
        /// The most that is accepted.
        max: usize,
    },
}

/// One step on the way to the fault: a field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The record's name in the schema.
    pub record: &'static str,
    /// The field's name in the schema.
    pub field: &'static str,
}

/// The steps, the innermost first: they are added on the way out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Trail(Vec<Step>);

impl DecodeError {
    /// What was wrong.
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// The fields that lead to the fault, from the outermost record inwards.
    pub fn trail(&self) -> impl Iterator<Item = Step> + '_ {
        self.trail.0.iter().rev().copied()
    }

    /// The same error, seen from the record around it.
    #[must_use]
    pub fn within(mut self, record: &'static str, field: &'static str) -> Self {
        self.trail.0.push(Step { record, field });
        self
    }
}

impl From<Fault> for DecodeError {
    fn from(fault: Fault) -> Self {
        Self { fault, trail: Trail::default() }
    }
}

impl fmt::Display for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().rev().try_for_each(|step| write!(f, "{}.{}: ", step.record, step.field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_from_the_outermost_record_inwards() {
        let error = DecodeError::from(Fault::Truncated { needed: 4, left: 1 })
            .within("Id", "scheme")
            .within("ACL", "id");
        assert_eq!(error.to_string(), "ACL.id: Id.scheme: 4 bytes needed, 1 left");
        assert_eq!(error.trail().next(), Some(Step { record: "ACL", field: "id" }));
    }
}
