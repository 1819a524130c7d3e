//! The `haulier` binary.

fn main() {}
