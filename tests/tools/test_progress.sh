#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# On a terminal no tool and no make target is silent for long: one line on standard error, rewritten, and gone before any
# other output; none elsewhere, with --json or -q. Usage: test_progress.sh BUILD_DIR SIM_DIR [refresh]: that writes
# progress.txt.
# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { skip "progress" "no python3"; finish; }
drawn=$tmp/drawn
export GDRSIM_DRIVER_VERSION=13030 TERM=xterm
unset COLUMNS BEHIND TESTS

on_terminal() { # on_terminal COMMAND...: as run() does it; $drawn has the lines that are gone again, $out the others
	: >"$drawn"
	python3 -B "$here/term.py" "$drawn" "$@" >"$out" 2>"$err"
	rc=$?
}

# ---- tools --------------------------------------------------------------------------------------
# TOOL and options | a line that it draws | a line that stays
while IFS='|' read -r command pattern stays; do
	# shellcheck disable=SC2086 # several words
	on_terminal "$build"/$command --sim "$sim"
	expect "$command: on a terminal" 0 "$stays"
	check "$command: draws /$pattern/" grep -qE "^$pattern" "$drawn"
	check "$command: nothing of that line stays" eval '! grep -qFf "$drawn" "$out"'
	case $command in
	*copylat* | *pplat* | copybench*) ;; # what they measure next hangs on what they have measured
	*) sed -E 's/[0-9]+ s left/N s left/' "$drawn" | uniq >>"$tmp/lines" ;;
	esac
done <<-'END'
	gdrcopy_copybw -w 3 -r 3 -l -s 64|gdrcopy_copybw: reads of 32 bytes: 11 of 14, [0-9]+ s left$|^ +32 
	gdrcopy_copylat -w 3 -r 3 -s 64 -c|gdrcopy_copylat: reads of 2 bytes, cuMemcpy_pinned: 26 of 42, [0-9]+ s left$|^ +64 
	gdrcopy_copylat -w 0 -r 3 -s 4K -E|gdrcopy_copylat: reads of 2048 bytes by the engine and by the CPU$|^engine_read_min
	gdrcopy_apiperf -n 3 -s 128K|gdrcopy_apiperf: 3 rounds of 131072 bytes: 1 of 2, |^131072 bytes$
	gdrcopy_pplat -t 3 -u 60|gdrcopy_pplat: 3 round trips$|^ +3 
	gdrcopy_pplat -t 3 -u 60 -q|gdrcopy_pplat: launch a kernel, synchronise: 5 of 11, |^a send of
	gdrcopy_sanity -t basic -t words|gdrcopy_sanity: test words: 1 of 2, [0-9]+ s left$|^ok +words$
	gdrcopy_doctor|gdrcopy_doctor: each backend is tried on GPU 0: 2 of 4, |can be mapped on 1 of 1 GPU
	copybench --max 4K --rounds 1 -s engine|copybench: copy engine, reads: 4K$|"tables": 
END
stored "the lines that are drawn are those of progress.txt" "$here/progress.txt" "$tmp/lines" "${3-}"
[ "${3-}" != refresh ] || finish
while read -r command; do
	# shellcheck disable=SC2086 # several words
	on_terminal "$build"/$command --sim "$sim"
	expect "$command: succeeds" 0
	check "$command: draws nothing" [ ! -s "$drawn" ]
done <<-'END'
	gdrcopy_copybw -w 3 -r 3 --json
	gdrcopy_pplat -t 3 -u 60 --json
	gdrcopy_apiperf -n 3 --json
	gdrcopy_sanity -t basic --json
	gdrcopy_sanity -t basic -q
	gdrcopy_doctor --json
	copybench --max 4K --rounds 1 -s engine --json
END
TERM=dumb on_terminal "$build/gdrcopy_copybw" -w 3 -r 3 --sim "$sim"
check "copybw: draws nothing on a terminal that knows no escape sequences" [ ! -s "$drawn" ]
check "copybw: draws nothing where standard error is no terminal" \
	eval '! "$build/gdrcopy_copybw" -w 3 -r 3 --sim "$sim" 2>&1 >/dev/null | grep -q "[[:cntrl:]]"'
BEHIND=1 on_terminal "$build/gdrcopy_copybw" -w 3 -r 3 --sim "$sim"
expect "copybw: in the background: goes on" 0 'all data verified'
check "copybw: in the background: draws nothing" [ ! -s "$drawn" ]
COLUMNS=30 on_terminal "$build/gdrcopy_copybw" -w 3 -r 3 --sim "$sim"
check "copybw: one row of a narrow terminal" [ "$(awk '{ print length }' "$drawn" | sort -n | tail -n 1)" = 29 ]
on_terminal env GDRSIM_DEVICES=0 "$build/gdrcopy_copybw" --sim "$sim"
expect "copybw: an error begins a line" 2 '^gdrcopy_copybw: cannot run here: cuInit'
on_terminal env GDRSIM_DEVICES=0 "$build/gdrcopy_sanity" --sim "$sim"
expect "sanity: an error of a child begins a line" 2 '^gdrcopy_sanity: cannot run here: cuInit'
if ${CC:-cc} -shared -fPIC -D_GNU_SOURCE= -I"$root/include" -o "$tmp/faulty.so" "$here/faulty.c" -ldl 2>"$err"; then
	on_terminal env FAULT=hang LD_PRELOAD="$tmp/faulty.so" "$build/gdrcopy_sanity" --sim "$sim" -t versions -t pointer --timeout 3
	expect "sanity: a test that hangs" 1 '^FAILED +pointer: not finished after 3 s$'
	check "sanity: a test that hangs: the line is drawn each second" [ "$(grep -c 'test pointer: 0 of 2' "$drawn")" -ge 2 ]
else
	skip "sanity: a test that hangs" "no compiler"
fi

# ---- make targets: tests/common/progress.sh ----------------------------------------------------------
cd "$root" || exit 1
cat >"$tmp/target" <<-'END'
	. tests/common/progress.sh
	log=$1/log
	case $2 in
	log) progress NAME "$log" sh -c 'for i in 1 2 3; do echo "line $i" && sleep 0.7; done; exit '"$3" ;;
	lines) progress -s -n 9 -r "$1/results" NAME "$log" sh -c '
		tests/job '"$1"'/results a/first echo "1 passed, 0 failed"
		tests/job '"$1"'/results b/second sh -c "sleep 3; echo 1 passed, 0 failed"; exit '"$3" ;;
	esac
	echo "status $?"
	sleep ${LINGER:-0}
END
target() { # target SHELL KIND EXIT_STATUS
	rm -rf "$tmp/results"
	on_terminal "$1" "$tmp/target" "$tmp" "$2" "$3"
}
for shell in sh bash; do
	rm -f "$tmp/log"*
	target $shell log 3
	expect "make targets: $shell: the exit status" 0 '^status 3$'
	check "make targets: $shell: the output is in the log alone" [ "$(cat "$tmp/log")" = $'line 1\nline 2\nline 3' ]
	check "make targets: $shell: the first run has no end" grep -qxE 'NAME: line [123]: [0-9]+ s' "$drawn"
	check "make targets: $shell: what failed is no measure" [ ! -e "$tmp/log.took" ]
done
mkdir "$tmp/slow"
printf '#!/bin/sh\nsleep 0.9\nexec %s "$@"\n' "$(command -v wc)" >"$tmp/slow/wc"
chmod +x "$tmp/slow/wc"
LINGER=1 PATH=$tmp/slow:$PATH target sh log 3
check "make targets: a program whose reader has ended says nothing" eval '! grep -q wc "$drawn" "$out"'
echo '3 60' >"$tmp/log.took"
target sh log 0
check "make targets: after a run that succeeded: how far" grep -qE '^NAME: line [123]: [123] of 3, [0-9]+ s left$' "$drawn"
check "make targets: nothing stays" [ "$(cat "$out")" = 'status 0' ]
check "make targets: how long it took" grep -qx '3 [0-9]' "$tmp/log.took"
rm -f "$tmp/log"*
target sh lines 5
expect "make targets: tests: the exit status" 0 '^status 5$'
check "make targets: tests: their lines stay" [ "$(grep -c '^ok   [ab]/' "$out")" = 2 ]
check "make targets: tests: what runs, and how far" grep -qE '^NAME: b/second: 1 of 9, [0-9]+ s$' "$drawn"
check "make targets: nothing where standard error is no terminal" eval '! sh "$tmp/target" "$tmp" lines 0 2>&1 | grep "[[:cntrl:]]"'
finish
