#!/bin/sh
# Runs fuzz targets for a while each, two at a time: tools/fuzz.sh [-json] TIME [PACKAGE...]
# Without packages it runs those of all. With -json it prints what go test -json does, for testsum. What is found is kept by go test under
# testdata/fuzz of the target's package, and is from then on a test.
set -eu

# Up to Go 1.26 a target may fail as its time ends, with nothing found (golang/go issue 75804): it gets a second try.
raced() { grep -q 'context deadline exceeded' "$1" && ! grep -q 'Failing input' "$1"; }

# one runs a target, and prints what it has said as a whole: two run at the same time.
one() {
	json=$1 time=$2 workers=$3 lock=$4 package=$5 name=$6 status=0
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	for try in 1 2; do
		status=0
		go test $json -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 10x -parallel "$workers" "$package" </dev/null >"$log" 2>&1 || status=1
		[ "$status" = 1 ] && raced "$log" || break
	done
	[ -n "$json" ] || echo "== $package $name for $time, try $try" | cat - "$log" | flock "$lock" cat
	[ -z "$json" ] || flock "$lock" cat "$log"
	return "$status"
}

if [ "${1-}" = -one ]; then
	shift
	one "$@"
	exit
fi

cd "$(dirname "$0")/.."
json=
if [ "${1-}" = -json ]; then json=-json; shift; fi
time=${1:?usage: $0 [-json] TIME [PACKAGE...]}
shift
[ $# -gt 0 ] || set -- ./...

# go test -list prints the targets of a package, then a line that begins with "ok" and names it. What does not build ends it here.
list=$(go test -list '^Fuzz' "$@") || { echo "$list" >&2; exit 1; }
targets=$(echo "$list" | awk '
	/^Fuzz/    { names = names " " $1 }
	$1 == "ok" { n = split(names, a, " "); for (i = 1; i <= n; i++) print $2, a[i]; names = "" }')
[ -n "$targets" ] || { echo "fuzz: no targets" >&2; exit 1; }

lock=$(mktemp)
trap 'rm -f "$lock"' EXIT
workers=$(($(nproc) / 2))
[ "$workers" -gt 0 ] || workers=1
# xargs fails when one of them does.
echo "$targets" | xargs -P 2 -L 1 tools/fuzz.sh -one "$json" "$time" "$workers" "$lock"
