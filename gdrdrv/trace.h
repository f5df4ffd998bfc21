/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Tracepoints gdrdrv:pin, map, revoke, unpin. Nothing in the build for the proprietary flavour:
 * tracepoints are GPL-only.
 */
/* clang-format off */
#ifndef GDRDRV_GPL
#ifndef GDRDRV_NO_TRACE_H
#define GDRDRV_NO_TRACE_H
#define trace_gdrdrv_pin(...) do { } while (0)
#define trace_gdrdrv_map(...) do { } while (0)
#define trace_gdrdrv_revoke(...) do { } while (0)
#define trace_gdrdrv_unpin(...) do { } while (0)
#endif
#else

#undef TRACE_SYSTEM
#define TRACE_SYSTEM gdrdrv

#if !defined(GDRDRV_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define GDRDRV_TRACE_H

#include <linux/tracepoint.h>
#include <linux/types.h>

TRACE_EVENT(gdrdrv_pin,
	TP_PROTO(u64 va, u64 size, u64 handle, int ret),
	TP_ARGS(va, size, handle, ret),
	TP_STRUCT__entry(
		__field(u64, va)
		__field(u64, size)
		__field(u64, handle)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->va = va;
		__entry->size = size;
		__entry->handle = handle;
		__entry->ret = ret;
	),
	TP_printk("va=0x%llx size=%llu handle=0x%llx ret=%d", __entry->va, __entry->size,
		  __entry->handle, __entry->ret)
);

TRACE_EVENT(gdrdrv_map,
	TP_PROTO(u64 va, u64 size, u64 handle, u32 type, int ret),
	TP_ARGS(va, size, handle, type, ret),
	TP_STRUCT__entry(
		__field(u64, va)
		__field(u64, size)
		__field(u64, handle)
		__field(u32, type)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->va = va;
		__entry->size = size;
		__entry->handle = handle;
		__entry->type = type;
		__entry->ret = ret;
	),
	TP_printk("va=0x%llx size=%llu handle=0x%llx type=%u ret=%d", __entry->va, __entry->size,
		  __entry->handle, __entry->type, __entry->ret)
);

TRACE_EVENT(gdrdrv_revoke,
	TP_PROTO(u64 va, u64 size, u64 handle, bool orphan),
	TP_ARGS(va, size, handle, orphan),
	TP_STRUCT__entry(
		__field(u64, va)
		__field(u64, size)
		__field(u64, handle)
		__field(bool, orphan)
	),
	TP_fast_assign(
		__entry->va = va;
		__entry->size = size;
		__entry->handle = handle;
		__entry->orphan = orphan;
	),
	TP_printk("va=0x%llx size=%llu handle=0x%llx orphan=%d", __entry->va, __entry->size,
		  __entry->handle, __entry->orphan)
);

TRACE_EVENT(gdrdrv_unpin,
	TP_PROTO(u64 va, u64 size, u64 handle, bool revoked, bool orphan),
	TP_ARGS(va, size, handle, revoked, orphan),
	TP_STRUCT__entry(
		__field(u64, va)
		__field(u64, size)
		__field(u64, handle)
		__field(bool, revoked)
		__field(bool, orphan)
	),
	TP_fast_assign(
		__entry->va = va;
		__entry->size = size;
		__entry->handle = handle;
		__entry->revoked = revoked;
		__entry->orphan = orphan;
	),
	TP_printk("va=0x%llx size=%llu handle=0x%llx revoked=%d orphan=%d", __entry->va,
		  __entry->size, __entry->handle, __entry->revoked, __entry->orphan)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>

#endif
