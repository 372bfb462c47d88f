//! The compiler: what it makes of the schema, and what it refuses.
//!
//! `JUTE_REWRITE=1 cargo test -p jute` rewrites the expected file; review it as a diff.

#[path = "../compiler/mod.rs"]
mod compiler;

use crate::compiler::ast::{Field, Module, Record, Schema, Type};
use crate::compiler::{compile, parse};

const SCHEMA: &str = include_str!("../schema/zookeeper.jute");

fn check_refused(schema: &str, expect: &str) {
    let error = compile(schema).expect_err("the schema is wrong");
    assert!(error.contains(expect), "{error:?} does not say {expect:?}");
}

fn in_module(text: &str) -> String {
    format!("module a.b {{\n{text}\n}}")
}

#[test]
fn the_schema_compiles_to_the_expected_rust() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/expected/zookeeper.rs.txt");
    let output = compile(SCHEMA).expect("the schema is right");
    if std::env::var_os("JUTE_REWRITE").is_some() {
        std::fs::write(path, &output.records).expect("the expected file can be written");
    }
    let expected = std::fs::read_to_string(path).expect("the expected file is in the tree");
    let differs = output.records.lines().zip(expected.lines()).position(|(is, was)| is != was);
    assert_eq!(differs, None, "first line that differs; see the head of this file");
    assert_eq!(output.records.len(), expected.len());
}

#[test]
fn the_list_names_every_record_with_its_fields() {
    let schema = in_module("class ACL { int perms; long endsAt; }\nclass R { ACL type; }");
    let list = compile(&schema).expect("the schema is right").list;
    assert!(list.contains(" Acl { perms \"perms\", ends_at \"endsAt\" }\n"), "{list}");
    assert!(list.contains(" R { type_ \"type\" }\n"), "{list}");
}

#[test]
fn every_record_and_field_of_the_schema_is_documented() {
    let schema = parse::parse(SCHEMA).expect("the schema is right");
    for record in schema.modules.iter().flat_map(|module| &module.records) {
        assert!(!record.doc.is_empty(), "{}", record.name);
        for field in &record.fields {
            assert!(!field.doc.is_empty(), "{}.{}", record.name, field.name);
        }
    }
}

#[test]
fn all_of_the_grammar_is_read() {
    let text = "// one\n/* two */ module a.b {\n/** Three\n * and four. */\nclass R {\n\
                byte a; boolean b; int c; /** Five. */ long d; ustring e; buffer f;\n\
                vector<vector<ustring>> g; a.b.Other h; integer i;\n}\n} // six";
    let field = |kind, name: &str| Field { doc: Vec::new(), kind, name: name.into() };
    let vector = |kind| Type::Vector(Box::new(kind));
    let fields = vec![
        field(Type::Byte, "a"),
        field(Type::Boolean, "b"),
        field(Type::Int, "c"),
        Field { doc: vec!["Five.".into()], ..field(Type::Long, "d") },
        field(Type::Ustring, "e"),
        field(Type::Buffer, "f"),
        field(vector(vector(Type::Ustring)), "g"),
        field(Type::Record("a.b.Other".into()), "h"),
        field(Type::Record("integer".into()), "i"),
    ];
    let doc = vec!["Three".into(), "and four.".into()];
    let records = vec![Record { doc, name: "R".into(), fields }];
    let modules = vec![Module { name: "a.b".into(), records }];
    assert_eq!(parse::parse(text), Ok(Schema { modules }));
}

#[test]
fn broken_grammar_is_refused_with_its_line() {
    check_refused("module a {\n  class R {\n    int;\n  }\n}", "line 3");
    check_refused("module a {\n  class R {\n    int x\n  }\n}", "line 4");
    check_refused("module a {\n  class R { vector<int x; }\n}", "line 2");
    check_refused("module a {\n  record R { int x; }\n}", "line 2");
    check_refused("class R { int x; }", "line 1");
    check_refused("module a { class R { int x; }", "the end");
    check_refused("module a { /* class R { int x; } }", "line 1");
}

#[test]
fn types_of_jute_that_no_message_has_are_refused() {
    check_refused(&in_module("class R { float x; }"), "R.x");
    check_refused(&in_module("class R { double x; }"), "R.x");
}

#[test]
fn a_record_that_comes_later_or_never_is_refused() {
    check_refused(&in_module("class R { S s; } class S { int x; }"), "R.s");
    check_refused(&in_module("class R { vector<R> r; }"), "R.r");
}

#[test]
fn two_records_of_one_name_are_refused() {
    check_refused(&in_module("class ACL { int x; } class Acl { int y; }"), "Acl");
}

#[test]
fn a_record_without_fields_is_refused() {
    check_refused(&in_module("class R { }"), "R");
}
