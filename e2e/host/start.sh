# Starts a host: start NAME DIR USR BRIDGE CGROUP...
# Runs as the first process of a PID namespace and a mount namespace, in the network namespace of the lab.
set -eu
name=$1 dir=$2 usr=$3 bridge=$4
shift 4
for cgroup; do
	echo 0 >"$cgroup/cgroup.procs"
done
mount --make-rprivate /
mount -t proc proc /proc
# nspawn keeps its locks by name here, and two labs may have hosts of one name.
mkdir -p /run/systemd/nspawn
mount -t tmpfs -o mode=0755 tmpfs /run/systemd/nspawn
mount -t overlay -o "lowerdir=$usr,upperdir=$dir/usr,workdir=$dir/usr.work,redirect_dir=on" overlay "$dir/disk/usr"
# A container may not use fanotify unless told so; root of a real host may.
exec systemd-nspawn --quiet --boot --directory="$dir/disk" --machine="$name" --network-bridge="$bridge" \
	--register=no --keep-unit --console=read-only --setenv=SYSTEMD_COLORS=0 --resolv-conf=off --timezone=off \
	--system-call-filter="fanotify_init fanotify_mark" </dev/null
