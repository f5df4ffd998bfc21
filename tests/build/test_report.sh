#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What make check prints: results of tests/job, and what tests/report makes of them.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
unset TESTS CI

job() { # job NAME COMMAND...: in $tmp/results
	tests/job "$tmp/results" "$@" >"$tmp/said"
}
# shown PATTERN: a line of the report
shown() { grep -qE -- "$1" "$tmp/report" || { sed 's/^/#   /' "$tmp/report"; return 1; }; }
# line N PATTERN: that line of the failure's part
line() { sed -n '/^failed: /,/^     log: /p' "$tmp/report" | sed -n "$1p" | grep -qE -- "$2" || { sed 's/^/#   /' "$tmp/report"; return 1; }; }
report() { tests/report "$tmp/results" check-ci >"$tmp/report"; }

# ---- packages ----
# A root without package lists, then one with them, which has everything but clang's run-time library.
mkdir "$tmp/bin" && cat >"$tmp/bin/apt-get" <<-END
	#!/bin/sh
	case " \$* " in
	*' update '*) : >$tmp/lists ;;
	*) echo "\$@" >>$tmp/asked; exit 1 ;;
	esac
END
printf '#!/bin/sh\n[ ! -e %s/lists ] || printf "clang\\n  Depends: clang-99\\n"\n' "$tmp" >"$tmp/bin/apt-cache"
printf '#!/bin/sh\necho 0\n' >"$tmp/bin/id"
chmod +x "$tmp"/bin/*
PATH=$tmp/bin:$PATH tests/deps.sh ci >/dev/null 2>&1
grep -q ' libclang-rt-99-dev' "$tmp/asked"
ok "deps.sh: clang's run-time library in a root without package lists"

# ---- skips ----
while IFS='|' read -r name log rc skips; do
	rm -rf "$tmp/results"
	# shellcheck disable=SC2059 # a format
	job x/y bash -c "printf '$log'; exit $rc"
	report
	[ "$(awk '/^skipped:/ { on = 1; next } /^$/ { on = 0 } on { n += $1 } END { print n + 0 }' "$tmp/report")" = "$skips" ] &&
		shown ", $skips skipped\$"
	ok "skips add up: $name"
done <<-'END'
	each with its reason|ok - a # SKIP no a\nok - b # SKIP no b\n1 passed, 0 failed, 2 skipped\n|0|2
	one without a reason|ok - a # SKIP no a\n1 passed, 0 failed, 2 skipped\n|0|2
	more reasons than the line counts|ok - a # SKIP no a\nok - b # SKIP no b\n1 passed, 0 failed, 1 skipped\n|0|1
	the whole test|no python3 here\n|77|1
	the whole test, without a word||77|1
	none|1 passed, 0 failed, 0 skipped\n|0|0
END

# ---- failures ----
while IFS='|' read -r name test log first alone; do
	rm -rf "$tmp/results"
	# shellcheck disable=SC2059 # a format
	job "$test" bash -c "printf '$log'; exit 1"
	! report && line 2 "^     $first" && [ "$(sed -n '/^failed: /,/^     log: /p' "$tmp/report" | wc -l)" -le 12 ] &&
		shown "^     log: .*/results/$test.log; alone: $alone\$"
	ok "a failure's first error is first: $name"
done <<-'END'
	a compiler, behind commands with -Werror|native/build|gcc -Werror -MMD -c a.c\na.c: In function f:\na.c:3:1: error: no x\n    3 x\nmake: *** [a.o] Error 1\n|a.c:3:1: error: no x|make check-ci
	a linker|asan/build|gcc -Werror -Wl,-z,defs -o a\n/usr/bin/ld: a.o: undefined reference to f\n|/usr/bin/ld: a.o: undefined|make check-ci
	a script|tools/x|ok - error: a\nnot ok - b\n#   why\nok - c\nnot ok - d\n1 passed, 2 failed, 0 skipped\n|not ok - b|make check-ci TESTS=tools/x
	a case of Check|asan/test_log|Running\n66%%: Checks: 3, Failures: 1, Errors: 0\ntests/unit/test_log.c:9:F:log:cut:0: Assertion\n|tests/unit/test_log.c:9:F:|make check-ci TESTS=asan/test_log
	a sanitizer|asan/test_log|begin\n==7==ERROR: AddressSanitizer: heap-use-after-free\n  #0\n|==7==ERROR: AddressSanitizer|make check-ci TESTS=asan/test_log
	nothing known|x/y|a\nb\n|a$|make check-ci TESTS=x/y
	more than ten lines|x/y|not ok - 1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n|not ok - 1|make check-ci TESTS=x/y
END
rm -rf "$tmp/results"
job a/first bash -c 'echo not ok - late; exit 1' && job z/build bash -c 'echo "a.c:1:1: error: cause"; exit 1'
! report && [ "$(sed -n 's/^failed: \([^:]*\).*/\1/p' "$tmp/report" | paste -sd' ')" = 'z/build a/first' ]
ok "a build's failure comes before those of the tests that need it"
rm -rf "$tmp/results"
! tests/report "$tmp" >"$tmp/report" && shown '^0 passed, 0 failed, 0 skipped$'
ok "no test at all is a failure"
finish
