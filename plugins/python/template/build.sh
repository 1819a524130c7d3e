#!/usr/bin/env bash
# Builds {{name}}.wasm.
#
# The tool that makes the component is installed into .tools once, as requirements.txt pins it; one that
# is installed elsewhere is used instead if HAULIER_PY_TOOLS names its virtual environment. Needs
# python 3.9 or later with venv and pip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

tools=${HAULIER_PY_TOOLS:-.tools}
if [ ! -e "$tools/bin/componentize-py" ]; then
    command -v python3 >/dev/null || { echo "python3 is missing; install python 3.9 or later" >&2; exit 1; }
    tools=.tools
    python3 -m venv "$tools" ||
        { echo "python3 cannot make virtual environments; install its venv module (python3-venv)" >&2; exit 1; }
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        --requirement requirements.txt
fi

# --stub-wasi: a plugin may import nothing but the contract.
"$tools/bin/componentize-py" --wit-path wit --world plugin componentize --stub-wasi \
    --python-path . --output "{{name}}.wasm" plugin
