//! The values of a schema → Rust text.
//!
//! What differs between records is written out; what is the same is in `src/primitives.rs`.

use crate::compiler::ast::{Field, Record, Schema, Type};
use crate::compiler::names::{field_name, record_name};

/// The records as Rust.
pub(crate) fn records(schema: &Schema) -> String {
    let records = schema.modules.iter().flat_map(|module| &module.records);
    let records: Vec<String> = records.map(record).collect();
    records.join("\n")
}

/// A macro that calls another with all records and the names of their fields: the tests take it
/// in, so that none can be left out.
pub(crate) fn list(schema: &Schema) -> String {
    let records = schema.modules.iter().flat_map(|module| &module.records);
    let rows: String = records.map(row).collect();
    let call = format!("        $callback! {{\n{rows}        }}\n");
    format!("macro_rules! each_record {{\n    ($callback:ident) => {{\n{call}    }};\n}}\n")
}

fn row(record: &Record) -> String {
    let field = |field: &Field| format!("{} {:?}", field_name(&field.name), field.name);
    let fields: Vec<String> = record.fields.iter().map(field).collect();
    format!("            {} {{ {} }}\n", record_name(&record.name), fields.join(", "))
}

fn record(record: &Record) -> String {
    let name = record_name(&record.name);
    let fields = &record.fields;
    [
        doc(&record.doc, &format!("`{}`.", record.name), ""),
        String::from("#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]\n"),
        block(&format!("pub struct {name}"), fields.iter().map(declared).collect()),
        format!("\nimpl Record for {name} {{\n"),
        format!("    const NAME: &'static str = {:?};\n}}\n", record.name),
        format!("\nimpl Value for {name} {{\n"),
        format!("    const LEN_MIN: usize = {};\n", terms(fields, least, " + ")),
        method("fn encoded_len(&self) -> usize", terms(fields, measured, "\n            + ")),
        encode(fields),
        decode(fields),
        String::from("}\n"),
    ]
    .concat()
}

fn declared(field: &Field) -> String {
    let line = format!("    pub {}: {},\n", field_name(&field.name), rust_type(&field.kind));
    doc(&field.doc, &format!("`{}`.", field.name), "    ") + &line
}

fn encode(fields: &[Field]) -> String {
    let lines = fields.iter().map(|field| format!("self.{}.encode(out);", field_name(&field.name)));
    let lines: Vec<String> = lines.collect();
    method("fn encode(&self, out: &mut BytesMut)", lines.join("\n        "))
}

fn decode(fields: &[Field]) -> String {
    let lines = fields.iter().map(|field| {
        let (rust, jute) = (field_name(&field.name), &field.name);
        format!("            {rust}: input.field(Self::NAME, {jute:?})?,\n")
    });
    let head = "fn decode(input: &mut Input<'_>) -> Result<Self, DecodeError>";
    method(head, format!("Ok(Self {{\n{}        }})", lines.collect::<String>()))
}

fn method(head: &str, body: String) -> String {
    format!("\n    {head} {{\n        {body}\n    }}\n")
}

fn block(head: &str, lines: Vec<String>) -> String {
    format!("{head} {{\n{}}}\n", lines.concat())
}

fn terms(fields: &[Field], term: fn(&Field) -> String, plus: &str) -> String {
    fields.iter().map(term).collect::<Vec<_>>().join(plus)
}

/// What is null takes the four bytes of a length.
fn least(field: &Field) -> String {
    match &field.kind {
        Type::Byte | Type::Boolean => String::from("1"),
        Type::Long => String::from("8"),
        Type::Int | Type::Ustring | Type::Buffer | Type::Vector(_) => String::from("4"),
        Type::Record(name) => format!("{}::LEN_MIN", record_name(name)),
    }
}

fn measured(field: &Field) -> String {
    format!("self.{}.encoded_len()", field_name(&field.name))
}

fn rust_type(kind: &Type) -> String {
    match kind {
        Type::Byte => String::from("i8"),
        Type::Boolean => String::from("bool"),
        Type::Int => String::from("i32"),
        Type::Long => String::from("i64"),
        Type::Ustring => String::from("Option<Text>"),
        Type::Buffer => String::from("Option<Bytes>"),
        Type::Vector(element) => format!("Option<Vec<{}>>", rust_type(element)),
        Type::Record(name) => record_name(name),
    }
}

fn doc(lines: &[String], otherwise: &str, indent: &str) -> String {
    if lines.is_empty() {
        return format!("{indent}/// {otherwise}\n");
    }
    lines.iter().map(|line| format!("{indent}/// {line}\n")).collect()
}
