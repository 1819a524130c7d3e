//! The WIT contract as Rust types, written by wasmtime's macro from the files in `wit/`.
//!
//! Only `convert.rs`, `instance.rs`, `imports.rs` and `manifest.rs` see these types. Arguments are
//! borrowed: an event is copied once, into the guest's memory.

// The macro's output is not ours to mend; its `unsafe` blocks are wasmtime's typed calls.
#![allow(unsafe_code, unreachable_pub, unused, missing_docs, clippy::all, clippy::unwrap_used)]

wasmtime::component::bindgen!({
    world: "haulier:relay/plugin",
    path: "../wit",
    ownership: Borrowing { duplicate_if_necessary: true },
    exports: { default: async },
    require_store_data_send: true,
});
