#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# UCX, unmodified, with this library: built against an installation of it, then ucx_perftest between
# two processes with CUDA memory, with and without gdr_copy, interleaved. Needs a GPU and CUDA's headers.
#   ucx.sh SOURCE PREFIX [ROUNDS]
# SOURCE: UCX's source tree with its configure (./autogen.sh has run); PREFIX: where `make install
# prefix=PREFIX` put this library; ROUNDS: runs of each (5). CUDA_HOME: /usr/local/cuda. GPUS: two
# ordinals, for server and client ("0 0"). Exits not 0 where a run fails or gdr_copy was not used.
# Measured with master of 2026-08 (9466d10).
set -eu
source=$(realpath "${1:?UCX source tree}")
prefix=$(realpath "${2:?prefix of the installed library}")
rounds=${3:-5}
cuda=${CUDA_HOME:-/usr/local/cuda}
read -r server_gpu client_gpu <<<"${GPUS:-0 0}"
work=${UCX_WORK:-$(mktemp -d)}
lib=$(dirname "$(find "$prefix" -name libgdrapi.so.2 | head -n 1)")
export LD_LIBRARY_PATH=$lib:$work/ucx/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
failed=0

build() {
	[ -x "$work/ucx/bin/ucx_perftest" ] && return
	mkdir -p "$work/build"
	(cd "$work/build" && "$source/contrib/configure-release" --prefix="$work/ucx" \
		--with-cuda="$cuda" --with-gdrcopy="$prefix" --without-verbs --without-java \
		--without-go --disable-numa && make -j"$(nproc)" && make install) \
		>"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log"; exit 1; }
}

# lat TLS SIZE: one run; its latency in us on standard output.
port=13337
lat() {
	local tls=$1 size=$2 n=10000 try
	[ "$size" -ge 262144 ] && n=1000
	port=$((port + 1))
	local args=(-t tag_lat -m cuda -s "$size" -n "$n" -w 500 -f -p "$port")
	CUDA_VISIBLE_DEVICES=$server_gpu UCX_TLS=$tls "$work/ucx/bin/ucx_perftest" "${args[@]}" \
		>"$work/server" 2>&1 &
	for try in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.2
		if CUDA_VISIBLE_DEVICES=$client_gpu UCX_TLS=$tls GDRCOPY_STATS=1 \
			"$work/ucx/bin/ucx_perftest" 127.0.0.1 "${args[@]}" >"$work/client" 2>"$work/stats"; then
			break
		fi
	done
	wait || true
	awk '/Final:/ { v = $5 } NF >= 4 && $1 ~ /^[0-9]+$/ { v = $4 } END { print v }' "$work/client"
}

used() { grep -q '^  pins [1-9]' "$work/stats"; }

# median and spread of the lines of a file
middle() { sort -n "$1" | awk '{ v[NR] = $1 } END { printf "%8.2f (%.2f-%.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'; }

# table TITLE WITH WITHOUT SIZES...
table() {
	local title=$1 with=$2 without=$3 size i
	shift 3
	echo "$title"
	printf '%10s  %-24s %-24s %s\n' bytes 'with gdr_copy, us' 'without, us' ratio
	for size in "$@"; do
		: >"$work/with"
		: >"$work/without"
		for ((i = 0; i < rounds; i++)); do
			lat "$with" "$size" >>"$work/with"
			used || { echo "not used: $with, $size bytes"; head -n 3 "$work/stats" "$work/client"; failed=1; }
			lat "$without" "$size" >>"$work/without"
		done
		if [ "$(grep -c . "$work/with")" != "$rounds" ] || [ "$(grep -c . "$work/without")" != "$rounds" ]; then
			echo "a run failed at $size bytes"
			tail -n 5 "$work/client" "$work/server"
			failed=1
			continue
		fi
		printf '%10s  %-24s %-24s %.2f\n' "$size" "$(middle "$work/with")" "$(middle "$work/without")" \
			"$(paste <(sort -n "$work/without") <(sort -n "$work/with") | awk '{ a[NR] = $1; b[NR] = $2 } END { m = int((NR + 1) / 2); print a[m] / b[m] }')"
	done
}

build
"$work/ucx/bin/ucx_info" -d | grep -q 'Transport: gdr_copy' || { echo "ucx_info lists no gdr_copy"; exit 1; }
echo "UCX $("$work/ucx/bin/ucx_info" -v | sed -n 's/^# Library version: //p'), tag_lat -m cuda, GPUs $server_gpu and $client_gpu, $rounds runs each, median (least-most)"
# shellcheck disable=SC2086
table "its defaults" all ^gdr_copy ${SIZES-8 1024 4096 16384 262144 4194304}
# shellcheck disable=SC2086
table "without CUDA IPC" sm,self,cuda_copy,gdr_copy sm,self,cuda_copy ${SIZES_NO_IPC-8 1024 8192}
exit $failed
