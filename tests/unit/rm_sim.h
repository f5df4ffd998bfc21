/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the rm backend share: a context that has that backend alone, one range from pin
 * to unpin with its bytes looked at, and what must be left afterwards.
 */
#ifndef TEST_UNIT_RM_SIM_H
#define TEST_UNIT_RM_SIM_H

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/expect.h"
#include "common/rm.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "barcopy.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static gdr_t rm_g;

static inline void rm_open_context(void)
{
	setenv("GDRCOPY_BACKEND", "rm", 1);
	rm_g = gdr_open();
	ck_assert_msg(rm_g != NULL, "%s", barcopy_last_error());
}

enum { RM_SECOND = 1000 }; /* at which the clock stands, by which a trial is repeated */

static inline void rm_begin(void)
{
	wrap_clock(RM_SECOND);
	standin_start();
	rm_open_context();
}

/* The client and the devices of that many GPUs are kept, and nothing else. */
static inline void rm_assert_kept(unsigned int gpus)
{
	struct gdrsim_rm_counts c;

	rm_sim.counts(&c);
	ck_assert_uint_eq(c.ctl_files, gpus != 0);
	ck_assert_uint_eq(c.clients, gpus != 0);
	ck_assert_uint_eq(c.device_files, gpus);
	ck_assert_uint_eq(c.devices, gpus);
	ck_assert_uint_eq(c.memories, 0);
	ck_assert_uint_eq(c.maps, 0);
	ck_assert_uint_eq(c.vmas, 0);
	ck_assert_uint_eq(c.dmabufs, 0);
	ck_assert_uint_eq(rm_sim.stale(), 0);
}

static inline void rm_end(unsigned int gpus)
{
	OK(gdr_close(rm_g));
	rm_g = NULL;
	rm_assert_kept(gpus);
}

/* For unit_after: one GPU was used, unless the test has ended its context itself. */
static inline void rm_end_one(void)
{
	if (rm_g)
		rm_end(1);
}

/* ---- one range ----------------------------------------------------------- */

struct rm_use {
	CUdeviceptr addr;
	size_t size;
	gdr_mh_t h;
	gdr_info_t info;
	void *map;
	uint8_t *p; /* the byte at addr */
};

static inline int rm_use_open(struct rm_use *u, CUdeviceptr addr, size_t size, uint32_t flags)
{
	int rc = gdr_pin_buffer_v2(rm_g, addr, size, flags, &u->h);

	u->addr = addr;
	u->size = size;
	if (rc)
		return rc;
	OK(gdr_get_info(rm_g, u->h, &u->info));
	rc = gdr_map(rm_g, u->h, &u->map, u->info.mapped_size);
	if (rc) {
		OK(gdr_unpin_buffer(rm_g, u->h));
		return rc;
	}
	OK(gdr_get_info(rm_g, u->h, &u->info));
	u->p = (uint8_t *)u->map + (addr - u->info.va);
	return 0;
}

static inline void rm_use_close(struct rm_use *u)
{
	OK(gdr_unmap(rm_g, u->h, u->map, u->info.mapped_size));
	OK(gdr_unpin_buffer(rm_g, u->h));
}

enum { RM_LOOK = 300 };

static inline void rm_pattern(uint8_t *at, size_t n, unsigned long long seed)
{
	unsigned long long state = seed * 2654435761u + 1;

	for (size_t i = 0; i < n; i++)
		at[i] = (uint8_t)(unit_random(&state) >> 40);
}

/* Both ways at one place: each side sees what the other has written. */
static inline void rm_look_at(const char *what, struct rm_use *u, size_t at, unsigned int seed)
{
	size_t n = u->size - at < RM_LOOK ? u->size - at : RM_LOOK;
	uint8_t a[RM_LOOK], b[RM_LOOK];

	rm_pattern(a, n, u->addr + seed);
	OK(gdr_copy_to_mapping(u->h, u->p + at, a, n));
	CU(cuda.cuMemcpyDtoH_v2(b, u->addr + at, n));
	ck_assert_msg(!memcmp(a, b, n), "%s: the GPU sees other bytes at 0x%zx", what, at);
	rm_pattern(a, n, u->addr + seed + 1000);
	standin_to_gpu(u->addr + at, a, n);
	OK(gdr_copy_from_mapping(u->h, b, u->p + at, n));
	ck_assert_msg(!memcmp(a, b, n), "%s: the CPU sees other bytes at 0x%zx", what, at);
}

/* At both ends, in the middle, across GPU pages, and across every 2 MiB, where objects meet. */
static inline void rm_look(const char *what, struct rm_use *u)
{
	size_t first = 2 * MIB - u->addr % (2 * MIB), last = u->size;

	last -= last < RM_LOOK ? last : RM_LOOK;
	rm_look_at(what, u, 0, 1);
	rm_look_at(what, u, u->size / 2, 2);
	rm_look_at(what, u, last, 3);
	for (size_t at = 64 * KIB - u->addr % (64 * KIB); at + 64 * KIB < u->size && at < MIB;
	     at += 64 * KIB)
		rm_look_at(what, u, at - 100, 4);
	for (size_t at = first; at < u->size; at += 2 * MIB)
		if (at > 100)
			rm_look_at(what, u, at - 100, 5);
}

/* From pin to unpin, twice. */
static inline void rm_whole_life(const char *what, CUdeviceptr addr, size_t size)
{
	for (int i = 0; i < 2; i++) {
		struct gdrsim_rm_counts before, after;
		struct rm_use u;
		int rc;

		rm_sim.counts(&before);
		rc = rm_use_open(&u, addr, size, 0);
		ck_assert_msg(!rc, "%s: errno %d: %s", what, rc, barcopy_last_error());
		HANDLE_HAS(rm_g, u.h, BACKEND, BARCOPY_BACKEND_RM);
		HANDLE_HAS(rm_g, u.h, MAPPING_TYPE,
			   standin_device_bar1() ? GDR_MAPPING_TYPE_DEVICE : GDR_MAPPING_TYPE_WC);
		ck_assert_uint_eq(u.info.va, addr & ~0xffffull);
		ck_assert_uint_lt(u.info.va + u.info.mapped_size - (addr + size), 65536);
		rm_sim.counts(&after);
		ck_assert_uint_eq(after.dmabufs, before.dmabufs);
		ck_assert_uint_eq(after.memories - before.memories, after.maps - before.maps);
		rm_look(what, &u);
		rm_use_close(&u);
		rm_sim.counts(&after);
		ck_assert_msg(before.memories == after.memories && before.maps == after.maps &&
				      before.vmas == after.vmas && before.dmabufs == after.dmabufs,
			      "%s: %u memories, %u maps, %u vmas, %u dma-bufs left", what,
			      after.memories, after.maps, after.vmas, after.dmabufs);
	}
}

/* ---- memory -------------------------------------------------------------- */

static inline CUdeviceptr rm_pool_alloc(size_t size)
{
	CUdeviceptr p;

	CU(cuda.cuMemAllocAsync(&p, size, NULL));
	return p;
}

/* ---- refusals ------------------------------------------------------------ */

static inline int rm_pin(CUdeviceptr addr, size_t size, uint32_t flags)
{
	gdr_mh_t h = { 77 };
	int rc = gdr_pin_buffer_v2(rm_g, addr, size, flags, &h);

	if (!rc)
		OK(gdr_unpin_buffer(rm_g, h));
	else
		ck_assert_uint_eq(h.h, 77);
	return rc;
}

static inline unsigned int rm_times(const char *text, const char *part)
{
	unsigned int n = 0;

	for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
		n++;
	return n;
}

/* The text repeats no clause, and no word in a row. */
static inline void rm_assert_clear(void)
{
	char copy[1024], last[256] = "", *save = NULL;
	const char *text = barcopy_last_error();

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *c = strtok_r(copy, ";", &save); c; c = strtok_r(NULL, ";", &save))
		ck_assert_msg(rm_times(text, c) == 1, "\"%s\" twice in \"%s\"", c, text);
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		ck_assert_msg(strcmp(w, last) != 0 || isdigit((unsigned char)*w),
			      "\"%s %s\" in \"%s\"", last, w, text);
		snprintf(last, sizeof(last), "%s", w);
	}
}

/* Only exportable memory is served; unit_arg is the reason. The trial is made once. */
static inline void rm_exportable_alone(void)
{
	const char *reason = unit_arg;
	CUdeviceptr plain, vmm, other;
	barcopy_mem_t mem;

	plain = standin_alloc(MIB);
	vmm = standin_chunks(0, 0, 3, 2 * MIB, STANDIN_EXPORTABLE);
	other = standin_chunks(0, 0, 1, 2 * MIB, 0);
	for (int i = 0; i < 2; i++) {
		FAILS_WITH(ENOTSUP, reason, rm_pin(plain, MIB, 0));
		SAYS("not memory of cuMemCreate (cudaMalloc memory cannot be imported)");
		rm_assert_clear();
		FAILS_WITH(ENOTSUP, reason, rm_pin(other, MIB, 0));
		SAYS("the memory was created without the handle type");
		rm_assert_clear();
		rm_whole_life("exportable VMM", vmm, 6 * MIB);
		rm_whole_life("a part of it", vmm + MIB + 1, 2 * MIB);
		if (!i)
			rm_sim.faults(NULL);
	}
	/* It is what the library allocates then. */
	OK(barcopy_mem_alloc(rm_g, 0, MIB, 0, &mem));
	ck_assert_uint_eq(mem.size, 2 * MIB);
	OK(barcopy_mem_free(rm_g, &mem));
	wrap_reset();
	wrap_clock(RM_SECOND); /* or a trial that failed would be repeated */
	OK(rm_pin(vmm, 6 * MIB, 0));
	ck_assert_uint_eq(wrap_calls("open"), 0); /* the version was read before */
	ck_assert_uint_eq(rm_sim.calls("RM_ALLOC"), 0);
	ck_assert_uint_eq(rm_sim.calls("EXPORT_TO_DMABUF_FD"), 0);
	ck_assert_uint_eq(rm_sim.calls("RM_DUP_OBJECT"), 0);
}

#endif
