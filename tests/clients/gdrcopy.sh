#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# GDRCopy's own tools, unmodified, built against this library's header and library, on a GPU.
#   gdrcopy.sh TOOLS PREFIX
# TOOLS: the directory of gdrcopy_copybw, gdrcopy_sanity ...; PREFIX: of `make install
# prefix=PREFIX`. Some tests of its sanity read the private handles of GDRCopy's library, or expect
# errors of its driver: they are listed below, each with its reason in docs/clients.md. Any other
# failure is an error, and so is a listed test that passes.
set -eu
tools=$(realpath "${1:?directory of the tools}")
prefix=$(realpath "${2:?prefix of the installed library}")
lib=$(dirname "$(find "$prefix" -name libgdrapi.so.2 | head -n 1)")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for t in copybw copylat apiperf; do
	if timeout 120 "$tools/gdrcopy_$t" >"$work/$t" 2>&1; then
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
invalidation_unix_sock_shared_fd_gdr_map_cumemalloc
invalidation_unix_sock_shared_fd_gdr_map_vmmalloc
invalidation_unix_sock_shared_fd_gdr_pin_buffer_cumemalloc
invalidation_unix_sock_shared_fd_gdr_pin_buffer_vmmalloc
END
timeout 300 "$tools/gdrcopy_sanity" -v >"$work/sanity" 2>&1 || true
grep -aE '^(Total|Passed|Failed|Waived)' "$work/sanity" || { echo "not ok sanity: no summary"; tail -n 5 "$work/sanity"; bad=1; }
sed -n 's/^&&&& FAILED \([a-z_]*\).*/\1/p' "$work/sanity" | LC_ALL=C sort -u >"$work/failed"
diff "$work/expected" "$work/failed" && echo "ok sanity: fails where it must, and nowhere else" || bad=1
exit "${bad:-0}"
