//! The test suites of ZooKeeper and of Curator, as released, with zkshim in the place of the
//! servers that they would start inside themselves.
//!
//! `java/suites/` has the stand-ins and the lists of what is run; each class or method that is
//! left out is named there with its reason.

pub mod list;
pub mod run;
