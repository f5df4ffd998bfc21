#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Tests by compiling which forms of a kernel interface and of nv-p2p.h exist; prints a header of
# HAVE_* lines. It runs nothing that it built, so it works for any target.
#
# usage: conftest.sh MADE_FOR COMPILER FLAGS...	MADE_FOR: text for the header's first line
set -u

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

compile() {
	"$CC_" "$@" -Werror -Wno-unused -Wno-missing-prototypes -Wno-missing-declarations \
		-c -o "$dir/t.o" "$dir/t.c" >"$dir/log" 2>&1
}

made_for=$1 CC_=$2
shift 2

check() {
	name=$1
	shift
	cat >"$dir/t.c"
	if compile "$@"; then
		echo "#define HAVE_$name 1"
	else
		echo "/* HAVE_$name is not set */"
	fi
}

echo "/* Made by conftest.sh for $made_for; do not edit. */"
echo "#ifndef GDRDRV_CONFTEST_H"
echo "#define GDRDRV_CONFTEST_H"

# A compiler or flags that fail on everything must not look like an old kernel.
cat >"$dir/t.c" <<'C'
#include <linux/mm.h>
int t(void) { return 0; }
C
if ! compile "$@"; then
	echo "conftest.sh: nothing compiles with these flags:" >&2
	cat "$dir/log" >&2
	exit 1
fi

check VM_FLAGS_INIT "$@" <<'C'
#include <linux/mm.h>
void t(struct vm_area_struct *v) { vm_flags_init(v, v->vm_flags | VM_IO); }
C
check VM_OPS_MAY_SPLIT "$@" <<'C'
#include <linux/mm.h>
static int s(struct vm_area_struct *v, unsigned long a) { return 0; }
const struct vm_operations_struct t = { .may_split = s };
C
check INVALIDATE_LOCK "$@" <<'C'
#include <linux/fs.h>
struct rw_semaphore *t(struct address_space *m) { return &m->invalidate_lock; }
C

# nv-p2p.h
check P2P_PERSISTENT_API "$@" <<'C'
#include <linux/mm.h>
#include <nv-p2p.h>
int t(struct nvidia_p2p_page_table **p)
{
	return nvidia_p2p_get_pages_persistent(0, 0, p, 0) + nvidia_p2p_put_pages_persistent(0, *p, 0);
}
C
check P2P_NULL_CALLBACK "$@" <<'C'
#include <linux/mm.h>
#include <nv-p2p.h>
#ifndef NVIDIA_P2P_CAP_PERSISTENT_PAGES
#error no
#endif
C
check P2P_FORCE_BAR1 "$@" <<'C'
#include <linux/mm.h>
#include <nv-p2p.h>
int t(void) { return NVIDIA_P2P_FLAGS_FORCE_BAR1_MAPPING; }
C
check P2P_TABLE_FLAGS "$@" <<'C'
#include <linux/mm.h>
#include <nv-p2p.h>
int t(struct nvidia_p2p_page_table *p) { return !!(p->flags & NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE); }
C

echo "#endif"
