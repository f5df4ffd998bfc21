# SPDX-License-Identifier: MIT
# For the tests of the tools, sourced: a run of a tool, judgements in the form of TAP, the closing
# line. Sets here, root, build, sim (from the two arguments), tmp, out, err. A test's comments on a
# failure leave out the lines of stdout that match $hide.
# shellcheck shell=sh disable=SC2034 # used by the script that sources this

if [ $# -ne 2 ]; then
	echo "usage: $0 BUILD_DIR SIM_DIR" >&2
	exit 1
fi
build=$(cd "$1" && pwd) || exit 1
sim=$(cd "$2" && pwd) || exit 1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
out=$tmp/out
err=$tmp/err
hide='^$'

# What the caller's shell has set must not decide a test.
export LC_ALL=C
unset GDRSIM_FAIL GDRSIM_DEVICES GDRSIM_DRIVER_VERSION GDRSIM_DMABUF_MMAP LD_PRELOAD
unset GDRCOPY_BACKEND GDRCOPY_TOOL_SIM GDRCOPY_USE_DMABUF_MMAP CUDA_VISIBLE_DEVICES

passed=0
failed=0
skipped=0

pass() {
	passed=$((passed + 1))
	echo "ok $((passed + failed + skipped)) - $1"
}

fail() {
	failed=$((failed + 1))
	echo "not ok $((passed + failed + skipped)) - $1"
	shift
	for line in "$@"; do
		echo "#   $line"
	done
	grep -v "$hide" "$out" | sed 's/^/#   stdout: /' | head -n 20
	sed 's/^/#   stderr: /' "$err" | head -n 20
}

skip() {
	skipped=$((skipped + 1))
	echo "ok $((passed + failed + skipped)) - $1 # SKIP $2"
}

# run [VAR=value...] TOOL [option...]: out, err and rc hold the result
run() {
	env "$@" </dev/null >"$out" 2>"$err"
	rc=$?
}

# expect NAME RC [PATTERN of stdout [PATTERN of stderr]]: judges the last run
expect() {
	if [ "$rc" != "$2" ]; then
		fail "$1" "exit status $rc, expected $2"
	elif [ -n "${3-}" ] && ! grep -Eq -- "$3" "$out"; then
		fail "$1" "no /$3/ on stdout"
	elif [ -n "${4-}" ] && ! grep -Eq -- "$4" "$err"; then
		fail "$1" "no /$4/ on stderr"
	else
		pass "$1"
	fi
}

# rows TOOL [option...]: runs and judges the tool once for each line of stdin:
#     NAME|VARIABLES|OPTIONS|RC|PATTERN of stdout|PATTERN of stderr
rows() {
	row_tool=${1##*gdrcopy_}
	while IFS='|' read -r row_name row_vars row_options row_rc row_out row_err; do
		# shellcheck disable=SC2086 # several words
		run $row_vars "$@" $row_options
		expect "$row_tool: $row_name" "$row_rc" "$row_out" "$row_err"
	done
}

# check NAME COMMAND...: the command must succeed
check() {
	name=$1
	shift
	if "$@" 2>>"$err"; then
		pass "$name"
	else
		fail "$name" "failed: $*"
	fi
}

# documented TOOL: its --help has the table of exit statuses and examples, and the examples run
documented() {
	run "$build/$1" --help
	for status in 0 1 2; do
		expect "$1: --help has exit status $status" 0 "^  $status  [a-z]"
	done
	sed -n '/^Examples:$/,/^$/s/^  \(gdrcopy_.*\)/\1/p' "$out" >"$tmp/examples"
	check "$1: --help has examples" [ -s "$tmp/examples" ]
	while read -r example; do
		env LD_LIBRARY_PATH="$sim" LD_PRELOAD="$sim/libnvidia_node.so" GDRSIM_DRIVER_VERSION=13030 PATH="$build:$PATH" \
			sh -c "$example" >"$out" 2>"$err" </dev/null
		rc=$?
		expect "$1: example: $example" 0
	done <"$tmp/examples"
}

# The closing line, and the exit status.
finish() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ]
}
