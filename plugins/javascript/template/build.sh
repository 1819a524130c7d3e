#!/usr/bin/env bash
# Builds {{name}}.wasm.
#
# The tool that makes the component is installed here once, as package-lock.json pins it; one that is
# installed elsewhere is used instead if HAULIER_JS_TOOLS names the folder that has its node_modules.
# Needs node 18 or later with npm.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

tools=${HAULIER_JS_TOOLS:-.}
if [ ! -e "$tools/node_modules/.bin/componentize-qjs" ]; then
    command -v npm >/dev/null || { echo "npm is missing; install node 18 or later with npm" >&2; exit 1; }
    npm ci --no-audit --no-fund
    tools=.
fi

# --stub-wasi: a plugin may import nothing but the contract. --sync: nor does the host offer async.
"$tools/node_modules/.bin/componentize-qjs" --wit wit --js plugin.js --module-root . \
    --sync --stub-wasi --output "{{name}}.wasm"
