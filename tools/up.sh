#!/bin/sh
# Runs the agent on examples/hello under a scratch root, without privileges, and says what to try. Ctrl-C, or tools/down.sh from
# elsewhere, stops it. Needs no terminal and no standard input.
set -u
cd "$(dirname "$0")/.."

agent=bin/tako-agent
root=.scratch/hello
pidfile=.scratch/agent.pid
# Converging takes well under a second; a machine that is busy building something may need more.
converge_seconds=30

if [ -e "$pidfile" ] && kill -0 "$(cat "$pidfile")" 2>/dev/null; then
	echo "up: already running as process $(cat "$pidfile"); make down stops it" >&2
	exit 1
fi

mkdir -p "$root"
$agent converge -f examples/hello --watch --root "$root" </dev/null &
pid=$!
echo "$pid" >"$pidfile"

stop() {
	trap '' INT TERM HUP
	kill -TERM "$pid" 2>/dev/null
	wait "$pid"
	rm -f "$pidfile"
	exit "$1"
}
trap 'stop 0' INT TERM HUP

# The agent's own state, and the folders that lead to it, are no part of what was declared.
made() {
	(cd "$root" && find . \( -path ./var/lib/tako -o -path ./run/tako \) -prune -o "$@" \
		! -path . ! -path ./var ! -path ./var/lib ! -path ./run -print | sed 's|^\.||' | sort)
}

tries=$((converge_seconds * 5))
while :; do
	if ! kill -0 "$pid" 2>/dev/null; then
		wait "$pid"
		status=$?
		rm -f "$pidfile"
		echo "up: the agent ended with status $status" >&2
		exit 1
	fi
	$agent status --root "$root" >/dev/null 2>&1 && break
	tries=$((tries - 1))
	if [ "$tries" -le 0 ]; then
		echo "up: not converged within $converge_seconds s:" >&2
		$agent status --root "$root" >&2
		stop 1
	fi
	sleep 0.2
done

file=$(made -type f | head -n 1)
echo
echo "Converged. tako made this under $root, and keeps it so:"
echo
made | sed 's|^|  |'
cat <<EOF

Three things to try, in another terminal in $(pwd):

  1. Delete a managed file, and see it back:
       rm $root$file; sleep 0.1; cat $root$file

  2. Edit one, and see your edit undone:
       echo mine >> $root$file; sleep 0.1; cat $root$file

  3. Ask why it is as it is:
       $agent why $file --root $root

Ctrl-C stops it; make down stops it and removes everything that it made.
EOF

wait "$pid"
status=$?
rm -f "$pidfile"
exit "$status"
