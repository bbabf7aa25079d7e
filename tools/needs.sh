#!/bin/sh
# What the tests need beyond Go, git and make: commands, with the Debian packages that hold them.
#
#   tools/needs.sh install    root: installs what is missing; others: says what is missing and what that leaves out
#   tools/needs.sh complete   says nothing; succeeds for root with everything there
set -u
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# command or file, package
needs='
gcc                     gcc
/usr/include/stdlib.h   libc6-dev
systemd-nspawn          systemd-container
mmdebstrap              mmdebstrap
apt-ftparchive          apt-utils
gpg                     gpg
gpg-agent               gpg-agent
dpkg-deb                dpkg
strace                  strace
setfacl                 acl
setfattr                attr
mkfs.ext4               e2fsprogs
chattr                  e2fsprogs
dbus-daemon             dbus
ip                      iproute2
dig                     bind9-dnsutils
ps                      procps
mount                   mount
nsenter                 util-linux
setpriv                 util-linux
ssh                     openssh-client
sshd                    openssh-server
runc                    runc
/usr/lib/cni/bridge     containernetworking-plugins
/usr/sbin/iptables      iptables
'

# The same, for what is tested only where it can be had.
wishes='
dnf-3                   dnf
rpmbuild                rpm
createrepo_c            createrepo-c
'

# Programs of packages that would change how this machine works if they were installed (systemd-resolved takes its names over, prometheus
# serves what it scrapes to everybody). They are
# unpacked beside, for tests to start.
unpacked=${TAKO_TEST_CACHE:-/var/cache/tako-test}/unpacked
beside='
prometheus
systemd-resolved
'

not_unpacked() {
	for package in $beside; do
		[ -d "$unpacked/.$package" ] || echo "$package"
	done | tr '\n' ' '
}

unpack() {
	to=$(mktemp -d) || return 1
	(
		# apt-get downloads into the directory where it is, as a user who may not write there unless it is told otherwise.
		cd "$to" && apt-get -q -o APT::Sandbox::User=root download "$1" && mkdir -p "$unpacked" && dpkg-deb -x ./*.deb "$unpacked" && mkdir "$unpacked/.$1"
	)
	status=$?
	rm -rf "$to"
	return $status
}

missing() {
	echo "$1" | while read -r what package; do
		case $what in
		'') continue ;;
		/*) [ -e "$what" ] && continue ;;
		*) command -v "$what" >/dev/null 2>&1 && continue ;;
		esac
		echo "$package"
	done | sort -u | tr '\n' ' '
}

# Mirrors are busy at times: three tries, further apart each time.
try() {
	for pause in 5 20 0; do
		"$@" && return 0
		[ "$pause" = 0 ] || sleep "$pause"
	done
	return 1
}

packages=$(missing "$needs")
wanted=$(missing "$wishes")
is_root() { [ "$(id -u)" = 0 ]; }

case ${1:-} in
complete)
	is_root && [ -z "$packages$wanted$(not_unpacked)" ]
	;;
install)
	if [ -z "$packages$wanted$(not_unpacked)" ]; then
		is_root || echo "needs: not root: tests that need root will be skipped, and are not counted as passed" >&2
		exit 0
	fi
	if ! is_root || ! command -v apt-get >/dev/null 2>&1; then
		echo "needs: missing: $packages$wanted$(not_unpacked)" >&2
		echo "needs: what needs these, or root, will be skipped, and is not counted as passed; as root on Debian: $0 install" >&2
		exit 0
	fi
	echo "needs: installing $packages$wanted"
	export DEBIAN_FRONTEND=noninteractive
	try apt-get -q -y -o Acquire::Retries=3 update || exit 1
	# Both are lists of words.
	# shellcheck disable=SC2086
	[ -z "$packages" ] || try apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 install --no-install-recommends $packages </dev/null || exit 1
	packages=$(missing "$needs")
	[ -z "$packages" ] || { echo "needs: still missing: $packages" >&2; exit 1; }
	# shellcheck disable=SC2086
	[ -z "$wanted" ] || apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 install --no-install-recommends $wanted </dev/null ||
		echo "needs: cannot be had here: $wanted; what needs these will be skipped, and is not counted as passed" >&2
	for package in $(not_unpacked); do
		unpack "$package" || echo "needs: cannot be had here: $package; what needs it will be skipped, and is not counted as passed" >&2
	done
	;;
*)
	echo "usage: $0 install|complete" >&2
	exit 2
	;;
esac
