#!/bin/sh
# SPDX-License-Identifier: MIT
# The packages that `make demo` and the tests need: scripts/packages says which, what proves that one
# is there, and what uses it. Nothing else in this tree installs a package.
#
#   deps.sh install NAME...   installs what these lack: "demo", parts of tests/run.sh, or "all". As
#                             root through the distribution, in one call of apt-get; otherwise it
#                             prints the one line to run. 0: nothing is missing any more; 1: something
#                             is, and standard error says what and why
#   deps.sh missing NAME...   what they lack, one package a line: PACKAGE<tab>USED BY
#
# Debian 12 and 13; Ubuntu untested. PACKAGES= is another table, for the test.
set -u
set -f # the table holds patterns

table=${PACKAGES:-$(dirname "$0")/packages}

have() { command -v "$1" >/dev/null 2>&1; }

# Is one python3 of those that the tests choose from able to import all of $1, separated by commas?
python_has() {
	for python in python3 /usr/bin/python3; do
		have "$python" && "$python" -c "import $1" >/dev/null 2>&1 && return 0
	done
	return 1
}

# proven KIND:WHAT
proven() {
	what=${1#*:}
	# shellcheck disable=SC2016 # a format of apt-get
	case $1 in
	command:*) have "$what" ;;
	header:*) echo "#include <$what>" | ${CC:-cc} -E - >/dev/null 2>&1 ;; # CC: several words, perhaps
	file:*) (set +f && for f in $what; do [ -e "$f" ] && exit; done; exit 1) ;;
	library:*) PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -qF "$what " ;;
	static:*) have "$what" && ! readelf -lW "$(command -v "$what")" | grep -q INTERP ;;
	python:*) python_has "$what" ;;
	apt-lists:*) ! have apt-get || apt-get indextargets --format '$(CODENAME)' | grep -q -- "$what" ;;
	*) echo "deps: $table: no such proof: $1" >&2; exit 2 ;;
	esac
}

# used USES NAME...: does one of these names need it?
used() {
	uses=$1
	shift
	for name; do
		[ "$name" != all ] || return 0
		for pattern in $uses; do
			# "demo" is no part: `*` is every part.
			# shellcheck disable=SC2254
			case $name:$pattern in demo:\*) continue ;; esac
			# shellcheck disable=SC2254
			case $name in $pattern) return 0 ;; esac
		done
	done
	return 1
}

missing() {
	while read -r package proof uses; do
		case $package in '' | '#'*) continue ;; esac
		used "$uses" "$@" || continue
		proven "$proof" || printf '%s\t%s\n' "$package" "$uses"
	done <"$table"
}

# The packages of missing's lines, in one line.
names() { cut -f1 | sort -u | grep -vx -e - | tr '\n' ' ' | sed 's/ $//'; }

apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null; }

# Standard error: what apt-get said went wrong.
reason() {
	{ grep -hE '^(E|W|Err):|No space left|Temporary failure|Could not resolve' "$log" | tail -n 5; } >&2
}

install() {
	lacking=$(missing "$@")
	[ -n "$lacking" ] || return 0
	need=$(echo "$lacking" | names)
	lists=
	if echo "$lacking" | grep -q '^-'; then
		lists="the package lists of apt"
	fi
	what=$need${need:+${lists:+, }}$lists
	line=
	[ -z "$lists" ] || line="apt-get update"
	[ -z "$need" ] || line="$line${lists:+ && sudo }apt-get install -y --no-install-recommends $need"
	if ! have apt-get; then
		echo "deps: missing: $what; install them with your distribution's package manager" >&2
		return 1
	fi
	if [ "$(id -u)" != 0 ]; then
		echo "deps: missing: $what; run: sudo $line" >&2
		return 1
	fi
	echo "deps: installing $what"
	log=$(mktemp) || return 1
	trap 'rm -f "$log"' EXIT
	[ -z "$lists" ] || apt update
	# Lists that are old name files which are gone: once more with new ones. What the archive does not
	# have, or what cannot be installed, must not keep the others.
	# shellcheck disable=SC2086
	if [ -n "$need" ] && ! apt install -y --no-install-recommends $need; then
		apt update
		if ! apt install -y --no-install-recommends $need; then
			for package in $need; do
				apt install -y --no-install-recommends "$package"
			done
		fi
	fi
	lacking=$(missing "$@")
	[ -n "$lacking" ] || return 0
	reason
	echo "deps: could not install $(echo "$lacking" | cut -f1 | sed 's/^-$/(package lists)/' | sort -u |
		tr '\n' ' ')" >&2
	return 1
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
install) install "$@" ;;
missing) missing "$@" ;;
*)
	echo "usage: deps.sh install|missing NAME..." >&2
	exit 2
	;;
esac
