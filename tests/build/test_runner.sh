#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What `make check` is run with: tests/common/jobs.bash and verdict.bash, on jobs and logs made up here;
# and what tests/run.sh takes. A wrong verdict here would hide every other test's failure.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

# says LOG_TEXT RC: what verdict makes of it, "PASSED FAILED SKIPPED" and the reasons
says() {
	printf '%b' "$1" >"$tmp/log"
	(
		. tests/common/verdict.bash
		verdict "$tmp/log" "$2" name
		echo "$passed $failed $skipped"
		[ ${#reasons[@]} = 0 ] || printf '%s\n' "${reasons[@]%%$'\t'*}"
	) | paste -sd'|'
}
# is NAME LOG_TEXT RC EXPECTED
is() {
	local got
	got=$(says "$2" "$3")
	[ "$got" = "$4" ] || echo "# got $got"
	[ "$got" = "$4" ]
	ok "$1"
}
is "a closing line" 'ok 1 - a\n3 passed, 0 failed\n' 0 '3 0 0'
is "a closing line with skips, and their reasons" \
	'ok 1 - a # SKIP no such CPU\nok 2 - b # SKIP no GPU\n3 passed, 0 failed, 2 skipped\n' 0 '3 0 2|no such CPU|no GPU'
is "a skip without a reason is told" '1 passed, 0 failed, 1 skipped\n' 0 '1 0 1|it does not say why'
is "a guest's reason" '# 6.1: # skipped: no table\n1 passed, 0 failed, 1 skipped\n' 0 '1 0 1|no table'
is "Check's summary" '100%: Checks: 5, Failures: 0, Errors: 0\n' 0 '5 0 0'
is "Check's summaries add up" \
	'80%: Checks: 5, Failures: 1, Errors: 0\n50%: Checks: 2, Failures: 0, Errors: 1\n' 1 '5 2 0'
is "a test of Check that returned at once is skipped" \
	'not emulated: test_a: forks\n100%: Checks: 5, Failures: 0, Errors: 0\n' 0 \
	'4 0 1|not under user-mode emulation: forks'
is "failures that are told but not in the exit status" '2 passed, 1 failed\n' 0 '2 1 0'
is "an exit status that no count tells" '2 passed, 0 failed\n' 99 '2 1 0'
is "a program that runs no test" 'hello\n' 0 '0 1 0'
is "a program that is killed" '' 137 '0 1 0'
is "exit 77" 'no GPU: no libcuda.so.1\n' 77 '0 0 1|no GPU: no libcuda.so.1'

# Jobs: those of $1, one a line, NAME NEEDS; each ends with the status in its name, and what ran when
# is in $tmp/ran.
jobs_of() {
	rm -rf "$tmp/logs" "$tmp/ran"
	mkdir "$tmp/logs"
	(
		logs=$tmp/logs
		. tests/common/verdict.bash
		. tests/common/jobs.bash
		beat=1
		run_job() {
			echo "start $1" >>"$tmp/ran"
			[[ $1 != *slow* ]] || sleep 0.5
			[[ $1 != *killed* ]] || kill -9 "$BASHPID"
			echo "said by $1"
			echo "end $1" >>"$tmp/ran"
			return "${1##*-}"
		}
		ended() {
			case $2 in
			0) passed_alone "$1" ;;
			needs) failed_alone "$1" "" "not run: ${needs[$1]} failed" ;;
			*) failed_alone "$1" "$(log_of "$1")" "exit $2" ;;
			esac
			progress "$done_count" "$line"
			[ "$2" = 0 ]
		}
		while read -r name need; do
			add "$name" "$need"
		done <<<"$1"
		jobs_run "${2:-2}"
		summary
		echo "exit $?"
	) >"$tmp/out" 2>&1
	tail -n 2 "$tmp/out" | paste -sd'|'
}
[ "$(jobs_of $'a-0\nb-0 a-0\nc-0 b-0')" = '3 passed, 0 failed, 0 skipped|exit 0' ] &&
	[ "$(paste -sd' ' "$tmp/ran")" = 'start a-0 end a-0 start b-0 end b-0 start c-0 end c-0' ]
ok "what is needed ends first"
[ "$(jobs_of $'slow-a-0\nslow-b-0')" = '2 passed, 0 failed, 0 skipped|exit 0' ] &&
	[ "$(head -n 2 "$tmp/ran" | cut -d' ' -f1 | paste -sd' ')" = 'start start' ]
ok "jobs run beside each other"
[ "$(jobs_of $'slow-a-0\nslow-b-0' 1)" = '2 passed, 0 failed, 0 skipped|exit 0' ] &&
	[ "$(head -n 2 "$tmp/ran" | cut -d' ' -f1 | paste -sd' ')" = 'start end' ]
ok "no more at once than are asked for"
[ "$(jobs_of $'a-3\nb-0 a-3\nc-0 b-0\nd-0')" = '1 passed, 3 failed, 0 skipped|exit 1' ] &&
	! grep -qE 'start [bc]-0' "$tmp/ran" && grep -q '  b-0: not run: a-3 failed$' "$tmp/out"
ok "what needs something that failed is not run, and told"
grep -q '^  a-3: exit 3; .*/a-3.log$' "$tmp/out" && grep -q '^       said by a-3$' "$tmp/out"
ok "a failure is told at the end, with its log's last lines"
grep -qE '^\[ *4/4 +[0-9]+:[0-9]{2}\] ' "$tmp/out"
ok "lines say how far it has come"
[ "$(awk 'NF == 5 && $4 == 3 && $5 == "a-3"' "$tmp/logs/times" | wc -l)" = 1 ]
ok "what each took is kept"

[ "$(jobs_of $'a-0\nkilled-b-0\nc-0 killed-b-0' 1)" = '1 passed, 2 failed, 0 skipped|exit 1' ] &&
	grep -q '  killed-b-0: exit 137; ' "$tmp/out"
ok "a job that is killed has failed"

# ---- tests/run.sh ----

run() { TESTS=$1 tests/run.sh "$tmp/run" >"$tmp/out" 2>&1; }
# Stopped in the midst of a test, it ends that, and does not claim to have passed.
TESTS=build/test_kernel_tiers tests/run.sh "$tmp/run" >"$tmp/out" 2>&1 &
until [ -e "$tmp/run/logs/build_test_kernel_tiers.log" ] || ! kill -0 $!; do sleep 0.05; done
kill $!
! wait $! && grep -q '^  stopped: 0 of 1 had run$' "$tmp/out" && grep -q '^0 passed, 1 failed, 0 skipped$' "$tmp/out"
ok "a run that is stopped has failed"
! run no-such-test && grep -q "no test matches TESTS='no-such-test'" "$tmp/out"
ok "TESTS= that matches nothing is an error"
run build/test_find_nvidia && grep -qE '^[1-9][0-9]* passed, 0 failed, 0 skipped$' <(tail -n 1 "$tmp/out") &&
	! grep -qE '(asan|tsan|gcc)/|kernel' "$tmp/out"
ok "TESTS= takes what matches, and nothing else"
# A part that lacks a package, as root and not.
sed "s,^make  *command:make,no-such-package-here command:no-such-command-here," scripts/packages >"$tmp/packages"
mkdir "$tmp/bin"
printf '#!/bin/sh\necho "$*" >>%s/installs\necho "E: Unable to locate package"\nexit 100\n' "$tmp" >"$tmp/bin/apt-get"
printf '#!/bin/sh\necho "${FAKE_USER:?}"\n' >"$tmp/bin/id"
chmod +x "$tmp/bin/"*
lacking() { PATH=$tmp/bin:$PATH PACKAGES=$tmp/packages CI=$2 FAKE_USER=$1 run build/test_find_nvidia; }
lacking 1000 '' && grep -q '^SKIP build/test_find_nvidia: missing: no-such-package-here$' "$tmp/out" &&
	[ ! -e "$tmp/installs" ] && grep -q '^     1  missing: no-such-package-here (' "$tmp/out"
ok "not root: skipped, by name, with the reason"
! lacking 0 '' && grep -q '^FAIL build/test_find_nvidia: not run: missing no-such-package-here$' "$tmp/out" &&
	grep -q '^E: Unable to locate' "$tmp/out" && grep -qE '^0 passed, [12] failed' "$tmp/out"
ok "root, and it could not be installed: failed, by name"
! lacking 1000 true && grep -q '^FAIL build/test_find_nvidia' "$tmp/out"
ok "CI=true: no skipping"
finish
