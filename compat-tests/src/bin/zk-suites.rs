//! Runs the tests of ZooKeeper and of Curator, as released, against zkshim, or against ZooKeeper
//! as they would be anyway.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;

use compat_tests::suites::list::{Class, List, Part};
use compat_tests::suites::run::{Found, Suite, run};

/// Runs the tests of ZooKeeper and of Curator, as released, against zkshim, or against ZooKeeper
/// as they would be anyway.
#[derive(Debug, Parser)]
#[command(name = "zk-suites")]
struct Cli {
    /// Whose tests.
    suite: Suite,
    /// What the tests find when they start a server.
    #[arg(long, default_value = "embedded")]
    on: Found,
    /// Only these classes; without their packages is enough.
    classes: Vec<String>,
    /// How many classes a JVM runs; upstream gives each one of its own.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    per_jvm: usize,
    /// How many JVMs at once.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    jvms: usize,
    /// How often.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    times: usize,
    /// Run what the list leaves out of these classes, too, and classes that are not in it.
    #[arg(long, requires = "classes")]
    unlisted: bool,
}

fn main() -> ExitCode {
    match main_with(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("zk-suites: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn main_with(cli: &Cli) -> Result<bool> {
    let list = cli.suite.list()?;
    let classes = if cli.unlisted { unlisted(cli)? } else { listed(cli, list) };
    ensure!(!classes.is_empty(), "there is no such class in the list");
    let mut good = true;
    for _ in 0..cli.times {
        let outcome = run(&classes, cli.on, cli.per_jvm, cli.jvms)?;
        for name in &outcome.disabled {
            println!("disabled {name}");
        }
        for text in outcome.failed.iter().chain(&outcome.empty) {
            println!("failed {text}");
        }
        println!("{} classes: {}", classes.len(), outcome.figures());
        good &= outcome.failed.is_empty() && outcome.empty.is_empty();
    }
    Ok(good)
}

fn listed(cli: &Cli, list: List) -> Vec<Class> {
    let asked = |class: &Class| {
        let fits = class.part != Part::Ensemble || cli.on != Found::Embedded;
        let named = cli.classes.iter().any(|name| is(&class.name, name));
        if cli.classes.is_empty() { fits } else { named }
    };
    list.classes.into_iter().filter(asked).collect()
}

fn unlisted(cli: &Cli) -> Result<Vec<Class>> {
    let all = cli.suite.all_classes()?;
    let named = all.into_iter().filter(|full| cli.classes.iter().any(|name| is(full, name)));
    Ok(named.map(Class::of).collect())
}

/// Whether a class has that name, with or without its package.
fn is(full: &str, name: &str) -> bool {
    full == name || full.strip_suffix(name).is_some_and(|package| package.ends_with('.'))
}
