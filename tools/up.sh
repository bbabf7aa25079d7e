#!/bin/sh
# Runs a server and a sandboxed agent on examples/hello, without privileges, and says what to try. Ctrl-C, or tools/down.sh from
# elsewhere, stops them. Needs no terminal and no standard input.
set -eu
cd "$(dirname "$0")/.."
exec bin/tako up --dir .scratch/up -f examples/hello
