//! The two directions between frames and the core.
