#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# GDRCopy's own tools, unmodified, built against this library's header and library, on a GPU.
#   gdrcopy.sh SOURCE PREFIX
# SOURCE: GDRCopy's source tree; PREFIX: where `make install prefix=PREFIX` put this library.
# Its sanity looks into the other library's handles in some tests, and asks for errors that only its
# driver gives in others: those that may fail are below, each with its reason in docs/clients.md. Any other
# failure, and one of these that passes, is an error.
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
cat >"$work/expected" <<'END'
basic_small_buffers_mapping
basic_unaligned_mapping
invalidation_fork_child_gdr_pin_parent_with_tokens
invalidation_unix_sock_shared_fd_gdr_map_cumemalloc
invalidation_unix_sock_shared_fd_gdr_map_vmmalloc
invalidation_unix_sock_shared_fd_gdr_pin_buffer_cumemalloc
invalidation_unix_sock_shared_fd_gdr_pin_buffer_vmmalloc
END
timeout 300 "$work/tests/gdrcopy_sanity" -v >"$work/sanity" 2>&1 || true
grep -aE '^(Total|Passed|Failed|Waived)' "$work/sanity" || { echo "not ok sanity: no summary"; tail -n 5 "$work/sanity"; bad=1; }
sed -n 's/^&&&& FAILED \([a-z_]*\).*/\1/p' "$work/sanity" | LC_ALL=C sort -u >"$work/failed"
diff "$work/expected" "$work/failed" && echo "ok sanity: fails where it must, and nowhere else" || bad=1
exit "${bad:-0}"
