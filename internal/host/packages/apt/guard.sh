# Runs the command in its arguments where services that are not running are not started by maintainer scripts, and ends as
# it does. It expects a mount namespace of its own from which nothing propagates.
#
# Debian's tools ask /usr/sbin/policy-rc.d before they act on a service. Ours is mounted over it. A mount needs something
# to be mounted on: where there is no such file, an empty one stands in, which nobody asks because it is not executable, and
# which goes at the end, or at the end of the next run if this one is killed.
set -e
umask 022
policy=/usr/sbin/policy-rc.d
dir=/run/tako-packages
mark='# Stands in for a mount of tako-agent and has no effect. It can be removed.'

mkdir -p "$dir"
mount -t tmpfs -o mode=0755 tako "$dir"
if [ -x "$policy" ]; then cp "$policy" "$dir/before"; chmod 755 "$dir/before"; fi
if [ -d /run/systemd/system ]; then
	systemctl list-units --state=active,activating,reloading --plain --no-legend --no-pager --full >"$dir/units"
	sed 's/ .*//' "$dir/units" >"$dir/active"
fi
touch "$dir/active"
cat >"$dir/policy" <<'POLICY'
#!/bin/sh
# $1 is a service, with or without .service; $2 is what is to be done with it.
case "$2" in
*start*) grep -Fqx -e "$1" -e "$1.service" /run/tako-packages/active || exit 101 ;;
esac
if [ -x /run/tako-packages/before ]; then exec /run/tako-packages/before "$@"; fi
exit 0
POLICY
chmod 755 "$dir/policy"
[ -e "$policy" ] || echo "$mark" >"$policy"
mount --bind "$dir/policy" "$policy"

status=0
"$@" || status=$?

umount -l "$policy" "$dir" || :
if [ -f "$policy" ] && [ "$(head -n 1 "$policy")" = "$mark" ]; then rm -f "$policy"; fi
rmdir "$dir" || :
exit "$status"
