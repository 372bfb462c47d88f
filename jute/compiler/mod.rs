//! The schema compiler: schema text in, Rust text out.

pub(crate) mod ast;
pub(crate) mod emit;
pub(crate) mod names;
pub(crate) mod parse;

use std::collections::BTreeSet;

use crate::compiler::ast::{Field, Schema};
use crate::compiler::names::{last_part, record_name};

/// What the compiler makes of a schema.
#[derive(Debug)]
pub(crate) struct Output {
    /// The records as Rust.
    pub(crate) records: String,
    /// A macro that lists them.
    pub(crate) list: String,
}

/// Compiles a schema.
///
/// # Errors
/// Where the text is not in jute's grammar, or which name is used twice, missing or empty.
pub(crate) fn compile(text: &str) -> Result<Output, String> {
    let schema = parse::parse(text)?;
    check(&schema)?;
    Ok(Output { records: emit::records(&schema), list: emit::list(&schema) })
}

/// Records of all modules share one name space in Rust.
fn check(schema: &Schema) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for record in schema.modules.iter().flat_map(|module| &module.records) {
        if record.fields.is_empty() {
            return Err(format!("{}: a record without fields", record.name));
        }
        if let Some(field) = record.fields.iter().find(|field| is_unknown(&known, field)) {
            return Err(format!("{}.{}: its type is not known here", record.name, field.name));
        }
        if !known.insert(record_name(&record.name)) {
            return Err(format!("{}: there is another record of that name", record.name));
        }
    }
    Ok(())
}

/// A record must come before those that hold it, so that none holds itself.
fn is_unknown(known: &BTreeSet<String>, field: &Field) -> bool {
    field.kind.record().is_some_and(|name| !known.contains(&record_name(last_part(name))))
}
