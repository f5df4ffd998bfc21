// SPDX-License-Identifier: MIT
/*
 * The rm backend with several GPUs, whose CUDA ordinals, minors and device instances are three orders,
 * and with nodes of which one is missing.
 */
#include "rm_sim.h"

enum { MAX_GPUS = 3 };

static CUdeviceptr alloc_on(int gpu, size_t size)
{
	CU(cuda.cuCtxSetCurrent(standin_primary(gpu)));
	return standin_alloc(size);
}

static void each_serves(int gpus)
{
	CUdeviceptr p[MAX_GPUS], v[MAX_GPUS];

	rm_begin();
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

static void two(void)
{
	each_serves(2);
}

static void three(void)
{
	each_serves(3);
}

/* All of them at once. */
static void together(void)
{
	struct rm_use u[MAX_GPUS];

	rm_begin();
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

/* ---- memory of another GPU than it is taken for: refused by nobody below this library ------------------ */

/* Exportable chunks of both GPUs in one range. */
static CUdeviceptr mixed(void)
{
	CUdeviceptr p = standin_chunks(0, 0, 1, 2 * MIB, true);

	ck_assert_uint_eq(standin_chunks(p + 2 * MIB, 1, 1, 2 * MIB, true), p + 2 * MIB);
	return p;
}

static void chunks_of_two_by_the_dmabuf(void)
{
	rm_begin();
	FAILS(EINVAL, rm_pin(mixed(), 4 * MIB, 0));
	rm_end(1);
}

static void chunks_of_two_by_their_export(void)
{
	CUdeviceptr p;

	rm_begin();
	p = mixed();
	FAILS_WITH(EINVAL, "a chunk of GPU 1 in a range of GPU 0", rm_pin(p, 4 * MIB, 0));
	rm_whole_life("the first chunk", p, 2 * MIB);
	rm_end(1);
}

/* Once the GPU is known, its instance or its minor is another's: CUDA and the driver disagree. */
static void they_disagree(const char *name, const char *value, const char *text)
{
	CUdeviceptr p;

	rm_begin();
	p = standin_chunks(0, 0, 1, 2 * MIB, true);
	rm_whole_life("while they agree", p, 2 * MIB);
	setenv(name, value, 1);
	FAILS_WITH(EINVAL, text, rm_pin(p, 2 * MIB, 0));
	rm_assert_kept(1);
	unsetenv(name);
	rm_whole_life("when they agree again", p, 2 * MIB);
	rm_end(1);
}

static void exported_elsewhere(void)
{
	they_disagree("GDRSIM_RM_MINORS", "1,0", "libcuda exported it on /dev/nvidia1");
}

static void object_elsewhere(void)
{
	they_disagree("GDRSIM_RM_INSTANCES", "0,1",
		      "the descriptor's memory is on device instance 0");
}

/* One GPU's node is not there, or not for us: the other is served, and this one once it is. */
static void one_node(const char *variable, int err, const char *text)
{
	CUdeviceptr p[2];
	gdr_mh_t h;

	rm_begin();
	for (int i = 0; i < 2; i++)
		p[i] = alloc_on(i, MIB);
	for (int i = 0; i < 2; i++) {
		FAILS_WITH(err, text, gdr_pin_buffer_v2(rm_g, p[1], MIB, 0, &h));
		rm_assert_kept((unsigned int)i);
		CU(cuda.cuCtxSetCurrent(standin_primary(0)));
		rm_whole_life("memory of the other GPU", p[0], MIB);
	}
	unsetenv(variable);
	CU(cuda.cuCtxSetCurrent(standin_primary(1)));
	rm_whole_life("memory of a GPU whose node has come", p[1], MIB);
	rm_end(2);
}

static void node_missing(void)
{
	one_node("GDRSIM_RM_NO_NODE", ENODEV,
		 "rm: no /dev/nvidia1: the NVIDIA driver's node is not there");
}

static void node_denied(void)
{
	one_node("GDRSIM_RM_DENIED", EACCES,
		 "rm: /dev/nvidia1 may not be opened by this user (or container)");
}

/* One GPU fails its trial: that is its own verdict. */
static void one_trial_fails(void)
{
	CUdeviceptr p[2];
	gdr_mh_t h;

	rm_begin();
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

/* The whole set of nodes is closed to this program: not libcuda's, which has its own way to them. */
static void control_node(const char *how, int err, const char *text)
{
	standin_start();
	setenv("GDRSIM_RM", how, 1);
	setenv("GDRCOPY_BACKEND", "rm", 1);
	FAILS(err, ERRNO_OF(gdr_open()));
	SAYS(text);
	rm_assert_kept(0);
	unsetenv("GDRSIM_RM");
	rm_open_context();
	rm_whole_life("once they are open", standin_alloc(MIB), MIB);
	rm_end(1);
}

static void control_node_denied(void)
{
	control_node("denied", EACCES,
		     "rm: /dev/nvidiactl may not be opened by this user (or container)");
}

static void control_node_missing(void)
{
	control_node("absent", ENODEV,
		     "rm: no /dev/nvidiactl: the NVIDIA driver's node is not there");
}

/* Which says more to whoever opens than a lack of memory would. */
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

	rm_begin();
	for (size_t i = 0; i < COUNT(table); i++) {
		rm_sim.faults(table[i].rule);
		FAILS(table[i].err, ERRNO_OF(gdr_open()));
		SAYS(table[i].text);
		rm_sim.faults(NULL);
	}
	rm_whole_life("with descriptors", standin_alloc(MIB), MIB);
	rm_end(1);
}

#define TWO   "GDRSIM_DEVICES=2 "
#define THREE "GDRSIM_DEVICES=3 "

static const struct unit_test tests[] = {
	{ "two GPUs", two, TWO },
	{ "two, in the same order", two, TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_INSTANCES=0,1" },
	{ "two, minors reversed", two, TWO "GDRSIM_RM_MINORS=1,0 GDRSIM_RM_INSTANCES=0,1" },
	{ "two, instances reversed", two, TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_INSTANCES=1,0" },
	{ "two, both reversed", two, TWO "GDRSIM_RM_MINORS=1,0 GDRSIM_RM_INSTANCES=1,0" },
	{ "two of eight", two, TWO "GDRSIM_RM_MINORS=7,3 GDRSIM_RM_INSTANCES=2,5" },
	{ "three, three orders", three, THREE "GDRSIM_RM_MINORS=2,0,1 GDRSIM_RM_INSTANCES=1,2,0" },
	{ "three at once", together, THREE },
	{ "chunks of two GPUs, by the dma-buf", chunks_of_two_by_the_dmabuf, TWO },
	{ "chunks of two GPUs, by their export", chunks_of_two_by_their_export,
	  TWO "GDRSIM_DMABUF=0" },
	{ "the export goes to another GPU's node", exported_elsewhere, TWO },
	{ "the exported object is another GPU's", object_elsewhere, TWO "GDRSIM_DMABUF=0" },
	{ "the same, driver 535", object_elsewhere,
	  TWO "GDRSIM_DMABUF=0 GDRSIM_RM_DRIVER=535.230.02" },
	{ "a node is missing", node_missing, TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_NO_NODE=1" },
	{ "a node is denied", node_denied, TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_DENIED=1" },
	{ "one trial fails", one_trial_fails, TWO },
	{ "/dev/nvidiactl is denied", control_node_denied, "" },
	{ "/dev/nvidiactl is missing", control_node_missing, "" },
	{ "no descriptor for /dev/nvidiactl", control_node_without_descriptors, "" },
};

UNIT_MAIN("rm: GPUs", tests, rm_start(argv))
