# SPDX-License-Identifier: MIT
# For the tests of the tools, sourced with BUILD_DIR SIM_DIR: a run of a tool, and judgements. Sets root, here, build,
# sim, tmp, out, err. A test's comments on a failure leave out the lines of stdout that match $hide.
# shellcheck shell=bash disable=SC2034 # used by the script that sources this
# shellcheck source=tests/common/build.bash
. "$(dirname "${BASH_SOURCE[0]}")/../common/build.bash"

build=$(realpath "$out") && sim=$(realpath "${2:?directory of the stand-ins}") || exit 1
root=$PWD here=$PWD/tests/tools out=$tmp/out err=$tmp/err hide='^$'

# What the caller's shell has set must not decide a test.
unset GDRSIM_FAIL GDRSIM_DEVICES GDRSIM_DRIVER_VERSION GDRSIM_DMABUF_MMAP LD_PRELOAD
unset GDRCOPY_BACKEND GDRCOPY_TOOL_SIM GDRCOPY_USE_DMABUF_MMAP CUDA_VISIBLE_DEVICES

fail() { # fail NAME [COMMENT...]
	false
	ok "$1"
	shift
	for line in "$@"; do
		echo "#   $line"
	done
	grep -v "$hide" "$out" | sed 's/^/#   stdout: /' | head -n 20
	sed 's/^/#   stderr: /' "$err" | head -n 20
}

# run [VAR=value...] TOOL [option...]: out, err and rc hold the result
run() {
	env "$@" </dev/null >"$out" 2>"$err"
	rc=$?
}

# The same with a full disk behind stdout.
run_full() {
	run sh -c 'env "$@" >/dev/full' sh "$@"
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
		true
		ok "$1"
	fi
}

# rows TOOL [option...]: runs and judges the tool once for each line of stdin:
#     NAME|VARIABLES|OPTIONS|RC|PATTERN of stdout|PATTERN of stderr
rows() {
	row_tool="$* "
	row_tool=${row_tool##*gdrcopy_}
	row_tool=${row_tool%% *}
	while IFS='|' read -r row_name row_vars row_options row_rc row_out row_err; do
		# shellcheck disable=SC2086 # several words
		run $row_vars "$@" $row_options
		expect "$row_tool: $row_name" "$row_rc" "$row_out" "$row_err"
	done
}

# refused TOOL RC PATTERN: each line of stdin is a bad option: nothing on stdout, PATTERN on stderr
refused() {
	while read -r bad; do
		# shellcheck disable=SC2086 # several words
		run timeout 20 "$1" $bad
		[ ! -s "$out" ] || rc="$rc, something on stdout"
		expect "${1##*gdrcopy_}: bad: $bad" "$2" '' "$3"
	done
}

# check NAME COMMAND...: the command must succeed
check() {
	name=$1
	shift
	if "$@" 2>>"$err"; then
		ok "$name"
	else
		fail "$name" "failed: $*"
	fi
}

# stored NAME FILE NOW [refresh]: the stored file is what was made now; with refresh NOW becomes the stored file
stored() {
	if [ "${4-}" = refresh ]; then
		cp "$3" "$2"
	elif diff -u "$2" "$3" >"$out" 2>"$err"; then
		ok "$1"
	else
		fail "$1" "make refresh-reports writes ${2##*/}; a difference is to be read"
	fi
}

# json NAME PYTHON [ARGUMENT...]: stdout is a JSON document d, for which the statements hold
json() {
	if command -v python3 >/dev/null; then
		check "$1" python3 -c "import json, re, sys
d = json.load(open(sys.argv[1]))
$2" "$out" "${@:3}"
	else
		skip "$1" "no python3"
	fi
}

# json_error NAME STATUS TEXT: stdout is the document of a run of $tool without a result
json_error() {
	# shellcheck disable=SC2154 # $tool: the script's
	json "$1" 'assert d["tool"] == sys.argv[2] and d["version"], d
assert d["exit_status"] == int(sys.argv[3]) and sys.argv[4] in d["error"], d' "${tool##*/}" "$2" "$3"
}

# documented TOOL [OPTION...]: its --help has the table of exit statuses and examples, and the examples run; with the
# options behind theirs
documented() {
	run "$build/$1" --help
	for status in 0 1 2; do
		expect "$1: --help has exit status $status" 0 "^  $status  [a-z]"
	done
	sed -n '/^Examples:$/,/^$/s/^  \(gdrcopy_.*\)/\1/p' "$out" >"$tmp/examples"
	check "$1: --help has examples" [ -s "$tmp/examples" ]
	while read -r example; do
		run LD_LIBRARY_PATH="$sim" LD_PRELOAD="$sim/libnvidia_node.so" GDRSIM_DRIVER_VERSION=13030 PATH="$build:$PATH" \
			sh -c "$example ${*:2}"
		expect "$1: example: $example" 0
	done <"$tmp/examples"
}
