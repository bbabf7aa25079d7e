#!/bin/sh
# Runs fuzz targets for a while each, two at a time: tools/fuzz.sh [-json] TIME [PACKAGE...]
# Without packages it runs those of all. With -json it prints what go test -json does, for testsum. What is found is kept under
# testdata/fuzz of the target's package, and is from then on a test.
#
# A package is built once, as go test -fuzz does it, and then run for each of its targets: go test alone would link it for each again.
set -eu

# Up to Go 1.26 a target may fail as its time ends, with nothing found (golang/go issue 75804): it gets a second try.
raced() { grep -q 'context deadline exceeded' "$1" && ! grep -q 'Failing input' "$1"; }

# one runs a target, and prints what it has said as a whole: two run at the same time.
one() {
	package=$1 dir=$2 name=$3
	log=$(mktemp -p "$scratch")
	set -- "$scratch/$package.test" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$time" -test.fuzzminimizetime 10x \
		-test.fuzzcachedir "$corpora/$package" -test.parallel "$workers" -test.paniconexit0
	[ -z "$json" ] || set -- go tool test2json -t -p "$package" "$@" -test.v=test2json
	for try in 1 2; do
		status=0
		# What is found is written below the directory where the target runs.
		(cd "$dir" && "$@") </dev/null >"$log" 2>&1 || status=1
		[ "$status" = 1 ] && raced "$log" || break
	done
	[ -n "$json" ] || echo "== $package $name for $time, try $try" | cat - "$log" | flock "$scratch/lock" cat
	[ -z "$json" ] || flock "$scratch/lock" cat "$log"
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

# Where go test has it too: what a run has found interesting, the next begins with.
corpora=$(go env GOCACHE)/fuzz
workers=$(($(nproc) / 2))
[ "$workers" -gt 0 ] || workers=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export json time workers scratch corpora

# What does not build ends it here. A package's targets run while the next one is built.
packages=$(go list -f '{{.ImportPath}} .{{slice .Dir (len .Module.Dir)}}' "$@")
targets() {
	echo "$packages" | while read -r package dir; do
		grep -qs '^func Fuzz' "$dir"/*_test.go || continue
		program=$scratch/$package.test
		mkdir -p "$(dirname "$program")"
		go test -c -fuzz . -vet=off -ldflags '-s -w' -o "$program" "$package" >&2
		names=$(cd "$dir" && "$program" -test.list '^Fuzz')
		for name in $names; do echo "$package" "$dir" "$name"; done
	done
	: >"$scratch/built"
}

# xargs fails when one of them does.
targets | tee "$scratch/targets" | xargs -r -P 2 -L 1 tools/fuzz.sh -one
[ -e "$scratch/built" ] || { echo "fuzz: a package is not built" >&2; exit 1; }
[ -s "$scratch/targets" ] || { echo "fuzz: no targets" >&2; exit 1; }
