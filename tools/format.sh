#!/bin/sh
# Fails when a Go file is not as gofmt writes it.
set -eu
cd "$(dirname "$0")/.."
unformatted=$(find . \( -name .git -o -name bin -o -name .scratch \) -prune -o -name '*.go' -print | xargs -r gofmt -l)
[ -z "$unformatted" ] && exit 0
echo "not formatted (run: gofmt -w FILE):" >&2
echo "$unformatted" >&2
exit 1
