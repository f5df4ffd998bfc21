#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# libfabric, unmodified, with this library: fi_rdm_tagged_pingpong with CUDA memory between two
# processes, with its gdrcopy and without (FI_HMEM_CUDA_USE_GDRCOPY), in turn; each size also once
# with its bytes verified. Build it --with-cuda --with-gdrcopy=PREFIX --enable-gdrcopy-dlopen. Needs
# a GPU.
#   libfabric.sh LIBFABRIC_PREFIX FABTESTS_PREFIX PREFIX [ROUNDS]
# PROVIDERS: "verbs;ofi_rxm" by default (efa, cxi, opx and rxm register memory with gdrcopy; shm and
# tcp never do). GPUS: two ordinals ("0 0"). Exits with 1 if bytes are wrong, a run fails or the
# library was not used. Run with 2.6.0 and shm alone: no machine with such a device was available.
# shellcheck disable=SC2317 # table calls them
set -eu
here=$(dirname "$(realpath "$0")")
fabric=$(realpath "${1:?prefix of libfabric}")
tests=$(realpath "${2:?prefix of fabtests}")
prefix=$(realpath "${3:?prefix of the installed library}")
rounds=${4:-5}
read -r server_gpu client_gpu <<<"${GPUS:-0 0}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
# shellcheck source=tests/clients/middle.bash
. "$here/middle.bash"
lib=$(dirname "$(find "$prefix" -name libgdrapi.so.2 | head -n 1)")
export LD_LIBRARY_PATH=$fabric/lib:$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# pingpong WITH SIZE ITERATIONS ARGUMENTS...
port=22100
pingpong() {
	local with=$1 size=$2 n=$3 server
	shift 3
	port=$((port + 1))
	export FI_HMEM_CUDA_USE_GDRCOPY=$with FI_HMEM_CUDA_ENABLE_XFER=1
	local args=(-p "$provider" -D cuda -S "$size" -I "$n" -w 500 "-E=$port" "$@")
	timeout 60 "$tests/bin/fi_rdm_tagged_pingpong" "${args[@]}" -i "$server_gpu" >"$work/server" 2>&1 &
	server=$!
	sleep 0.7
	GDRCOPY_STATS=1 timeout 60 "$tests/bin/fi_rdm_tagged_pingpong" "${args[@]}" -i "$client_gpu" 127.0.0.1 \
		>"$work/out" 2>"$work/stats"
	wait $server
}

# The line under fabtests' heading: bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec
lat() {
	local n=5000
	[ "$2" -lt 262144 ] || n=500
	pingpong "$1" "$2" "$n" || return 0
	awk '/usec\/xfer/ { for (i = 1; i <= NF; i++) if ($i == "usec/xfer") c = i; next } c && NF >= c { print $c; exit }' "$work/out"
}

for provider in ${PROVIDERS-verbs;ofi_rxm}; do
	for size in 8 4096 1000000; do
		pingpong 1 "$size" 100 -v || { echo "$provider: $size bytes with -v: failed"; tail -n 5 "$work/out" "$work/stats" "$work/server"; failed=1; }
	done
	# shellcheck disable=SC2086
	table "libfabric $("$fabric/bin/fi_info" --version | sed -n 's/^libfabric: //p'), $provider, fi_rdm_tagged_pingpong -D cuda, $rounds runs each, median (least-most)" \
		lat ${SIZES-8 1024 4096 65536}
done
exit $failed
