//! Compiles the schema. All the work is in `compiler/`, which the tests take in as well.

#[path = "compiler/mod.rs"]
mod compiler;

use std::path::Path;
use std::{env, fs};

fn main() {
    const SCHEMA: &str = "schema/zookeeper.jute";
    println!("cargo::rerun-if-changed={SCHEMA}");
    println!("cargo::rerun-if-changed=compiler");
    let schema = fs::read_to_string(SCHEMA).expect("the schema is a file of this crate");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    match compiler::compile(&schema) {
        Ok(output) => {
            let out = Path::new(&out);
            fs::write(out.join("zookeeper.rs"), output.records).expect("OUT_DIR can be written");
            fs::write(out.join("record_list.rs"), output.list).expect("OUT_DIR can be written");
        }
        Err(error) => println!("cargo::error={SCHEMA}: {error}"),
    }
}
