#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# GDRCopy's own tools, unmodified, built against this library's header and library, on a GPU.
#   gdrcopy.sh SOURCE PREFIX
# SOURCE: GDRCopy's source tree; PREFIX: where `make install prefix=PREFIX` put this library.
# Its sanity asks for structures of the other library's handles and for errors of the other driver
# alone in some tests: EXPECTED_FAILURES names those (empty: none may fail).
set -eu
source=$(realpath "${1:?GDRCopy source tree}")
prefix=$(realpath "${2:?prefix of the installed library}")
cuda=${CUDA_HOME:-/usr/local/cuda}
lib=$(dirname "$(find "$prefix" -name libgdrapi.so.2 | head -n 1)")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source/." "$work"
export LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir "$work/config" # of its own headers the one that this library has not
cp "$work/include/gdrconfig.h" "$work/config"
make -C "$work/tests" CUDA="$cuda" GDRAPI_INC="$prefix/include" \
	CUDA_INC="-I $cuda/include -I $work/config" \
	LDFLAGS="-L$lib -L$cuda/lib64/stubs -L$cuda/lib64" \
	gdrcopy_sanity gdrcopy_copybw gdrcopy_copylat gdrcopy_apiperf >"$work/log" 2>&1 ||
	{ tail -n 20 "$work/log"; exit 1; }
for t in copybw copylat apiperf; do
	if timeout 120 "$work/tests/gdrcopy_$t" >"$work/$t" 2>&1; then
		echo "ok $t"
	else
		echo "not ok $t"
		tail -n 5 "$work/$t"
		bad=1
	fi
done
timeout 300 "$work/tests/gdrcopy_sanity" -v >"$work/sanity" 2>&1 || true
grep -aE '^&&&& |^Total|^Passed|^Failed|^Waived|^List|^ +[a-z_]+(_[a-z]+)+$' "$work/sanity" | sort -u | head -n 80
exit "${bad:-0}"
