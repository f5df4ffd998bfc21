/* SPDX-License-Identifier: MIT */
/*
 * Memory barriers between a CPU and memory that it maps from a GPU.
 *
 * Each barrier below is a named use: it says which two things must be seen in which order, why
 * the machine would otherwise swap them, and then gives the instruction. A caller picks the use,
 * never the instruction. The mapping's type is an argument of every call, so buffers of different
 * types live side by side and no process-wide state is needed.
 *
 * Sources, by title since section numbers move between editions:
 *  [SDM]   Intel SDM vol. 3A "Memory Ordering" and "Buffering of Write Combining Memory
 *          Locations"; vol. 2 MOVNTDQA, LFENCE, SFENCE, MFENCE, MOVDIR64B
 *  [APM]   AMD APM vol. 2 "Memory Types", "Memory Barrier Interaction with Memory Types"
 *  [ARM]   Arm ARM (DDI 0487), part "The AArch64 Application Level Memory Model"; sections below,
 *          their titles from memory: not yet compared with an edition
 *  [GUIDE] GPUDirect RDMA guide, section 11.7; 13.4 for Tegra
 *  [H200]  message-passing litmus, 20000 rounds a line, one H200 (PCIe 5.0 x16, driver 580.159.04)
 *          under a Sapphire-Rapids-class CPU, 2026-11-20; dev/litmus repeats it
 *
 * What the types mean here:
 *  WC       x86: weakly ordered. Stores gather in line buffers that drain in any order. MOVNTDQA
 *           may be served from a line buffer filled earlier, and may pass older loads.
 *           arm64: Normal Non-cacheable, ordinary weak order, stores may gather.
 *  CACHING  x86: write-back, total store order. arm64: Normal cacheable, ordinary weak order.
 *  DEVICE   arm64: Device-nGnRE, in order within the device only. x86: not made by any backend;
 *           it is given what WC is given.
 *  NONE     no instruction at all, only the compiler is held. For BARCOPY_COPY_NO_FENCE and for the
 *           benchmarks and the litmus test, which must be able to show what a fence is good for.
 *
 * arm64 in full, since nothing of it is measured here [ARM]:
 *  - "Memory types and attributes", "Normal memory": a load may be performed early, repeated or
 *    merged, stores may be gathered; Normal Non-cacheable memory is always Outer Shareable. Hence
 *    the OSH forms: an inner-shareable barrier would not speak of these accesses ("Shareability and
 *    access limitations on the data barrier operations").
 *  - "Definition of the Arm memory model", "Barrier-ordered-before": DMB LD puts earlier loads before
 *    later loads and stores, DMB ST earlier stores before later stores, DMB alone all before all.
 *    Of one location a CPU reads its own last store without a barrier ("Internal visibility
 *    requirement").
 *  - "Device memory": the nR attribute orders accesses to one peripheral among themselves, and not
 *    against Normal memory, where flags and data may lie: so DEVICE gets every fence too. Accesses
 *    must be naturally aligned ("Alignment support"); copy.h's plans see to that.
 *  - "Memory barriers", "Data Synchronization Barrier": DSB alone makes the CPU wait until the loads
 *    before it have completed; a DMB orders accesses and waits for nothing.
 *  - "Mismatched memory attributes": two mappings of one page by different types lose coherence and
 *    size guarantees. Hence a mapping's type is the allocation's [GUIDE, 13.4.3], unless a caller asks
 *    for another; before_read() has such callers in mind.
 *  - "Requirements for single-copy atomicity": aligned words of up to 8 bytes, in every type.
 *
 * Not given by any of these: what a kernel that is already running on the GPU sees. Only work
 * submission and synchronisation calls order the GPU's own view [GUIDE].
 *
 * Every barrier is a compiler barrier too.
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

#if defined(__x86_64__)

#define gdri_asm_before_read()	 __asm__ volatile("mfence" ::: "memory")
#define gdri_asm_after_read()	 __asm__ volatile("lfence" ::: "memory")
#define gdri_asm_between_reads() __asm__ volatile("mfence" ::: "memory")
#define gdri_asm_after_write()	 __asm__ volatile("sfence" ::: "memory")
#define gdri_asm_push()		 __asm__ volatile("sfence" ::: "memory")
#define gdri_asm_full()		 __asm__ volatile("mfence" ::: "memory")
#define gdri_asm_read_done()	 __asm__ volatile("lfence" ::: "memory")
#define gdri_fence_wanted(type)	 gdri_fence_weak(type)

#elif defined(__aarch64__)

#define gdri_asm_before_read()	 __asm__ volatile("dmb osh" ::: "memory")
#define gdri_asm_after_read()	 __asm__ volatile("dmb oshld" ::: "memory")
#define gdri_asm_between_reads() __asm__ volatile("dmb oshld" ::: "memory")
#define gdri_asm_after_write()	 __asm__ volatile("dmb oshst" ::: "memory")
#define gdri_asm_push()		 __asm__ volatile("dsb oshst" ::: "memory")
#define gdri_asm_full()		 __asm__ volatile("dmb osh" ::: "memory")
#define gdri_asm_read_done()	 __asm__ volatile("dsb oshld" ::: "memory")
#define gdri_fence_wanted(type)	 ((type) != GDR_MAPPING_TYPE_NONE)

#else
#error "no barriers are known for this processor"
#endif

/*
 * Before reading the mapping.
 *
 * Order: whatever the caller has observed (a flag in host memory, a completion, an earlier read
 * of this mapping) came before the loads that follow, so these return data at least as new. Also:
 * this CPU's own stores through the same mapping came before, so it reads what it wrote.
 *
 * Why: a streaming load may take its bytes from a line buffer filled before the flag was seen, or
 * be performed before an older load of the flag; a store may still wait in a line buffer.
 *
 * x86, WC: MFENCE. [SDM, MOVNTDQA] names it for "reads of a processor with writes by other
 *   agents"; LFENCE is not enough: with it 10 to 98 of 4000 copies returned the previous round's
 *   data, with MFENCE none of 20000 [H200]. That MFENCE empties the line buffers filled by
 *   streaming loads is measured on that one Intel CPU; elsewhere it rests on the manual's word.
 * x86, CACHING: nothing. Loads are performed in order and caches are coherent [SDM, APM].
 * arm64: DMB OSH, in the domain that the device is in. Older loads before younger loads, for which DMB
 *   OSHLD would do; and older stores: of one mapping a CPU reads its own last store without a barrier, but
 *   a buffer may be mapped twice, by different types (gdr_map_v2()), and then only a barrier of every access
 *   lets it read by one what it has stored by the other. Beside a read of a microsecond it is small; it
 *   has not been measured.
 */
static inline void gdri_fence_before_read(gdr_mapping_type_t type)
{
	if (gdri_fence_wanted(type))
		gdri_asm_before_read();
	else
		gdri_compiler_barrier();
}

/*
 * After reading the mapping.
 *
 * Order: the loads have been performed before any load or store of the caller that follows. A
 * sequence-lock reader's second look at the counter comes after the data; a ring reader's "slot is
 * free" store cannot overtake the reading of the slot.
 *
 * Why: loads of WC memory are not ordered against younger loads; an LFENCE holds back all younger
 * instructions, stores too, until every older load is complete.
 *
 * x86, WC: LFENCE. An SFENCE orders no loads and is wrong here.
 * x86, CACHING: nothing. Neither loads nor stores pass an older load [SDM, APM].
 * arm64: DMB OSHLD, loads before loads and stores. A store-only barrier (DMB ST) is wrong here.
 */
static inline void gdri_fence_after_read(gdr_mapping_type_t type)
{
	if (gdri_fence_wanted(type))
		gdri_asm_after_read();
	else
		gdri_compiler_barrier();
}

/*
 * Between two groups of reads of one vectored copy: before an ORDERED piece.
 *
 * Order: as after_read followed by before_read. One instruction does both: MFENCE waits for the
 * older loads and empties the line buffers, which may hold the ordered piece's line since it is
 * whole lines that are read; DMB OSHLD is the same barrier either way.
 */
static inline void gdri_fence_between_reads(gdr_mapping_type_t type)
{
	if (gdri_fence_wanted(type))
		gdri_asm_between_reads();
	else
		gdri_compiler_barrier();
}

/*
 * After writing the mapping; also between two groups of writes.
 *
 * Order: the stores leave this CPU before any younger store of it to the same device. PCIe keeps
 * posted writes of one requester to one device in order from there. Another device (a NIC that is
 * told by its doorbell to read GPU memory) travels another path: gdri_flush_word() is for that.
 *
 * Why: line buffers drain in any order, at any time.
 *
 * x86, WC: SFENCE. It waits until the line buffers have drained, about 100 ns [H200].
 * x86, CACHING: nothing. Plain stores are performed in order; no row uses non-temporal
 *   stores on such a mapping.
 * arm64: DMB OSHST.
 *
 * The stores *before* a copy into a mapping are no business of this barrier, and no other stands
 * before such a copy:
 * x86: earlier stores to WC memory may still be draining: not ordered, unless fenced. Earlier
 *   stores to write-back memory leave the store buffer in program order on the processors that we
 *   know, but the manuals promise that order only for stores to write-back memory: not promised.
 * arm64: not ordered.
 * A caller that needs it says barcopy_fence(h, BARCOPY_FENCE_AFTER_WRITE) or BARCOPY_FENCE_FULL first: SFENCE
 * and DMB OSHST order older stores of every memory type before younger ones.
 */
static inline void gdri_fence_after_write(gdr_mapping_type_t type)
{
	if (gdri_fence_wanted(type))
		gdri_asm_after_write();
	else
		gdri_compiler_barrier();
}

/*
 * Behind a store that is to leave this CPU now, with no later store that would drive it out.
 *
 * Order: as after_write; and the stores do not stay in a buffer of this CPU.
 *
 * Why: the manuals promise no time after which a line buffer, even a full one, is emptied.
 *
 * x86, WC: SFENCE, as after_write: it drains the line buffers.
 * x86, CACHING: nothing: a store buffer empties by itself, and caches are coherent.
 * arm64: DSB OSHST, which waits until the stores before it have completed; a DMB would only order them.
 */
static inline void gdri_fence_push(gdr_mapping_type_t type)
{
	if (gdri_fence_wanted(type))
		gdri_asm_push();
	else
		gdri_compiler_barrier();
}

/*
 * Everything: every older load and store before every younger one, of any memory type, on every
 * mapping type (also on x86 CACHING, where it adds store-to-load order). MFENCE; DMB OSH.
 */
static inline void gdri_fence_full(gdr_mapping_type_t type)
{
	if (type != GDR_MAPPING_TYPE_NONE)
		gdri_asm_full();
	else
		gdri_compiler_barrier();
}

/*
 * After the read-back of a flush.
 *
 * Order: the load has returned before the caller goes on. A PCIe read completion does not come
 * back before the posted writes ahead of the read have reached the device, so what was written is
 * in GPU memory by then. DMB would order accesses only; here the CPU itself must wait.
 *
 * x86: LFENCE. arm64: DSB OSHLD.
 */
static inline void gdri_fence_read_done(gdr_mapping_type_t type)
{
	if (type != GDR_MAPPING_TYPE_NONE)
		gdri_asm_read_done();
	else
		gdri_compiler_barrier();
}

#endif
