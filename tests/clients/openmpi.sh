#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Open MPI with UCX, both unmodified: messages of CUDA memory between two ranks, with UCX's gdr_copy
# and without, in turn. Needs CUDA's headers and a GPU; each rank takes its own if there are two.
#   openmpi.sh MPI_PREFIX UCX_PREFIX PREFIX [ROUNDS]
# MPI_PREFIX: an Open MPI with its UCX components, such as /usr or a copy of it; UCX_PREFIX: UCX
# built with CUDA and gdr_copy; PREFIX: of this library. Exits with 1 if bytes are wrong, a run
# fails or gdr_copy was not used. Measured with Open MPI 4.1.4 (Debian 12) and UCX 1.22.0.
# shellcheck disable=SC2317 # table calls them
set -eu
here=$(dirname "$(realpath "$0")")
mpi=$(realpath "${1:?prefix of Open MPI}")
ucx=$(realpath "${2:?prefix of UCX}")
prefix=$(realpath "${3:?prefix of the installed library}")
rounds=${4:-5}
cuda=${CUDA_HOME:-/usr/local/cuda}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
# shellcheck source=tests/clients/middle.bash
. "$here/middle.bash"

dir_of() { dirname "$(find "$mpi" "$prefix" -name "$1" 2>/dev/null | head -n 1)"; }
libs=$ucx/lib:$(dir_of libgdrapi.so.2):$(dir_of libmpi.so.40):$(dir_of libopen-pal.so.40)
libs=$libs:$(dir_of libmpi.so.40)/openmpi/lib
export LD_LIBRARY_PATH=$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export UCX_MODULE_DIR=$ucx/lib/ucx OPAL_PREFIX=$mpi OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PMIX_MCA_gds=hash
[ ! -d "$mpi/../etc/openmpi" ] || export OPAL_SYSCONFDIR=$mpi/../etc/openmpi

${CC:-cc} -O2 -o "$work/program" "$here/openmpi.c" -I"$(dirname "$(find "$mpi" -path '*include/mpi.h' | head -n 1)")" -I"$cuda/include" \
	-L"$(dir_of libmpi.so.40)" -l:libmpi.so.40 -L"$cuda/lib64/stubs" -lcuda -Wl,--allow-shlib-undefined

lat() {
	local tls=all n=10000
	[ "$1" = 1 ] || tls=^gdr_copy
	[ -z "${TLS:-}" ] || { tls=$TLS; [ "$1" = 0 ] || tls=$TLS,gdr_copy; }
	[ "$2" -lt 262144 ] || n=500
	timeout 120 "$mpi/bin/mpirun" -np 2 --oversubscribe --mca pml ucx --mca opal_common_ucx_tls any \
		--mca opal_common_ucx_devices any --mca btl ^openib,ofi -x LD_LIBRARY_PATH \
		-x UCX_MODULE_DIR -x UCX_TLS="$tls" -x GDRCOPY_STATS=1 "$work/program" "$2" "$n" \
		>"$work/out" 2>"$work/stats" || return 0
	sed -n 's/^LATENCY //p' "$work/out"
}

echo "$("$mpi/bin/mpirun" --version | head -n 1), UCX $("$ucx/bin/ucx_info" -v | sed -n 's/^# Library version: //p'), pml ucx, $rounds runs each, median (least-most)"
# shellcheck disable=SC2086
TLS='' table "UCX's defaults" lat ${SIZES-8 1024 65536}
# shellcheck disable=SC2086
TLS=sm,self,cuda_copy table "without CUDA IPC" lat ${SIZES_NO_IPC-8 1024}
exit $failed
