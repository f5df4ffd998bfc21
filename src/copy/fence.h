/* SPDX-License-Identifier: MIT */
/*
 * Memory barriers between a CPU and memory that it maps from a GPU. A caller names the use and the
 * mapping's type, never an instruction; below, each use says what it orders and why, and ends with
 * its instruction on x86 and on arm64. No state belongs to the process: mappings of several types
 * may be used side by side.
 *
 * The mapping types:
 *  WC       x86: weakly ordered. Stores gather in line buffers, which drain in any order. A
 *           streaming load (MOVNTDQA) may be served from a line buffer filled earlier, and may pass
 *           older loads.
 *           arm64: Normal Non-cacheable, weakly ordered; stores may gather.
 *  CACHING  x86: write-back, total store order. arm64: Normal cacheable, weakly ordered.
 *  DEVICE   arm64: Device-nGnRE, in order within the device only. x86: no backend makes it; it
 *           counts as WC.
 *  NONE     no instruction, the compiler alone is held: for BARCOPY_COPY_NO_FENCE, and for the
 *           benchmarks and litmus, which show what a fence is good for.
 *
 * Sources, by title since section numbers move between editions:
 *  [SDM]   Intel SDM vol. 3A "Memory Ordering" and "Buffering of Write Combining Memory Locations";
 *          vol. 2 MOVNTDQA, LFENCE, SFENCE, MFENCE, MOVDIR64B
 *  [APM]   AMD APM vol. 2 "Memory Types", "Memory Barrier Interaction with Memory Types"
 *  [ARM]   Arm ARM (DDI 0487), part "The AArch64 Application Level Memory Model"; its titles below
 *          are from memory, not yet compared with an edition
 *  [GUIDE] GPUDirect RDMA guide, release 12.3, "Synchronization and Memory Ordering"; for Tegra
 *          "Porting to Tegra", "Other highlights"
 *  [H200]  message-passing litmus, 20000 rounds a line, one H200 (PCIe 5.0 x16, driver 580.159.04)
 *          under a Sapphire-Rapids-class CPU, 2026-11-20; tests/litmus repeats it
 *
 * arm64, where nothing is measured [ARM]:
 *  - "Normal memory": loads may be early, repeated or merged, stores gathered. Normal Non-cacheable
 *    memory is always Outer Shareable, which only the OSH forms of a barrier cover.
 *  - "Barrier-ordered-before": DMB LD orders earlier loads before later loads and stores, DMB ST
 *    earlier stores before later stores, DMB everything. A CPU reads its own last store to a
 *    location without one.
 *  - "Device memory": accesses are naturally aligned. nR orders those to one peripheral among
 *    themselves, not against Normal memory, where flags and data may lie: DEVICE gets every fence.
 *  - "Data Synchronization Barrier": DSB makes the CPU wait until earlier accesses have completed;
 *    a DMB only orders them.
 *  - "Mismatched memory attributes": two mappings of a page by different types lose coherence and
 *    size guarantees. A mapping's type is the allocation's [GUIDE, highlights] unless the caller
 *    asks for another, which before_read allows for.
 *  - "Requirements for single-copy atomicity": aligned words of up to 8 bytes, in every type.
 *
 * What other code has in these places, compared 2026-11-23: Linux arch/{x86,arm64}/include/asm/
 * barrier.h (and dgh() of __iowrite64_copy() in arm64's io.h), rdma-core util/udma_barrier.h, and
 * GDRCopy 2.6 src/gdrapi.c, which has one fence behind a copy, read or write:
 *
 *   arm64         here       Linux               rdma-core             GDRCopy
 *   before_read   DMB OSH    __dma_mb() DMB OSH  -                     -
 *   after_read    DMB OSHLD  __dma_rmb() same    from_device same      DMB ST; DMB SY where a
 *   after_write   DMB OSHST  __dma_wmb() same    to_device same          process has mappings of
 *   push          DSB OSHST  __wmb() DSB ST      flush_writes DSB ST     several types
 *   gathered      DGH        dgh() same          -                     -
 *   read_done     DSB OSHLD  __rmb() DSB LD      -                     -
 *   x86, WC
 *   before_read   MFENCE     __mb() same         -                     -
 *   after_read    LFENCE     __rmb() same        from_device same      SFENCE; MFENCE where a
 *   after_write   SFENCE     __wmb() same        flush_writes same       process has ... types
 *
 * No barrier here decides what a kernel that already runs on the GPU sees: only work submission and
 * synchronisation order the GPU's own view [GUIDE].
 */
#ifndef GDRI_COPY_FENCE_H
#define GDRI_COPY_FENCE_H

#include "barcopy.h"

/* The compiler neither keeps memory in registers across this nor moves an access over it. */
#define gdri_compiler_barrier() __asm__ volatile("" ::: "memory")

/* True for the types whose accesses x86 orders weakly. */
static inline int gdri_fence_weak(gdr_mapping_type_t type)
{
	return type == GDR_MAPPING_TYPE_WC || type == GDR_MAPPING_TYPE_DEVICE;
}

/* The types that need most fences; gdri_fence_always: where CACHING on x86 needs one too. */
#if defined(__x86_64__)
#define GDRI_BARRIER(x86, arm64) __asm__ volatile(x86 ::: "memory")
#define gdri_fence_wanted(type)	 gdri_fence_weak(type)
#elif defined(__aarch64__)
#define GDRI_BARRIER(x86, arm64) __asm__ volatile(arm64 ::: "memory")
#define gdri_fence_wanted(type)	 ((type) != GDR_MAPPING_TYPE_NONE)
#else
#error "no barriers are known for this processor"
#endif
#define gdri_fence_always(type) ((type) != GDR_MAPPING_TYPE_NONE)

/* Defines a use: its instruction for the types that need it, the compiler's barrier for others. */
#define GDRI_FENCE(fn, needs, x86, arm64)              \
	static inline void fn(gdr_mapping_type_t type) \
	{                                              \
		if (needs(type))                       \
			GDRI_BARRIER(x86, arm64);      \
		else                                   \
			gdri_compiler_barrier();       \
	}

/*
 * Before reading the mapping.
 *
 * Order: what the caller has observed (a flag in host memory, a completion, an earlier read of this
 * mapping) and what this CPU has stored through the mapping come before the loads that follow, so
 * these return data at least as new.
 *
 * Why: a streaming load may take its bytes from a line buffer filled before the flag was seen, or
 * pass an older load of the flag; a store may still wait in a line buffer.
 *
 * x86, WC: MFENCE, which [SDM, MOVNTDQA] names for "reads of a processor with writes by other
 *   agents". LFENCE is not enough: with it 10 to 98 of 4000 copies returned the previous round's
 *   data, with MFENCE none of 20000 [H200]. That MFENCE empties the line buffers filled by
 *   streaming loads is measured on that one Intel CPU; elsewhere it rests on the manual.
 * x86, CACHING: nothing. Loads are performed in order and caches are coherent [SDM, APM].
 * arm64: DMB OSH. DMB OSHLD would order older loads; older stores matter where a buffer is mapped
 *   twice by different types (gdr_map_v2()), stored to by one and read by the other. Its cost is
 *   not measured.
 */
GDRI_FENCE(gdri_fence_before_read, gdri_fence_wanted, "mfence", "dmb osh")

/*
 * After reading the mapping.
 *
 * Order: the loads have been performed before any later load or store of the caller. A
 * sequence-lock reader's second look at the counter comes after the data; a ring reader's "slot is
 * free" store cannot overtake the reading of the slot.
 *
 * x86, WC: LFENCE, which holds back all younger instructions until every older load is complete;
 *   loads of WC memory are not ordered against younger loads. An SFENCE orders no loads.
 * x86, CACHING: nothing. Neither loads nor stores pass an older load [SDM, APM].
 * arm64: DMB OSHLD, loads before loads and stores; DMB ST would order no loads.
 */
GDRI_FENCE(gdri_fence_after_read, gdri_fence_wanted, "lfence", "dmb oshld")

/*
 * Between two groups of reads of one vectored copy, before an ORDERED piece: after_read and
 * before_read in one instruction. MFENCE waits for the older loads and empties the line buffers,
 * which may hold the ordered piece's line since whole lines are read.
 */
GDRI_FENCE(gdri_fence_between_reads, gdri_fence_wanted, "mfence", "dmb oshld")

/* Before a poll: on arm64 only the first one may have older stores of the caller before it. */
static inline void gdri_fence_before_poll(gdr_mapping_type_t type, int first)
{
#if defined(__aarch64__)
	if (!first) {
		gdri_fence_between_reads(type);
		return;
	}
#endif
	(void)first;
	gdri_fence_before_read(type);
}

/*
 * After writing the mapping; also between two groups of writes.
 *
 * Order: the stores leave this CPU before any younger store of it to the same device; PCIe keeps
 * posted writes of one requester to one device in order from there. Another device (a NIC whose
 * doorbell makes it read GPU memory) is reached by another path: gdri_flush_word() is for that.
 *
 * x86, WC: SFENCE. It waits until the line buffers, which drain in any order, have drained: about
 *   100 ns [H200].
 * x86, CACHING: nothing. Plain stores are performed in order; no copy has non-temporal ones there.
 * arm64: DMB OSHST.
 *
 * No barrier stands before a copy into a mapping, so the caller's older stores are not ordered
 * before it:
 * x86: stores to WC memory may still be draining. Stores to write-back memory leave the store
 *   buffer in program order on the processors that we know; the manuals promise that for write-back
 *   memory only.
 * arm64: not ordered.
 * A caller that needs the order calls barcopy_fence() with BARCOPY_FENCE_AFTER_WRITE or
 * BARCOPY_FENCE_FULL first: SFENCE and DMB OSHST order older stores of every memory type before
 * younger ones.
 */
GDRI_FENCE(gdri_fence_after_write, gdri_fence_wanted, "sfence", "dmb oshst")

/*
 * Before a word that tells the other side to go on: it then reads what this CPU has stored, and stores
 * where this CPU has loaded. `type` is that of the memory in question, not of the word.
 *
 * Order: older stores as after_write. Older loads have been performed before the word is stored: a
 * later one could return what the other side stores then.
 *
 * x86, WC: SFENCE.
 * x86, CACHING: nothing. Stores are performed in order; that of the word follows them even where it is
 *   a MOVDIRI, on the processors that we know (after_write, above). A store of any type leaves the CPU
 *   after its retirement, and an older load has its data by its own.
 * arm64: DMB OSH. DMB OSHST orders no loads.
 */
GDRI_FENCE(gdri_fence_before_word, gdri_fence_wanted, "sfence", "dmb osh")

/*
 * Behind a word that the other side waits for: the data gathering hint. No later store is merged with
 * those before it, so a write buffer has nothing to wait for (Linux, dgh()). A hint promises nothing,
 * and a CPU without FEAT_DGH does nothing. On x86 the fence behind the word does it.
 */
#if defined(__aarch64__)
GDRI_FENCE(gdri_fence_gathered, gdri_fence_wanted, "", "hint #6")
#else
#define gdri_fence_gathered(type) (void)(type)
#endif

/*
 * Behind a store that has to leave this CPU now, with no later store that would drive it out. The
 * manuals promise no time after which a line buffer, even a full one, is emptied.
 *
 * x86, WC: SFENCE, which drains the line buffers.
 * x86, CACHING: nothing. A store buffer empties by itself, and caches are coherent.
 * arm64: the hint above, and DSB OSHST, which waits for the stores; a DMB would only order them.
 */
GDRI_FENCE(gdri_fence_push, gdri_fence_wanted, "sfence", "hint #6\n\tdsb oshst")

/*
 * Everything: every older load and store before every younger one, of any memory type, on every
 * mapping type (on x86 CACHING it adds store-to-load order).
 */
GDRI_FENCE(gdri_fence_full, gdri_fence_always, "mfence", "dmb osh")

/*
 * After the read-back of a flush: the load has returned before the caller goes on. A PCIe read
 * completion follows the posted writes ahead of the read, so what was written is in GPU memory by
 * then. The CPU itself must wait for that: LFENCE; DSB OSHLD, since a DMB only orders.
 */
GDRI_FENCE(gdri_fence_read_done, gdri_fence_always, "lfence", "dsb oshld")

#endif
