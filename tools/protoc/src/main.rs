//! Copies the protobuf compiler that a crate carries, and its include files, into a folder.
//! It is run by `tools/protoc/protoc` on machines that have no protobuf compiler.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() {
    let Some(target) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: zkshim-protoc FOLDER");
        std::process::exit(2);
    };
    if let Err(error) = install(&target) {
        eprintln!("cannot put the protobuf compiler into {}: {error}", target.display());
        std::process::exit(1);
    }
}

/// Builds the folder beside its place and then renames it, so that whoever looks sees all or
/// nothing.
fn install(target: &Path) -> io::Result<()> {
    let binary = protoc_bin_vendored::protoc_bin_path().map_err(io::Error::other)?;
    let include = protoc_bin_vendored::include_path().map_err(io::Error::other)?;
    let staging = target.with_extension(std::process::id().to_string());
    fs::create_dir_all(staging.join("bin"))?;
    fs::copy(binary, staging.join("bin/protoc"))?;
    copy_folder(&include, &staging.join("include"))?;
    match fs::rename(&staging, target) {
        Err(_) if target.join("bin/protoc").exists() => fs::remove_dir_all(&staging),
        outcome => outcome,
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &place)?;
        } else {
            fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}
