#!/bin/sh
# Runs every fuzz target for a while, one after the other: tools/fuzz.sh 10s
# What is found is kept by go test under testdata/fuzz of the target's package, and is from then on a test.
set -eu
cd "$(dirname "$0")/.."
time=${1:?usage: $0 TIME}
status=0

# go test -list prints the targets of a package, then a line that begins with "ok" and names it. What does not build ends it here.
list=$(go test -list '^Fuzz' ./...) || { echo "$list" >&2; exit 1; }
targets=$(echo "$list" | awk '
	/^Fuzz/    { names = names " " $1 }
	$1 == "ok" { n = split(names, a, " "); for (i = 1; i <= n; i++) print $2, a[i]; names = "" }')
[ -n "$targets" ] || { echo "fuzz: no targets" >&2; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The status is that of go test, not of tee.
fuzz() {
	{ go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$package" </dev/null 2>&1 || : >"$log.red"; } | tee "$log"
	if [ -e "$log.red" ]; then rm "$log.red"; return 1; fi
}

# Up to Go 1.26 a target may fail as its time ends, with nothing found (golang/go issue 75804): it gets a second try.
raced() { grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log"; }

while read -r package name; do
	echo "== $package $name for $time"
	fuzz || { raced && fuzz; } || status=1
done <<EOF
$targets
EOF
exit $status
