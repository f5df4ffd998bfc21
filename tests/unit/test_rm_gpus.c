// SPDX-License-Identifier: MIT
/*
 * The rm backend with several GPUs, whose CUDA ordinals, minors and device instances are three
 * orders, and with nodes of which one is missing.
 */
#include "rm_sim.h"

enum { MAX_GPUS = 3 };

static CUdeviceptr alloc_on(int gpu, size_t size)
{
	CU(cuda.cuCtxSetCurrent(standin_primary(gpu)));
	return standin_alloc(size);
}

static void each_serves(void)
{
	CUdeviceptr p[MAX_GPUS], v[MAX_GPUS];
	int gpus = atoi(getenv("GDRSIM_DEVICES"));

	for (int i = 0; i < gpus; i++) {
		p[i] = alloc_on(i, 4 * MIB);
		v[i] = standin_chunks(0, i, 3, 2 * MIB, i & 1);
	}
	/* Pinned while the context of the GPU before it is current. */
	for (int k = 0; k < 2 * gpus; k++) {
		int i = k % gpus;
		struct rm_use u;

		OK(rm_use_open(&u, p[i], 4 * MIB, 0));
		HANDLE_HAS(rm_g, u.h, DEVICE, (uint64_t)i);
		for (int other = 0; other < gpus; other++)
			ck_assert_uint_eq(rm_sim.bar1_used(other), other == i ? 4 * MIB : 0);
		CU(cuda.cuCtxSetCurrent(standin_primary(i)));
		rm_look("memory of one of several GPUs", &u);
		rm_use_close(&u);
		rm_whole_life("VMM of one of several GPUs", v[i] + MIB, 4 * MIB);
	}
	rm_end((unsigned int)gpus);
}

/* All of them at once. */
static void together(void)
{
	struct rm_use u[MAX_GPUS];

	for (int i = 0; i < MAX_GPUS; i++)
		OK(rm_use_open(&u[i], alloc_on(i, 4 * MIB) + MIB, 2 * MIB, 0));
	for (int i = 0; i < MAX_GPUS; i++) {
		CU(cuda.cuCtxSetCurrent(standin_primary(i)));
		rm_look("several GPUs at once", &u[i]);
		ck_assert_uint_eq(rm_sim.bar1_used(i), 2 * MIB);
	}
	for (int i = 0; i < MAX_GPUS; i++)
		rm_use_close(&u[i]);
	rm_end(MAX_GPUS);
}

/* ---- memory of another GPU than CUDA says: only this library refuses it -- */

/* Exportable chunks of both GPUs in one range. */
static CUdeviceptr mixed(void)
{
	CUdeviceptr p = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);

	ck_assert_uint_eq(standin_chunks(p + 2 * MIB, 1, 1, 2 * MIB, STANDIN_EXPORTABLE),
			  p + 2 * MIB);
	return p;
}

static void chunks_of_two_by_the_dmabuf(void)
{
	FAILS(EINVAL, rm_pin(mixed(), 4 * MIB, 0));
}

static void chunks_of_two_by_their_export(void)
{
	CUdeviceptr p = mixed();

	FAILS_WITH(EINVAL, "a chunk of GPU 1 in a range of GPU 0", rm_pin(p, 4 * MIB, 0));
	rm_whole_life("the first chunk", p, 2 * MIB);
}

/* A known GPU's instance or minor becomes another GPU's: CUDA and the driver disagree. */
static void they_disagree(const char *name, const char *value)
{
	CUdeviceptr p = standin_chunks(0, 0, 1, 2 * MIB, STANDIN_EXPORTABLE);

	rm_whole_life("while they agree", p, 2 * MIB);
	setenv(name, value, 1);
	FAILS_WITH(EINVAL, unit_arg, rm_pin(p, 2 * MIB, 0));
	rm_assert_kept(1);
	unsetenv(name);
	rm_whole_life("when they agree again", p, 2 * MIB);
}

static void exported_elsewhere(void)
{
	they_disagree("GDRSIM_RM_MINORS", "1,0");
}

static void object_elsewhere(void)
{
	they_disagree("GDRSIM_RM_INSTANCES", "0,1");
}

/* One GPU's node is missing or denied: the other GPU works, and this one once it has its node. */
static void one_node(void)
{
	int err = getenv("GDRSIM_RM_DENIED") ? EACCES : ENODEV;
	CUdeviceptr p[2];
	gdr_mh_t h;

	for (int i = 0; i < 2; i++)
		p[i] = alloc_on(i, MIB);
	for (int i = 0; i < 2; i++) {
		FAILS_WITH(err, unit_arg, gdr_pin_buffer_v2(rm_g, p[1], MIB, 0, &h));
		rm_assert_kept((unsigned int)i);
		CU(cuda.cuCtxSetCurrent(standin_primary(0)));
		rm_whole_life("memory of the other GPU", p[0], MIB);
	}
	unsetenv("GDRSIM_RM_DENIED");
	unsetenv("GDRSIM_RM_NO_NODE");
	CU(cuda.cuCtxSetCurrent(standin_primary(1)));
	rm_whole_life("memory of a GPU whose node has come", p[1], MIB);
	rm_end(2);
}

/* One GPU's failed trial does not concern the other. */
static void one_trial_fails(void)
{
	CUdeviceptr p[2];
	gdr_mh_t h;

	for (int i = 0; i < 2; i++)
		p[i] = alloc_on(i, MIB);
	rm_sim.faults("RM_MAP_MEMORY:*=0x56");
	FAILS(ENOTSUP, gdr_pin_buffer_v2(rm_g, p[1], MIB, 0, &h));
	rm_sim.faults(NULL);
	CU(cuda.cuCtxSetCurrent(standin_primary(0)));
	rm_whole_life("memory of the other GPU", p[0], MIB);
	FAILS_WITH(ENOTSUP,
		   "rm: the trial on GPU 1 failed: RM_MAP_MEMORY: NV_ERR_NOT_SUPPORTED (0x56)",
		   gdr_pin_buffer_v2(rm_g, p[1], MIB, 0, &h));
	rm_end(2);
}

/* This program may not open the nodes; libcuda opens them by other means. */
static void control_node(void)
{
	bool denied = strstr(unit_arg, "may not");

	standin_start();
	setenv("GDRSIM_RM", denied ? "denied" : "absent", 1);
	FAILS_WITH(denied ? EACCES : ENODEV, unit_arg, ERRNO_OF(gdr_open()));
	rm_assert_kept(0);
	unsetenv("GDRSIM_RM");
	rm_open_context();
	rm_whole_life("once they are open", standin_alloc(MIB), MIB);
}

/* The errno names the descriptors, not a lack of memory. */
static void control_node_without_descriptors(void)
{
	static const struct {
		const char *rule, *text;
		int err;
	} table[] = {
		{ "OPEN_CTL:1=EMFILE", "rm: /dev/nvidiactl: Too many open files", EMFILE },
		{ "OPEN_CTL:1=ENFILE", "rm: /dev/nvidiactl: Too many open files in system",
		  ENFILE },
	};

	for (size_t i = 0; i < COUNT(table); i++) {
		rm_sim.faults(table[i].rule);
		FAILS_WITH(table[i].err, table[i].text, ERRNO_OF(gdr_open()));
		rm_sim.faults(NULL);
	}
	rm_whole_life("with descriptors", standin_alloc(MIB), MIB);
}

#define TWO	 "GDRSIM_DEVICES=2 "
#define INSTANCE "the descriptor's memory is on device instance 0"
#define THREE	 "GDRSIM_DEVICES=3 "

static const struct unit_test tests[] = {
	{ "two GPUs", each_serves, TWO },
	{ "two, in the same order", each_serves,
	  TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_INSTANCES=0,1" },
	{ "two, minors reversed", each_serves, TWO "GDRSIM_RM_MINORS=1,0 GDRSIM_RM_INSTANCES=0,1" },
	{ "two, instances reversed", each_serves,
	  TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_INSTANCES=1,0" },
	{ "two, both reversed", each_serves, TWO "GDRSIM_RM_MINORS=1,0 GDRSIM_RM_INSTANCES=1,0" },
	{ "two of eight", each_serves, TWO "GDRSIM_RM_MINORS=7,3 GDRSIM_RM_INSTANCES=2,5" },
	{ "three, three orders", each_serves,
	  THREE "GDRSIM_RM_MINORS=2,0,1 GDRSIM_RM_INSTANCES=1,2,0" },
	{ "three at once", together, THREE },
	{ "chunks of two GPUs, by the dma-buf", chunks_of_two_by_the_dmabuf, TWO },
	{ "chunks of two GPUs, by their export", chunks_of_two_by_their_export,
	  TWO "GDRSIM_DMABUF=0" },
	{ "the export goes to another GPU's node", exported_elsewhere, TWO,
	  "libcuda exported it on /dev/nvidia1" },
	{ "the exported object is another GPU's", object_elsewhere, TWO "GDRSIM_DMABUF=0",
	  INSTANCE },
	{ "the same, driver 535", object_elsewhere,
	  TWO "GDRSIM_DMABUF=0 GDRSIM_RM_DRIVER=535.230.02", INSTANCE },
	{ "a node is missing", one_node, TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_NO_NODE=1",
	  "rm: no /dev/nvidia1: the NVIDIA driver's node is not there" },
	{ "a node is denied", one_node, TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_DENIED=1",
	  "rm: /dev/nvidia1 may not be opened by this user (or container)" },
	{ "one trial fails", one_trial_fails, TWO },
	{ "/dev/nvidiactl is denied", control_node, "GDRCOPY_BACKEND=rm",
	  "rm: /dev/nvidiactl may not be opened by this user (or container)", .bare = true },
	{ "/dev/nvidiactl is missing", control_node, "GDRCOPY_BACKEND=rm",
	  "rm: no /dev/nvidiactl: the NVIDIA driver's node is not there", .bare = true },
	{ "no descriptor for /dev/nvidiactl", control_node_without_descriptors, "" },
};

UNIT_MAIN("rm: GPUs", tests, rm_start(argv), unit_before = rm_begin, unit_after = rm_end_one)
