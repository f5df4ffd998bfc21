#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Both commands of the README on a machine that has never seen the project: `make check-fresh`.
#   check-fresh.sh [--dir DIR] [bookworm] [trixie]      both if none is named
#
# For each: a minimal root of that Debian (gcc, make, ca-certificates, git, nothing else) in DIR
# (build/fresh), the last commit cloned into it, `make demo`, what `make check` installs, and `make check`. Mirrors and
# how to reach them are this machine's own. Logs and times stay in DIR; a root goes when all has passed.
# What is mounted is seen in a mount namespace alone that goes with the last process in it,
# and the processes are in a PID namespace: nothing stays mounted, however this ends.
#
# Needs root, debootstrap, some 4 GiB for each root. Ends with `N passed, N failed, N skipped`.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/common/debian.bash
. tests/common/debian.bash
dir=build/fresh suites=()
while [ $# -gt 0 ]; do
	case $1 in
	--dir) shift && dir=${1:?} ;;
	bookworm | trixie) suites+=("$1") ;;
	*) sed -n '4s/^#  *//p' "$0" >&2; exit 2 ;;
	esac
	shift
done
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie)

skip() {
	echo "$*"
	exit 77
}
[ "$(id -u)" = 0 ] || skip "only root can make a root of Debian"
command -v apt-get >/dev/null || skip "there is no apt-get, and so no mirror of Debian is known"
command -v debootstrap >/dev/null || skip "missing: debootstrap"
commit=$(git rev-parse HEAD) || exit 1
[ -z "$(git status --porcelain)" ] || echo "note: what is not committed is not in it"
mkdir -p "$dir" && dir=$(cd "$dir" && pwd) || exit 1
passed=0 failed=0

# inside ROOT COMMAND...: with a /proc, /sys and /dev; both namespaces end with this process.
inside() {
	# shellcheck disable=SC2016
	unshare --mount --propagation private --pid --fork --kill-child sh -c '
		root=$0
		mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" &&
			mount --rbind /dev "$root/dev" && mount -t tmpfs tmpfs "$root/dev/shm" || exit 99
		# not exec: process 1 collects what others leave
		chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			HOME=/root LANG=C.UTF-8 ${http_proxy:+http_proxy="$http_proxy"} \
			${https_proxy:+https_proxy="$https_proxy"} "$@"
		exit $?' "$@"
}

make_root() {
	local suite=$1 root=$2 main
	if [ -e "$root" ] && [ ! -e "$root.made" ]; then
		echo "$root was not made by this script: not removed"
		return 1
	fi
	touch "$root.made" && rm -rf --one-file-system "$root" || return
	main=$(mirror)
	[ -n "$main" ] || { echo "apt knows no mirror of Debian"; return 1; }
	# Where it mounts something, nobody else sees it.
	unshare --mount --propagation private --pid --fork --kill-child debootstrap --variant=minbase \
		--include=gcc,make,ca-certificates,git "$suite" "$root" "$main" || return
	configure "$root" "$suite" "$main"
	git clone -q --no-hardlinks . "$root/root/barcopy" &&
		git -C "$root/root/barcopy" checkout -q --detach "$commit"
}

# step SUITE NAME COMMAND...: its log, how long it took, and how it ended.
step() {
	local suite=$1 name=$2 log=$dir/$1-$2.log rc took
	shift 2
	TIMEFORMAT='%0R s, CPU: %0U s user, %0S s system'
	took=$({ time "$@" >"$log" 2>&1 </dev/null; } 2>&1; echo "$?")
	rc=${took##*$'\n'}
	took=${took%$'\n'*}
	if [ "$rc" = 0 ] && grep -E '^(\[.*\] )?SKIP .*missing:|^deps: (missing|could not)' "$log"; then
		rc="0, but something was missing"
	fi
	if [ "$rc" = 0 ]; then
		passed=$((passed + 1))
		echo "ok   $suite: $name: $took"
	else
		failed=$((failed + 1))
		echo "not ok $suite: $name: $took, exit $rc; the end of $log:"
		tail -n 40 "$log" | sed 's/^/       /'
	fi
	[ "$name" != check ] || sed -n '/^skipped:/,$p' "$log" | sed 's/^/       /'
	[ "$rc" = 0 ]
}

echo "commit $commit"
for suite in "${suites[@]}"; do
	root=$dir/$suite
	step "$suite" root make_root "$suite" "$root" || continue
	good=yes
	step "$suite" demo inside "$root" make -C /root/barcopy --no-print-directory demo || good=
	step "$suite" install inside "$root" /root/barcopy/tests/deps.sh check || good=
	step "$suite" check inside "$root" make -C /root/barcopy --no-print-directory check || good=
	[ -z "$good" ] || rm -rf --one-file-system "$root" "$root.made"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
