#!/usr/bin/env bash
# Builds {{name}}.wasm, the file that goes into Haulier's plugins folder. What it needs, and where
# HAULIER_C_TOOLS comes in, is said in sdk/build; it tells what is missing.
set -euo pipefail
cd "$(dirname "$0")"

sdk/build "{{name}}.wasm" plugin.c
echo "built {{name}}.wasm"
