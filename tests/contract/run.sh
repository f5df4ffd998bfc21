#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The contract: for each known client of libgdrapi a program that loads and calls it as that client
# does, built as C and as C++ against an installed copy alone, run on every backend that serves its
# memory.
#   tests/contract/run.sh BUILD_DIR SIM_DIR
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
build=$(realpath "$out")
sim=$(realpath "${2:?directory of the stand-ins}")
warnings=(-Wall -Wextra -Wshadow -Werror -O2)
disabled=3

# said NAME TEXT: the command before it decides; its text is below the line
said() {
	ok "$1"
	[ -z "$2" ] || printf '#   %s\n' "${2//$'\n'/$'\n#   '}"
}

cc=${CC:-gcc}
cxx=${CXX:-g++}
command -v "$cc" >/dev/null || { echo "$cc is not installed"; exit 77; }
text=$(make -s --no-print-directory O="$build" DESTDIR="$tmp/root" prefix=/usr install 2>&1)
said "make install" "$text"
[ "$failed" = 0 ] || finish
include=$tmp/root/usr/include
lib=$tmp/root/usr/lib
"$cc" -std=gnu11 -D_GNU_SOURCE "${warnings[@]}" -Isrc -c -o "$tmp/gpu.o" tests/contract/gpu.c || exit 1

# Other languages than those of tests/build/test_header.sh.
if command -v "$cxx" >/dev/null; then
	text=$(printf '#include <gdrapi.h>\n#include <barcopy.h>\n' |
		"$cxx" -x c++ -std=c++98 -Wall -Wextra -Werror -I"$include" -fsyntax-only - 2>&1)
	said "gdrapi.h and barcopy.h compile with -std=c++98" "$text"
fi

# run PROGRAM EXPECTED_RC NAME VARIABLES...
run() {
	local program=$1 expected=$2 name=$3 rc text
	shift 3
	text=$(timeout 120 env LD_LIBRARY_PATH="$lib:$sim" "$@" "$program" 2>&1 </dev/null)
	rc=$?
	[ "$rc" = "$expected" ] || name+=" (exit $rc)"
	[ "$rc" = "$expected" ]
	said "$name" "$text"
}

# Every run preloads the stand-in and says whether RM is there, so that it never meets a node of this
# machine: libgdrdrv_node.so serves RM's nodes only where GDRSIM_RM is set.
node=(LD_PRELOAD="$sim/libgdrdrv_node.so" GDRSIM_RM=absent)
nothing=("${node[@]}" GDRSIM_NODE=absent)
rm=(LD_PRELOAD="$sim/libnvidia_node.so")
dmabuf=("${rm[@]}" GDRSIM_DMABUF_MMAP=1 GDRSIM_DRIVER_VERSION=13030)

# client NAME [link] [vmm] [node]: linked; allocates or registers VMM memory too; looks for the
# node.
client() {
	local name=$1 language compiler link=() vmm='' off=0 level
	shift
	for word in "$@"; do
		case $word in
		link) link=(-L"$lib" -lgdrapi) ;;
		vmm) vmm=1 ;;
		node) off=$disabled ;; # looks for the node itself
		esac
	done
	for language in c c++; do
		local program=$tmp/$name.$language std=-std=gnu11
		compiler=$cc
		if [ "$language" = c++ ]; then
			compiler=$cxx std=-std=c++17
			if ! command -v "$compiler" >/dev/null; then
				skip "$name in C++" "no $compiler"
				continue
			fi
		fi
		if ! text=$("$compiler" -x "$language" "$std" "${warnings[@]}" -I"$include" \
			-o "$program" "tests/contract/$name.c" -x none "$tmp/gpu.o" "${link[@]}" -ldl \
			-pthread 2>&1); then
			false
			said "$name: compiles as $language" "$text"
			continue
		fi
		run "$program" 0 "$name ($language) on gdrdrv" "${node[@]}"
		# The calls are the same; the language decides whether it compiles and links.
		[ "$language" = c ] || continue
		run "$program" $off "$name on dmabuf" "${dmabuf[@]}"
		run "$program" $off "$name on rm" "${rm[@]}"
		run "$program" $disabled "$name without any backend" "${nothing[@]}"
		run "$program" 0 "$name on gdrdrv, callback mode" "${node[@]}" \
			GDRSIM_NODE_PERSISTENT=0
		for level in 2.0 2.4; do
			case $name-$level in
			mscclpp-* | aws_ofi_nccl-*) run "$program" $disabled "$name on gdrdrv $level" \
				"${node[@]}" GDRSIM_NODE_LEVEL=$level ;;&
			aws_ofi_nccl-*) run "$program" 0 "$name on gdrdrv $level and rm" "${node[@]}" \
				GDRSIM_NODE_LEVEL=$level GDRSIM_RM=present ;;
			mscclpp-*) ;;
			nccl-2.0 | trtllm-2.0) ;; # they want 2.1 themselves
			*) run "$program" 0 "$name on gdrdrv $level" "${node[@]}" \
				GDRSIM_NODE_LEVEL=$level ;;
			esac
		done
		[ -n "$vmm" ] || continue
		run "$program" 0 "$name on gdrdrv, VMM memory" "${node[@]}" CONTRACT_MEMORY=vmm
		run "$program" 0 "$name on dmabuf, VMM memory" "${dmabuf[@]}" CONTRACT_MEMORY=vmm
		run "$program" 0 "$name on rm, VMM memory" "${rm[@]}" CONTRACT_MEMORY=vmm
	done
}

client ucx link
client nccl vmm
client nvshmem vmm
client libfabric
client aws_ofi_nccl vmm
client mscclpp link node
client trtllm
client nixl
client doca
client dpdk
client pplx_garden link
client bpftime
# DPDK's own way to name the directory.
run "$tmp/dpdk.c" 0 "dpdk by GDRCOPY_PATH_L" "${node[@]}" LD_LIBRARY_PATH="$sim" \
	GDRCOPY_PATH_L="$lib"
finish
