#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/packages and scripts/deps.sh: the table has what the scripts use, nothing else installs, and
# every way in which a package can be missing ends as it should: with stand-ins for apt-get and id.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

rows() { grep -vE '^(#|$)' scripts/packages; }
mapfile -t shells < <(git ls-files tests scripts packaging perf 2>/dev/null | grep -E '\.(sh|bash)$')
[ ${#shells[@]} -gt 0 ] || mapfile -t shells < <(find tests scripts packaging perf -name '*.*sh')

# ---- the table ----

rows | awk '$1 != "-" { print $1 }' | sort | uniq -d >"$tmp/twice"
[ "$(rows | wc -l)" -gt 30 ] && [ ! -s "$tmp/twice" ] && rows | awk 'NF < 3 { print; bad = 1 } END { exit bad }' &&
	! rows | grep -vE '^[^ ]+ +(command|header|file|library|static|python|apt-lists):'
ok "each package once, with its proof and what uses it"

# A pattern that no part has any more would ask for something that nothing uses.
{
	tests/run.sh "$tmp/list" list
	tests/run.sh "$tmp/list" list full
} | sed -E 's,^(gcc|clang|asan|tsan|valgrind|arm64|arm64-long)/.*,\1,; s/^build-//' | sort -u >"$tmp/parts"
stray=0
while read -r pattern; do
	found=
	while read -r part; do
		# shellcheck disable=SC2053
		[[ $part != $pattern ]] || found=yes
	done < <(cat "$tmp/parts"; echo demo)
	[ -n "$found" ] || { echo "# no part is named $pattern"; stray=1; }
done < <(rows | awk '{ for (i = 3; i <= NF; i++) print $i }' | sort -u)
[ "$(wc -l <"$tmp/parts")" -gt 15 ] && [ $stray = 0 ]
ok "what uses a package is a part of the tests"

# A line that runs an installing apt-get or dpkg here, not in a root of its own.
grep -nE '(apt-get|apt|aptitude|dpkg)\b.*[" ](install|-i|--install)\b' "${shells[@]}" |
	grep -vE '^[^:]*:[0-9]+:\s*#|(in_root|sh_root|chroot) |^tests/build/test_deps\.sh:' |
	grep -v '^scripts/deps\.sh:' >"$tmp/others"
cat "$tmp/others"
[ ! -s "$tmp/others" ] && grep -q 'apt install' scripts/deps.sh
ok "nothing but scripts/deps.sh installs a package"

# Every program that a script starts is in the table, or belongs to a package of it or to one that
# such a package depends on, or to what every Debian has.
known() {
	local name=$1 path package
	rows | grep -qE " (command|static):$name( |$)" && return
	path=$(type -P "$name") || return 0 # not here: what runs it was not run either
	package=$({ dpkg -S "$(readlink -f "$path")" || dpkg -S "*bin/$name"; } 2>/dev/null |
		grep -v '^diversion' | tail -n 1)
	package=${package%%:*}
	[ -n "$package" ] || return 0 # not from a package
	dpkg-query -W -f '${Essential} ${Priority}' "$package" | grep -qE '^yes|required$' && return
	grep -qxF "$package" "$tmp/table" || { echo "# $name: package $package"; return 1; }
}
if command -v dpkg-query >/dev/null; then
	rows | awk '{ print $1 }' >"$tmp/direct"
	{
		cat "$tmp/direct"
		xargs dpkg-query -W -f '${Depends}, ${Pre-Depends}\n' <"$tmp/direct" 2>/dev/null |
			tr ',|' '\n\n' | sed 's/^ *//; s/[ :(].*//'
	} | sort -u >"$tmp/level1"
	{
		cat "$tmp/level1"
		xargs dpkg-query -W -f '${Depends}, ${Pre-Depends}\n' <"$tmp/level1" 2>/dev/null |
			tr ',|' '\n\n' | sed 's/^ *//; s/[ :(].*//'
	} | sort -u >"$tmp/table"
	# The words where a command can stand, outside texts. Not in what runs on a GPU's machine or in a
	# root of its own.
	mapfile -t here < <(printf '%s\n' "${shells[@]}" | grep -v -e '^tests/gpu/' -e '^tests/packages/root.sh')
	sed -E -e 's/(^|\s)#.*//' -e "s/'[^']*'//g" -e 's/"[^"$]*"//g' "${here[@]}" |
		grep -oE -e '^\s*[a-z][a-z0-9_.+-]+($|[ ;])' \
			-e '([|;&!(]|\$\(|\{|\b(if|then|do|else|while|env|exec|timeout [0-9]+)) *[a-z][a-z0-9_.+-]+($|[ ;)])' |
		sed -E 's/[ ;)]$//; s/.*[^a-z0-9_.+-]//' | sort -u >"$tmp/words"
	unknown=0
	while read -r word; do
		case $(type -t "$word") in file) known "$word" || unknown=1 ;; esac
	done <"$tmp/words"
	[ "$(wc -l <"$tmp/words")" -gt 100 ] && [ $unknown = 0 ]
	ok "every program that the scripts start comes with a package of the table"
else
	skip "every program that the scripts start comes with a package of the table" "no dpkg to tell the package"
fi

# ---- what is missing ----

# A machine: a table of two packages, an apt-get that writes down its calls and does what $apt says,
# a user.
mkdir "$tmp/bin"
cat >"$tmp/bin/apt-get" <<'END'
#!/bin/sh
echo "$*" >>"$FAKE/calls"
case " $* " in
*" update "*) [ "$(cat "$FAKE/apt")" != works ] || echo a-security >"$FAKE/lists"; exit 0 ;;
*" indextargets "*) cat "$FAKE/lists" 2>/dev/null; exit 0 ;;
esac
case $(cat "$FAKE/apt") in
works) touch "$FAKE/one" "$FAKE/two" ;;
half) case "$*" in *"first second"*) exit 100 ;; *" first") touch "$FAKE/one" ;; *) exit 100 ;; esac ;;
full) echo "E: You don't have enough free space in /var/cache/apt/archives/." ; exit 100 ;;
unreachable) echo "E: Failed to fetch first: Temporary failure resolving" ; exit 100 ;;
esac
END
printf '#!/bin/sh\ncat "$FAKE/user"\n' >"$tmp/bin/id"
chmod +x "$tmp/bin/apt-get" "$tmp/bin/id"
cat >"$tmp/packages" <<END
# a comment
first   file:$tmp/one   demo alpha
second  file:$tmp/two   b*
-       apt-lists:-security   lists
END
# deps USER APT ARGS...
deps() {
	rm -f "$tmp/one" "$tmp/two" "$tmp/calls" "$tmp/lists"
	echo "$1" >"$tmp/user"
	echo "$2" >"$tmp/apt"
	shift 2
	: >"$tmp/calls"
	FAKE=$tmp PACKAGES=$tmp/packages PATH=$tmp/bin:$PATH scripts/deps.sh "$@" >"$tmp/out" 2>"$tmp/err"
}
calls() { [ "$(grep -c ' install ' "$tmp/calls")" = "$1" ]; }

deps 0 works install alpha beta && calls 1 && grep -q ' install -y --no-install-recommends first second$' "$tmp/calls"
ok "root: all that is missing in one call"
deps 0 works install alpha && grep -q 'recommends first$' "$tmp/calls"
ok "what the named parts do not use is not installed"
! deps 1000 works install alpha beta && calls 0 && [ "$(wc -l <"$tmp/err")" = 1 ] &&
	grep -q 'missing: first second; run: sudo apt-get install -y --no-install-recommends first second$' "$tmp/err"
ok "not root: one line to run, and nothing is run"
for why in full unreachable; do
	! deps 0 $why install alpha beta && grep -q '^E: ' "$tmp/err" &&
		grep -q 'could not install first second' "$tmp/err" && grep -q update "$tmp/calls"
	ok "root, $why: says what is missing and why"
done
! deps 0 half install alpha beta && [ -e "$tmp/one" ] && grep -q 'could not install second *$' "$tmp/err"
ok "one that cannot be installed does not keep the others"
! deps 0 full install demo && grep -q 'could not install first *$' "$tmp/err"
ok "demo asks for its own alone"
deps 0 works install lists && calls 0 && grep -q update "$tmp/calls"
ok "root: lists of the security suite that are not there are fetched"
! deps 0 full install lists && grep -q 'could not install (package lists)' "$tmp/err"
ok "... and told, if that fails"
! deps 1000 works install lists beta && grep -q 'run: sudo apt-get update && sudo apt-get install .* second$' "$tmp/err"
ok "not root: the line to run has them"
deps 0 works missing alpha beta && [ "$(cut -f1 "$tmp/out" | paste -sd' ')" = "first second" ] && calls 0
ok "missing: tells and installs nothing"

# A compiler may be several words, as everywhere in make.
printf 'libc6-dev header:stdio.h demo\nnot-there header:no/such/header.h demo\n' >"$tmp/headers"
missing_with() { CC=$1 PACKAGES=$tmp/headers scripts/deps.sh missing demo | cut -f1; }
[ "$(missing_with 'gcc -pipe') $(missing_with 'env gcc') $(missing_with gcc)" = "not-there not-there not-there" ]
ok "a header is looked for with CC and its options"
finish
