//! The store in this process.
