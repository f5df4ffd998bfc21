#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The clients of this directory, on a machine with GPUs: `make check-clients PREFIX=`.
#   run.sh PREFIX
# PREFIX: of `make install prefix=PREFIX`. UCX, libfabric and fabtests are used where they are installed in PREFIX
# too, or in UCX_PREFIX=, LIBFABRIC_PREFIX=, FABTESTS_PREFIX=; Open MPI in MPI_PREFIX= (/usr); GDRCopy's own tools
# in GDRCOPY_TOOLS=, for PREFIX/bin has this library's; PROGRAMS= are those of programs.sh, NAME=PROGRAM.
# PyTorch, CuPy, Numba, JAX, cuda.core, NCCL and NVSHMEM are python3's. A client that is not installed is a skip. Ends with
# `N passed, N failed, N skipped`; exit 1 where one failed, 77 where none ran.
set -u
cd "$(dirname "$0")/../.." || exit 1
[ -n "${1:-}" ] || { echo "check-clients needs PREFIX=, that of an installed library" >&2; exit 1; }
prefix=$(realpath "$1") && lib=$(find "$prefix" -name libgdrapi.so.2 -print -quit) && [ -n "$lib" ] ||
	{ echo "$1: no libgdrapi.so.2 is installed there" >&2; exit 1; }
lib=${lib%/*} passed=0 failed=0 skipped=0

skip() {
	skipped=$((skipped + 1))
	echo "ok - $1 # SKIP $2"
}

# client NAME "PATH THAT IT NEEDS..." COMMAND...
client() {
	local name=$1 path rc=0
	for path in $2; do
		[ -e "$path" ] || { skip "$name" "no $path"; return; }
	done
	shift 2
	timeout 1800 env LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PYTHONPATH=python "$@" || rc=$?
	case $rc in
	0) passed=$((passed + 1)) && echo "ok - $name" ;;
	77) skip "$name" "it cannot run here" ;;
	*) failed=$((failed + 1)) && echo "not ok - $name (exit $rc)" ;;
	esac
}

here=tests/clients
ucx=${UCX_PREFIX:-$prefix} fabric=${LIBFABRIC_PREFIX:-$prefix} fabtests=${FABTESTS_PREFIX:-$prefix} mpi=${MPI_PREFIX:-/usr}
tools=${GDRCOPY_TOOLS:-GDRCOPY_TOOLS=}
client gdrcopy "$tools" $here/gdrcopy.sh "$tools" "$prefix"
client ucx "$ucx/bin/ucx_perftest" $here/ucx.sh "$ucx" "$prefix"
client openmpi "$ucx/bin/ucx_perftest $mpi/bin/mpirun" $here/openmpi.sh "$mpi" "$ucx" "$prefix"
client libfabric "$fabric/bin/fi_info $fabtests/bin/fi_rdm_tagged_pingpong" $here/libfabric.sh "$fabric" "$fabtests" "$prefix"
# shellcheck disable=SC2086 # words
[ -n "${PROGRAMS:-}" ] && client programs '' $here/programs.sh "$prefix" $PROGRAMS || skip programs "no PROGRAMS="
for name in nccl nvshmem torch_workers; do
	client $name '' python3 $here/$name.py
done
client python '' env LIBRARY="$lib" $here/python/run.sh
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] || exit 1
[ "$passed" != 0 ] || exit 77
