/* SPDX-License-Identifier: MIT */
/* Facts of the memory under test; see tests.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/exit.h"
#include "common/sim.h"
#include "sanity/tests.h"

static struct probe *shared; /* with the process that fills it in */

/* A driver before level 2.5 has no attribute for whether a pin outlives the free. */
static bool try_persistent(struct buffer *b)
{
	int revoked = 0;

	mem_free(&b->mem);
	OK(gdr_get_callback_flag(b->g, b->mh, &revoked));
	OK(gdr_close(b->g));
	return !revoked;
}

static void look(void)
{
	struct sanity_facts *facts = &shared->facts;
	struct buffer b;
	uint64_t v = 0;

	cuda_dl_load();
	sim_check(shared->sim_dir, cuda_dl_path());
	gpu_find(&sanity.gpu, shared->device);
	gpu_start(&sanity.gpu);
	buffer_open(&b, &sanity.gpu, shared->kind, GPU_PAGE_SIZE, GDR_MAP_FLAG_DEFAULT);
	OK(barcopy_get_handle_attribute(b.g, b.mh, BARCOPY_HANDLE_ATTR_PERSISTENT, &v));
	*facts = (struct sanity_facts){
		.device = shared->device,
		.kind = b.mem.kind,
		.backend = b.backend,
		.place = b.place,
		.persistent = v,
		.sync_memops = b.sync_memops == 1,
		.type = b.info.mapping_type,
	};
	snprintf(shared->passed_over, sizeof(shared->passed_over), "%s", b.note);
	snprintf(shared->libcuda, sizeof(shared->libcuda), "%s", cuda_dl_path());
	shared->simulated = cuda_dl_is_stand_in();
	shared->gpu = sanity.gpu;
	if (b.backend == BARCOPY_BACKEND_GDRDRV && !v)
		facts->persistent = try_persistent(&b);
	else
		buffer_close(&b);
}

enum outcome probe_run(struct probe *p, long seconds)
{
	static const struct sanity_test test = { .name = "probe", .run = look, .bare = true };
	struct chosen look_once = { &test, p->kind, &p->facts, FAILED };

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		tool_fail("no memory for a probe: %s", strerror(errno));
	*shared = *p;
	report_clear();
	run_tests(&look_once, 1, seconds);
	*p = *shared;
	munmap(shared, sizeof(*shared));
	return look_once.outcome;
}
