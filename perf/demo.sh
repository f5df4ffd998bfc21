#!/bin/sh
# SPDX-License-Identifier: MIT
#
# make demo: copybw and copylat on the GPU if the CPU reaches memory of one, else on the stand-in.
# The first line says which, and why. Usage: demo.sh BUILD_DIR SIM_DIR; the exit status is the tools'.
set -u

if [ $# -ne 2 ]; then
	echo "usage: $0 BUILD_DIR SIM_DIR" >&2
	exit 1
fi
build=$1
sim=$2
set --

# A trial: the smallest copy. Exit 0 means that memory was reached, and "buffer:" and "mapping:" say
# which and by what; exit 2 that none was, and the message is "NAME: cannot run here: REASON; ADVICE".
# Notes on standard error do not matter.
trial=$("$build/gdrcopy_copybw" -s 64K -w 1 -r 1 2>&1)
case $? in
0)
	place=$(printf '%s\n' "$trial" | sed -n 's/^buffer: .* memory: //p')
	backend=$(printf '%s\n' "$trial" | sed -n 's/^mapping: .*backend \([a-z]*\).*/\1/p')
	echo "demo: the CPU reaches $place (backend $backend): running on it"
	;;
2)
	reason=$(printf '%s\n' "$trial" | sed -n 's/^.*: cannot run here: //p' | tail -n 1)
	echo "demo: no GPU memory is reached (${reason%%; *}): running on the stand-in"
	set -- --sim "$sim"
	;;
*)
	echo "demo: a GPU is there, but the trial copy failed: $trial"
	exit 1
	;;
esac

run() {
	tool=$1
	shift
	echo
	echo "\$ gdrcopy_$tool $*"
	"$build/gdrcopy_$tool" "$@" || exit
}

run copybw -s 1M "$@"
run copylat -s 64K -w 2000 -r 500 "$@"
