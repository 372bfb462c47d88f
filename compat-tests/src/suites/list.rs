//! The list of a suite: which test classes are run, and why the others are not.
//!
//! `brief CLASS` is part of every `make test`, `whole CLASS` of a run of the whole suite, and
//! `ensemble CLASS` needs several servers; of the class above, `in-ensemble METHOD` needs them,
//! too, and `without METHOD: REASON` is left out, `not-on-etcd METHOD: REASON` only there. So is
//! `never CLASS: REASON`; the class may end in `*`, for all of that beginning that no other line
//! names.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

/// A suite's list.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The classes to run.
    pub classes: Vec<Class>,
    /// Patterns of the classes that are left out, with the reasons.
    pub never: Vec<(String, String)>,
}

/// A test class to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its full name.
    pub name: String,
    /// When it is run.
    pub part: Part,
    /// The methods that need several servers.
    pub in_ensemble: Vec<String>,
    /// The methods that are left out, with the reasons.
    pub without: Vec<(String, String)>,
    /// The methods that are left out on etcd, with the reasons.
    pub not_on_etcd: Vec<(String, String)>,
}

impl Class {
    /// The whole of a class.
    #[must_use]
    pub fn of(name: String) -> Self {
        Self {
            name,
            part: Part::Whole,
            in_ensemble: Vec::new(),
            without: Vec::new(),
            not_on_etcd: Vec::new(),
        }
    }
}

/// When a class is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Every time.
    Brief,
    /// With the whole suite.
    Whole,
    /// With the whole suite, if the servers have one tree.
    Ensemble,
}

impl List {
    /// Reads a list.
    ///
    /// # Errors
    /// A line is none of those known, or says something twice.
    pub fn parse(text: &str) -> Result<Self> {
        let mut list = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                list.line(line).with_context(|| format!("read line {}: {line}", number + 1))?;
            }
        }
        Ok(list)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let (word, rest) = line.split_once(' ').context("find a word and what follows it")?;
        match word {
            "brief" => self.add(rest, Part::Brief)?,
            "whole" => self.add(rest, Part::Whole)?,
            "ensemble" => self.add(rest, Part::Ensemble)?,
            "in-ensemble" => self.last()?.in_ensemble.push(rest.to_owned()),
            "without" => self.last()?.without.push(reasoned(rest)?),
            "not-on-etcd" => self.last()?.not_on_etcd.push(reasoned(rest)?),
            "never" => self.never.push(reasoned(rest)?),
            _ => bail!("the first word is unknown"),
        }
        Ok(())
    }

    fn add(&mut self, name: &str, part: Part) -> Result<()> {
        ensure!(self.class(name).is_none(), "the class is there twice");
        self.classes.push(Class { part, ..Class::of(name.to_owned()) });
        Ok(())
    }

    fn last(&mut self) -> Result<&mut Class> {
        self.classes.last_mut().context("find a class above")
    }

    /// The class of that name, if it is run.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|class| class.name == name)
    }

    /// What is wrong with the list, given all classes that there are: those it says nothing of, and
    /// what it says of classes that are not there.
    #[must_use]
    pub fn faults(&self, all: &BTreeSet<String>) -> Vec<String> {
        let mut faults = Vec::new();
        for name in all {
            let never = self.never.iter().any(|(pattern, _)| matches(pattern, name));
            if !never && self.class(name).is_none() {
                faults.push(format!("{name} is not in the list"));
            }
        }
        let names = self.classes.iter().map(|class| class.name.as_str());
        let patterns = self.never.iter().map(|(pattern, _)| pattern.as_str());
        for pattern in names.chain(patterns) {
            if !all.iter().any(|name| matches(pattern, name)) {
                faults.push(format!("there is no {pattern}"));
            }
        }
        faults
    }
}

fn reasoned(text: &str) -> Result<(String, String)> {
    let (name, reason) = text.split_once(": ").context("find a reason")?;
    Ok((name.to_owned(), reason.to_owned()))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# why\nbrief a.A\n  without x: it is slow\n  in-ensemble y\n  not-on-etcd z: it is big\nwhole a.B\nnever a.c.*: no\n";

    #[test]
    fn a_list_is_read() {
        let list = List::parse(TEXT).expect("it is well-formed");
        let names: Vec<_> = list.classes.iter().map(|c| (c.name.as_str(), c.part)).collect();
        assert_eq!(names, [("a.A", Part::Brief), ("a.B", Part::Whole)]);
        assert_eq!(list.classes[0].in_ensemble, ["y"]);
        assert_eq!(list.classes[0].without, [("x".to_owned(), "it is slow".to_owned())]);
        assert_eq!(list.classes[0].not_on_etcd, [("z".to_owned(), "it is big".to_owned())]);
        assert_eq!(list.never, [("a.c.*".to_owned(), "no".to_owned())]);
        assert!(List::parse("brief a\nbrief a").is_err(), "twice");
        assert!(List::parse("never a").is_err(), "no reason");
        assert!(List::parse("without a: b").is_err(), "no class");
    }

    #[test]
    fn what_a_list_does_not_say_is_a_fault() {
        let list = List::parse(TEXT).expect("it is well-formed");
        let all = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        assert!(list.faults(&all(&["a.A", "a.B", "a.c.C"])).is_empty());
        assert_eq!(
            list.faults(&all(&["a.A", "a.B", "a.C"])),
            ["a.C is not in the list", "there is no a.c.*"]
        );
    }
}
