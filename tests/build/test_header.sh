#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The public headers: they compile alone in every language that programs use, and their structs and
# values never change.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"

printf '#include "barcopy_queue.h"\n#include "barcopy.h"\n#include "gdrapi.h"\n#include "barcopy.h"\n' >"$tmp/alone.c"
cp "$tmp/alone.c" "$tmp/alone.cc"
warn="-Wall -Wextra -pedantic -Werror -fsyntax-only -Iinclude"
for c in gcc:g++ clang:clang++; do
	for std in c99 c11 gnu11 c++11 c++17; do
		case $std in
		*++*) cc=${c#*:} file=$tmp/alone.cc ;;
		*) cc=${c%:*} file=$tmp/alone.c ;;
		esac
		if ! command -v "$cc" >/dev/null; then
			skip "$cc -std=$std" "$cc is not installed"
			continue
		fi
		# shellcheck disable=SC2086
		"$cc" -std=$std $warn "$file"
		ok "$cc -std=$std"
	done
done

cat >"$tmp/layout.h" <<'END'
#include <stddef.h>
#include "barcopy.h"
#ifdef __cplusplus
#define CHECK(cond) static_assert(cond, #cond)
#else
#define CHECK(cond) _Static_assert(cond, #cond)
#endif
CHECK(sizeof(gdr_t) == 8);
CHECK(sizeof(gdr_mh_t) == 8 && offsetof(gdr_mh_t, h) == 0);
CHECK(sizeof(gdr_info_v2_t) == 48 && sizeof(gdr_info_t) == 48);
CHECK(offsetof(gdr_info_v2_t, va) == 0);
CHECK(offsetof(gdr_info_v2_t, mapped_size) == 8);
CHECK(offsetof(gdr_info_v2_t, page_size) == 16);
CHECK(offsetof(gdr_info_v2_t, tm_cycles) == 24);
CHECK(offsetof(gdr_info_v2_t, cycles_per_ms) == 32);
CHECK(offsetof(gdr_info_v2_t, mapping_type) == 40);
CHECK(sizeof(gdr_attr_t) == 4 && sizeof(gdr_mapping_type_t) == 4 && sizeof(gdr_pin_flags_t) == 4);
CHECK(GPU_PAGE_SHIFT == 16 && GPU_PAGE_SIZE == 65536 && GPU_PAGE_OFFSET == 65535);
CHECK(GPU_PAGE_MASK == ~65535UL);
CHECK(MAJOR_VERSION_SHIFT == 16 && MINOR_VERSION_MASK == 65535);
CHECK(GDR_API_MAJOR_VERSION == 2 && GDR_API_MINOR_VERSION == 6 && GDR_API_VERSION == 0x20006);
CHECK(MINIMUM_GDRDRV_MAJOR_VERSION == 2 && MINIMUM_GDRDRV_MINOR_VERSION == 0);
CHECK(MINIMUM_GDRDRV_VERSION == 0x20000);
CHECK(GDR_PIN_FLAG_DEFAULT == 0 && GDR_PIN_FLAG_FORCE_PCIE == 1);
CHECK(GDR_MAPPING_TYPE_NONE == 0 && GDR_MAPPING_TYPE_WC == 1 && GDR_MAPPING_TYPE_CACHING == 2);
CHECK(GDR_MAPPING_TYPE_DEVICE == 3 && GDR_MAPPING_TYPE_MAX == 4);
CHECK(GDR_MAP_FLAG_DEFAULT == 0 && GDR_MAP_FLAG_REQ_WC_MAPPING == 1);
CHECK(GDR_MAP_FLAG_REQ_CACHE_MAPPING == 2 && GDR_MAP_FLAG_REQ_DEVICE_MAPPING == 3);
CHECK(GDR_ATTR_USE_PERSISTENT_MAPPING == 1 && GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE == 2);
CHECK(GDR_ATTR_USING_DMA_BUF_MMAP == 3 && GDR_ATTR_MAX == 4);
#ifndef gdr_get_info
#error "gdr_get_info is a macro for gdr_get_info_v2"
#endif
/* Tags are named in other projects' declarations. */
struct gdr;
typedef struct gdr *same_gdr_t;
static gdr_t opaque;
static same_gdr_t *same = &opaque;
static struct gdr_mh_s mh;
static struct gdr_info_v2 info;
static enum gdr_attr attr;
static enum gdr_pin_flags pin;
static enum gdr_mapping_type type;
static enum gdr_map_flags map;
int main(void)
{
	info.mapped = 1;
	info.wc_mapping = 0;
	(void)mh, (void)attr, (void)pin, (void)type, (void)map, (void)same;
	/* The bit-fields are the two lowest bits at byte 36. */
	return ((unsigned char *)&info)[36] != 1;
}
END
cp "$tmp/layout.h" "$tmp/layout.c" && cp "$tmp/layout.h" "$tmp/layout.cc"
gcc -std=c11 -Iinclude -o "$tmp/layout_c" "$tmp/layout.c" && "$tmp/layout_c"
ok "layout and values in C"
if command -v g++ >/dev/null; then
	g++ -std=c++17 -Iinclude -o "$tmp/layout_cc" "$tmp/layout.cc" && "$tmp/layout_cc"
	ok "layout and values in C++"
else
	skip "layout and values in C++" "g++ is not installed"
fi

# The list of types, and what a change of the headers does to it: layout.py.
tests/packages/layout.py check
ok "the public types are the kept ones: make refresh-abi adds new ones"
root=$tmp/root
# changed NAME TEXT FILE SED-SCRIPT...: layout.py finds that change, and says TEXT
changed() {
	local name=$1 text=$2
	shift 2
	rm -rf "$root"
	mkdir -p "$root/tests/packages" "$root/packaging/debian"
	cp -R include "$root"
	cp tests/packages/layout "$root/tests/packages"
	cp packaging/debian/libgdrapi2.symbols "$root/packaging/debian"
	[ "$name" != "after the tag" ] ||
		(cd "$root" && git init -q && git add . && git -c user.name=t -c user.email=t commit -qm t && git tag v2.6.0)
	while [ $# -gt 0 ]; do
		sed -i "$2" "$root/$1"
		shift 2
	done
	! tests/packages/layout.py check "$root" >"$tmp/said" && grep -qF -- "$text" "$tmp/said"
	ok "found: $name"
}
changed "a member before others" "barcopy_stats_t.pins 24 8: was 16 8" include/barcopy.h 's/^\tuint64_t pins, unpins/\tuint64_t waits_made;\n&/'
changed "a member at the end" "barcopy_bar_info_t.late 32 8: not in the list" \
	include/barcopy.h 's/^} barcopy_bar_info_t;/\tuint64_t late;\n&/'
changed "an enumerator before others" "BARCOPY_CMP_NE 3: was 2" include/barcopy.h 's/^\tBARCOPY_CMP_NE = 2/\tBARCOPY_CMP_XX = 2, BARCOPY_CMP_NE = 3/'
changed "a type that went" "barcopy_handle_seg_t.seg: the headers lack it" include/barcopy.h 's/^\(\tbarcopy_copy_seg_t \)seg;/\1segment;/'
changed "a level that no version brought" "BARCOPY_API_VERSION is 2: 1 versions" include/barcopy.h 's/API_VERSION 1$/API_VERSION 2/'
new=' barcopy_zero@BARCOPY_1 2.6.1'
changed "a new call without its level" "BARCOPY_API_VERSION is 1: 2 versions" packaging/debian/libgdrapi2.symbols "\$a\\$new"
changed "a new call in an old node" "barcopy_zero came with 2.6.1: its node in src/libgdrapi.map is BARCOPY_2" \
	packaging/debian/libgdrapi2.symbols "\$a\\$new"
if command -v git >/dev/null; then
	changed "after the tag" "barcopy_zero: v2.6.0 is tagged and lacks it" packaging/debian/libgdrapi2.symbols \
		'$a\ barcopy_zero@BARCOPY_1 2.6.0'
else
	skip "found: after the tag" "no git"
fi

# Every public function has a comment before it.
! awk '/^ \*\/|^\/\*\*.*\*\/$/ { doc = 1; next }
	/^(int|void|gdr_t|const char \*)[ *]*(gdr|barcopy)_[a-z0-9_]+\(/ && !doc { print; bad = 1 }
	/^$/ { doc = 0 } END { exit !bad }' include/gdrapi.h include/barcopy.h include/barcopy_queue.h
ok "every public function has its doc comment"
# The kernel's side, by clang's front end for CUDA, which needs no toolkit: the memory accesses of its asm are
# those of the PTX text that the tests and gdrcopy_pplat run.
if ! command -v clang >/dev/null; then
	skip "barcopy_queue.cuh compiles for a GPU" "no clang"
	finish
fi
cat >"$tmp/cuda.h" <<'PRELUDE'
#define __CUDACC__
#define __CUDACC_RTC__
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __ballot_sync __nvvm_vote_ballot_sync
#define __any_sync __nvvm_vote_any_sync
#define __all_sync __nvvm_vote_all_sync
#define __shfl_sync(mask, value, lane) __nvvm_shfl_sync_idx_i32(mask, (int)(value), lane, 31)
#define __syncwarp __nvvm_bar_warp_sync
#define __popc __builtin_popcount
struct block { unsigned x; };
#define blockIdx ((struct block){ (unsigned)__nvvm_read_ptx_sreg_ctaid_x() })
#define blockDim ((struct block){ (unsigned)__nvvm_read_ptx_sreg_ntid_x() })
#define threadIdx ((struct block){ (unsigned)__nvvm_read_ptx_sreg_tid_x() })
PRELUDE
clang -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib -Wno-unknown-cuda-version -Wall -Wextra \
	-Werror -Xclang -target-feature -Xclang +ptx64 -O2 -S -o "$tmp/queue.ptx" -Iinclude -include "$tmp/cuda.h" \
	perf/queue/kernels.cu
accesses() {
	grep -oE '(ld|st|atom|fence)\.[a-z0-9_.]*sys[a-z0-9_.]*' | sort -u
}
accesses <"$tmp/queue.ptx" >"$tmp/source"
accesses <perf/queue/kernels.ptx >"$tmp/text"
printf '%s\n' atom.relaxed.sys.global.cas.b64 fence.acq_rel.sys ld.acquire.sys.global.v2.u64 \
	ld.relaxed.sys.global.v2.u64 st.relaxed.sys.global.v2.u64 | diff - "$tmp/source"
diff "$tmp/source" "$tmp/text"
ok "barcopy_queue.cuh compiles for a GPU, with the accesses of its PTX text"
finish
