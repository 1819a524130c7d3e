//! The contract's types and functions in Rust, generated from the WIT files.
//!
//! The other files of this crate re-export and extend them. Nothing is written by hand here; plugins
//! name the crate's own re-exports.
#![allow(missing_docs, unreachable_pub, clippy::all)]

wit_bindgen::generate!({
    world: "plugin",
    path: "wit",
    pub_export_macro: true,
    default_bindings_module: "haulier_sdk::bindings",
    // So that tests can compare verdicts.
    additional_derives: [PartialEq, Eq],
});
