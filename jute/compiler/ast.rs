//! What a schema says, as values.

/// A whole schema.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Schema {
    /// Its modules, in order.
    pub(crate) modules: Vec<Module>,
}

/// A module: a name space for records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// Its dotted name.
    pub(crate) name: String,
    /// Its records, in order.
    pub(crate) records: Vec<Record>,
}

/// A record (`class`).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The lines of the comment before it.
    pub(crate) doc: Vec<String>,
    /// Its name.
    pub(crate) name: String,
    /// Its fields, in the order of the wire.
    pub(crate) fields: Vec<Field>,
}

/// A field of a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// The lines of the comment before it.
    pub(crate) doc: Vec<String>,
    /// Its type.
    pub(crate) kind: Type,
    /// Its name.
    pub(crate) name: String,
}

/// The type of a field. Jute's `float`, `double` and `map` occur in no message of ZooKeeper and
/// are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// `byte`.
    Byte,
    /// `boolean`.
    Boolean,
    /// `int`.
    Int,
    /// `long`.
    Long,
    /// `ustring`.
    Ustring,
    /// `buffer`.
    Buffer,
    /// `vector<...>`.
    Vector(Box<Self>),
    /// A record, by its name, dotted if it is in another module.
    Record(String),
}

impl Type {
    /// The record that the type leads to, if any.
    pub(crate) fn record(&self) -> Option<&str> {
        match self {
            Self::Vector(element) => element.record(),
            Self::Record(name) => Some(name),
            _ => None,
        }
    }
}
