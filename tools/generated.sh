#!/bin/sh
# Fails when generating changes a generated file. It compares contents before and after, so that it also works in a tree with
# changes that are not committed yet.
set -eu
cd "$(dirname "$0")/.."

sums() {
	grep -rlE '^(//|#|<!--) Code generated .* DO NOT EDIT' --exclude-dir=.git --exclude-dir=bin --exclude-dir=.scratch . | sort | xargs -r sha256sum
}

before=$(sums || true)
tools/generate.sh
after=$(sums || true)
[ "$before" = "$after" ] && exit 0
echo "generated files were not up to date; now they are (run: make generate, and commit them):" >&2
printf '%s\n%s\n' "$before" "$after" | sort | uniq -u | awk '{ print "  " $2 }' | sort -u >&2
exit 1
