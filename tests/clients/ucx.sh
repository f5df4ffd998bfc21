#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# UCX, unmodified, with this library: ucx_perftest between two processes with CUDA memory, with and
# without gdr_copy, interleaved. Needs a GPU.
#   ucx.sh UCX_PREFIX PREFIX [ROUNDS]
# UCX_PREFIX: of UCX built --with-cuda --with-gdrcopy=PREFIX; PREFIX: of `make install
# prefix=PREFIX`; ROUNDS: runs of each (5). GPUS: two ordinals, for server and client ("0 0"). Exits
# with 1 if a run fails or gdr_copy was not used. Measured with 1.22.0 and master of 2026-08
# (9466d10). UCX_GTEST: UCX's program of unit tests, of which those named gdr_copy run too.
# shellcheck disable=SC2317 # table calls them
set -eu
ucx=$(realpath "${1:?prefix of UCX}")
prefix=$(realpath "${2:?prefix of the installed library}")
rounds=${3:-5}
read -r server_gpu client_gpu <<<"${GPUS:-0 0}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lib=$(dirname "$(find "$prefix" -name libgdrapi.so.2 | head -n 1)")
export LD_LIBRARY_PATH=$lib:$ucx/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=0
port=13337
# shellcheck source=tests/clients/middle.bash
. "$(dirname "$(realpath "$0")")/middle.bash"

# run TEST TLS SIZE: the client's latency in us on standard output.
run() {
	local n=10000
	[ "$3" -lt 262144 ] || n=1000
	port=$((port + 1))
	local args=(-t "$1" -m cuda -s "$3" -n "$n" -w 500 -f -p "$port")
	CUDA_VISIBLE_DEVICES=$server_gpu UCX_TLS=$2 timeout 60 "$ucx/bin/ucx_perftest" "${args[@]}" \
		>"$work/server" 2>&1 &
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.2
		if CUDA_VISIBLE_DEVICES=$client_gpu UCX_TLS=$2 GDRCOPY_STATS=1 \
			timeout 60 "$ucx/bin/ucx_perftest" 127.0.0.1 "${args[@]}" >"$work/out" 2>"$work/stats"; then
			break
		fi
	done
	wait || true
	awk '/Final:/ { v = $5 } NF >= 4 && $1 ~ /^[0-9]+$/ { v = $4 } END { if (v) print v }' "$work/out"
}

all() { if [ "$1" = 1 ]; then run "$test" all "$2"; else run "$test" ^gdr_copy "$2"; fi; }
no_ipc() { run "$test" "sm,self,cuda_copy$([ "$1" = 0 ] || echo ,gdr_copy)" "$2"; }

"$ucx/bin/ucx_info" -d | grep -q 'Transport: gdr_copy' || { echo "ucx_info lists no gdr_copy"; exit 1; }
echo "UCX $("$ucx/bin/ucx_info" -v | sed -n 's/^# Library version: //p'), -m cuda, GPUs $server_gpu and $client_gpu, $rounds runs each, median (least-most)"
for test in ${TESTS-tag_lat ucp_put_lat}; do
	# shellcheck disable=SC2086
	table "$test, its defaults" all ${SIZES-8 1024 4096 16384 65536}
	# shellcheck disable=SC2086
	table "$test, without CUDA IPC" no_ipc ${SIZES_NO_IPC-8 1024 8192}
done
if [ -n "${UCX_GTEST:-}" ]; then
	GTEST_FILTER='*gdr_copy*' timeout 300 "$UCX_GTEST" >"$work/gtest.log" 2>&1 ||
		{ echo "UCX's unit tests: failed"; failed=1; }
	grep -aE '^\[ +(PASSED|FAILED|SKIPPED) +\]' "$work/gtest.log" | tail -n 20
fi
exit $failed
