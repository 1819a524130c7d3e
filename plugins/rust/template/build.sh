#!/usr/bin/env bash
# Builds {{name}}.wasm, the file that goes into Haulier's plugins folder.
set -euo pipefail
cd "$(dirname "$0")"

target=wasm32-wasip2
if ! command -v cargo >/dev/null; then
    echo "Rust is missing. Install it with rustup, then run this again." >&2
    exit 1
fi
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
    if ! command -v rustup >/dev/null; then
        echo "Rust's standard library for $target is missing, and there is no rustup to add it." >&2
        echo "Install it the way Rust was installed, or with rustup." >&2
        exit 1
    fi
    rustup target add "$target"
fi

cargo build --release --target "$target" --target-dir target
# By rename, so that a host that watches this folder never sees half a file.
cp "target/$target/release/{{crate}}.wasm" "{{name}}.wasm.new"
mv "{{name}}.wasm.new" "{{name}}.wasm"
echo "built {{name}}.wasm"
