#!/bin/sh
# Stops what tools/up.sh runs, if it runs, and removes everything that building, running and testing left in the tree.
set -u
cd "$(dirname "$0")/.."
pidfile=.scratch/agent.pid
# The agent finishes the write it is in; nothing it does on stopping takes longer.
stop_seconds=10

# The number in the file may by now be another's: only a process that runs our binary is ours.
ours() { [ "$(readlink "/proc/$1/exe" 2>/dev/null | sed 's/ (deleted)$//')" = "$(pwd -P)/bin/tako-agent" ]; }

if [ -e "$pidfile" ]; then
	pid=$(cat "$pidfile")
	if ours "$pid"; then
		kill -TERM "$pid"
		tries=$((stop_seconds * 10))
		while ours "$pid" && [ "$tries" -gt 0 ]; do
			tries=$((tries - 1))
			sleep 0.1
		done
		if ours "$pid"; then
			echo "down: process $pid did not stop within $stop_seconds s: killed" >&2
			kill -KILL "$pid"
		fi
	fi
fi
rm -rf .scratch bin cases.json
