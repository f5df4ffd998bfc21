#!/bin/sh
# SPDX-License-Identifier: MIT
#
# make demo: single copies and CUDA's own, on the GPU if the CPU reaches its memory, else on the
# stand-in. The first line names the one, and the reason. Usage: demo.sh BUILD_DIR SIM_DIR; the exit status is the tools'.
set -u
export LC_ALL=C # numbers are read and written

if [ $# -ne 2 ]; then
	echo "usage: $0 BUILD_DIR SIM_DIR" >&2
	exit 1
fi
build=$1
sim=$2
set --
tmp=$(mktemp -d) || exit
trap 'rm -rf "$tmp"' EXIT

# The loader would take such a path apart: ld.so(8).
case $(realpath "$sim") in
*[:\;\$[:space:]]*)
	mkdir "$tmp/sim" && cp "$sim"/lib*.so* "$tmp/sim" || exit
	sim=$tmp/sim
	;;
esac

# A trial: the smallest copy. Exit 0 means that memory was reached, and "buffer:" and "mapping:" say
# which and by what; exit 2 that none was, and the message is "NAME: cannot run here: REASON; ADVICE".
# Notes on standard error do not matter.
# Where gdr_open() fails, memory of cuMemCreate may be reached: the figures are the GPU's.
trial=$("$build/gdrcopy_copybw" -s 64K -w 1 -r 1 2>&1)
status=$? first='' kind=''
if [ $status = 2 ]; then
	first=$(printf '%s\n' "$trial" | sed -n 's/^.*: cannot run here: //p' | tail -n 1)
	other=$("$build/gdrcopy_copybw" -s 64K -w 1 -r 1 -a cuMemCreate 2>&1) && trial=$other status=0 kind=' of cuMemCreate alone'
fi
case $status in
0)
	place=$(printf '%s\n' "$trial" | sed -n 's/^buffer: .* memory: //p')
	backend=$(printf '%s\n' "$trial" | sed -n 's/^mapping: .*backend \([a-z]*\).*/\1/p')
	[ -z "$kind" ] || set -- -a cuMemCreate
	echo "demo: ${kind:+${first%%: *} (gdrcopy_doctor says why): }the CPU reaches $place$kind (backend $backend): running on it"
	;;
2)
	echo "demo: no GPU memory is reached (${first%%; *}): running on the stand-in"
	set -- --sim "$sim"
	;;
*)
	echo "demo: a GPU exists, but the trial copy failed: $trial"
	exit 1
	;;
esac

run() { # NAME OPTION...: shows the command; its output goes to $tmp/NAME
	name=$1
	shift
	echo "\$ gdrcopy_copylat $*"
	"$build/gdrcopy_copylat" "$@" >"$tmp/$name" || {
		rc=$?
		cat "$tmp/$name"
		exit $rc
	}
}

if [ "${1:-}" = --sim ]; then
	echo
	echo "The stand-in is memory of this machine: its figures mean nothing, they show what the tools print. On an H200:"
	echo "  8 bytes to the GPU     0.15 us, cuMemcpy  7.0      8 bytes from the GPU    1.1 us, cuMemcpy  6.6"
	echo "  4 KiB to the GPU       0.36 us, cuMemcpy  9.7      1 KiB from the GPU      1.3 us, cuMemcpy  6.7"
	echo "(docs/performance.md)"
fi
echo
run compared -s 1M -c -w 500 -r 200 "$@"
run engine -s 1M -E -w 0 -r 200 "$@"
grep -E '^(GPU|CPU|buffer|mapping):' "$tmp/compared"

# P50 of each way: "mapping" has the columns 2 to 4, cuMemcpy 5 to 7, from page-locked memory 8 to 10.
# The stand-in's are not compared: a ratio would say something of a GPU.
awk -v sim="${1:-}" '
FNR == 1 { file++ }
$1 == "write" || $1 == "read" { direction = $1 }
$1 ~ /^[0-9]+$/ && file == 1 { cpu[direction, $1] = $3; cuda[direction, $1] = $9 }
$1 ~ /^[0-9]+$/ && file == 2 { engine[$1] = $3 }
function times(a, b) { return sim == "--sim" ? "" : a > 0 ? sprintf(b < 9.5 * a ? "%.1fx" : "%.0fx", b / a) : "-" }
END {
	print "\nmicroseconds a copy (median)"
	print "             to the GPU                       from the GPU"
	print "     bytes   barcopy  cuMemcpy                barcopy  with engine  cuMemcpy"
	count = split("8 64 1024 4096 16384 65536 1048576", size)
	for (i = 1; i <= count; i++) {
		n = size[i]
		best = engine[n] < cpu["read", n] ? engine[n] : cpu["read", n]
		printf "%10d %9.2f %9.2f %7s     %9.2f %12.2f %9.2f %7s\n", n, cpu["write", n], cuda["write", n],
			times(cpu["write", n], cuda["write", n]), cpu["read", n], engine[n], cuda["read", n],
			times(best, cuda["read", n])
	}
}' "$tmp/compared" "$tmp/engine"

echo
echo "cuMemcpy: between page-locked host memory and the GPU, synchronous. barcopy reads and writes pageable memory by"
echo "the CPU alone; with engine (BARCOPY_COPY_ENGINE_AUTO) page-locked memory, large reads by the GPU's copy engine."
echo
tail -n 1 "$tmp/compared"
