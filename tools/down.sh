#!/bin/sh
# Stops what tools/up.sh runs, if it runs, and removes everything that building, running and testing left in the tree.
set -eu
cd "$(dirname "$0")/.."
if [ -e .scratch/up ]; then
	[ -x bin/tako ] || CGO_ENABLED=0 go build -o bin/tako ./cmd/tako
	bin/tako down --purge --dir .scratch/up
fi
rm -rf .scratch bin cases.json
