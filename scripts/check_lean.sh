#!/usr/bin/env bash
# Checks every Lean proof; says which toolchain checked. --update rewrites formal/STATEMENTS.md first.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
"$python" -c 'import certhead.conformance' 2>/dev/null || { echo "$python lacks certhead: run 'make env' first" >&2; exit 1; }
exec "$python" -m certhead.conformance.prove "$@"
