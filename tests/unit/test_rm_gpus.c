// SPDX-License-Identifier: MIT
/*
 * The rm backend with several GPUs, whose CUDA ordinals, minors and device instances are three
 * orders, and with nodes of which one is missing; what gdr_open() asks them without CUDA.
 */
#include "common/resources.h"
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
			rm_assert_bar1(other, other == i ? 4 * MIB : 0);
		CU(cuda.cuCtxSetCurrent(standin_primary(i)));
		rm_look("memory of one of several GPUs", &u);
		rm_use_close(&u);
		rm_whole_life("VMM of one of several GPUs", v[i] + MIB, 4 * MIB);
	}
	rm_end((unsigned int)gpus);
}

/* What fails on one GPU, or does not reach the client, leaves the other's pins as they are. */
static void one_client(void)
{
	CUdeviceptr p[2] = { alloc_on(0, MIB), alloc_on(1, MIB) };
	struct rm_use u;

	OK(rm_use_open(&u, p[0], MIB, 0));
	rm_sim.faults("OPEN_DEVICE:*=EIO");
	FAILS(EIO, rm_pin(p[1], MIB, 0));
	rm_sim.faults("RM_DUP_OBJECT:1=EBADF");
	FAILS(ENOTSUP, rm_pin(p[0], MIB, 0)); /* a client with pins does not end */
	CU(cuda.cuCtxSetCurrent(standin_primary(0)));
	rm_look("beside failures", &u);
	rm_use_close(&u);
	OK(rm_pin(p[1], MIB, 0));
	/* Without pins it does, and all that is known of its GPUs. */
	rm_sim.faults("RM_DUP_OBJECT:1=EBADF");
	OK(rm_pin(p[0], MIB, 0));
	rm_assert_kept(1);
	OK(rm_pin(p[1], MIB, 0));
	rm_end(2);
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

	FAILS_WITH(EINVAL, "the range has memory of GPU 1 and of GPU 0", rm_pin(p, 4 * MIB, 0));
	rm_whole_life("the first chunk", p, 2 * MIB);
	rm_sim.faults("RM_CONTROL.3d08:*=0x51"); /* which leaves no instance */
	FAILS_WITH(ENOMEM, "GET_EXPORT_OBJECT_INFO: NV_ERR_NO_MEMORY", rm_pin(p, 2 * MIB, 0));
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

/* CUDA's GPU is none of the driver's cards. */
static void no_such_card(void)
{
	static const char *const parts[] = { "GDRSIM_PCI_DOMAIN", "GDRSIM_PCI_DEVICE" };
	CUdeviceptr p = alloc_on(0, MIB);
	gdr_mh_t h;

	for (size_t i = 0; i < COUNT(parts); i++) {
		setenv(parts[i], "7", 1);
		FAILS_WITH(ENODEV, "the driver knows no GPU at 0000:21:00.0",
			   gdr_pin_buffer(rm_g, p, MIB, 0, 0, &h));
		unsetenv(parts[i]);
	}
	rm_whole_life("when CUDA and the driver agree", p, MIB);
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

/* A file that is there by mistake, as of `touch`. */
static void no_device(void)
{
	wrap_reset();
	wrap_instead("/dev/nvidiactl", "/proc/self/comm");
	FAILS_WITH(ENODEV, "rm: RM_ALLOC of a client: ", ERRNO_OF(gdr_open()));
	ck_assert_uint_gt(wrap_calls("open"), 0);
}

/* By its name too, rm opens only where it could serve. */
static void no_cuda(void)
{
	wrap_reset();
	wrap_deny_library("libcuda");
	FAILS_WITH(ENODEV, "rm: no CUDA driver: ", ERRNO_OF(gdr_open()));
}

/* ---- what gdr_open() asks ------------------------------------------------ */

#define GET_INFO    "RM_CONTROL.20800101"
#define GET_INFO_V2 "RM_CONTROL.20800102"
#define NONE	    "rm: none of 2 GPUs exports its memory as a dma-buf: "

/* A refused question is a no; one GPU that says yes is enough, and then none is asked again. */
static void question(void)
{
	static const struct {
		const char *rules, *text; /* text NULL: gdr_open() succeeds */
		int err;
		unsigned int asked;
		bool none; /* the driver exports nothing */
	} table[] = {
		{ "OPEN_CTL:1=EMFILE", "rm: /dev/nvidiactl: Too many open files", EMFILE },
		{ "OPEN_CTL:1=ENFILE", "rm: /dev/nvidiactl: Too many open files in system",
		  ENFILE },
		{ "OPEN_CTL:2=EMFILE", "rm: /dev/nvidiactl: Too many open files", EMFILE },
		{ "RM_ALLOC.41:*=0x1a", "rm: RM_ALLOC of a client: ", ENOMEM },
		{ "CARD_INFO:*=EINVAL", "rm: CARD_INFO: ", ENODEV },
		{ "OPEN_DEVICE:*=EACCES", NONE "/dev/nvidia", EACCES },
		{ "OPEN_DEVICE:*=EMFILE", NONE "/dev/nvidia", EMFILE },
		{ "REGISTER_FD:*=EINVAL", NONE "REGISTER_FD: ", ENODEV },
		{ "RM_CONTROL.205:*=0x1f", NONE "GPU_GET_ID_INFO: ", EIO },
		{ "RM_ALLOC.80:*=0x1b", NONE "RM_ALLOC of a device: ", EACCES },
		{ "RM_ALLOC.2080:*=0x1b", NONE "RM_ALLOC of a subdevice: ", EACCES },
		{ GET_INFO ":*=0x1b", NONE "GPU_GET_INFO: ", EACCES, 2 },
		{ GET_INFO ":*=0x56," GET_INFO_V2 ":*=0x56", NONE "GPU_GET_INFO_V2: ", ENODEV, 2 },
		{ GET_INFO ":*=0x56," GET_INFO_V2 ":1=0x1b," GET_INFO_V2 ":2=0x1b",
		  NONE "GPU_GET_INFO_V2: NV_ERR_INSUFFICIENT_PERMISSIONS", EACCES, 2 },
		{ GET_INFO ":*=0x56", NONE "the driver reports that the GPU", ENODEV, 2, true },
		{ NULL, NONE "the driver reports that the GPU", ENODEV, 2, true },
		{ GET_INFO ":1=0x1b", NONE "GPU_GET_INFO: ", EACCES, 2, true },
		{ "OPEN_DEVICE:1=EACCES", NONE "the driver reports that the GPU", ENODEV, 1, true },
		{ "OPEN_DEVICE:2=EACCES", NONE "the driver reports that the GPU", ENODEV, 1, true },
		{ "OPEN_DEVICE:1=EACCES,OPEN_DEVICE:2=ENOENT", NONE "/dev/nvidia", EACCES },
		{ "OPEN_DEVICE:1=ENOENT,OPEN_DEVICE:2=EACCES", NONE "/dev/nvidia", EACCES },
		{ "OPEN_DEVICE:1=EMFILE", NONE "/dev/nvidia", EMFILE, 1, true },
		{ "OPEN_DEVICE:2=EMFILE", NONE "/dev/nvidia", EMFILE, 1, true },
		{ GET_INFO ":1=0x1b", NULL, 0, 2 },
		{ GET_INFO ":*=0x56", NULL, 0, 0 },
	};
	int before = resources_fds();

	standin_load();
	for (size_t i = 0; i < COUNT(table); i++) {
		gdr_t g;

		setenv("GDRSIM_DMABUF", table[i].none ? "0" : "1", 1);
		rm_sim.faults(table[i].rules);
		g = gdr_open();
		if (table[i].text)
			FAILS_WITH(table[i].err, table[i].text, ERRNO_OF(g));
		else
			OK(ERRNO_OF(g));
		ck_assert_uint_eq(rm_sim.calls(GET_INFO), table[i].asked);
		ck_assert_uint_eq(rm_sim.calls("MMAP"), 0);
		rm_assert_kept(0);
		ck_assert_int_eq(resources_fds(), before);
		OK(g ? gdr_close(g) : 0);
	}
	ck_assert_uint_eq(cuda_hooks.calls("cuInit"), 0);
}

/* Also where that is not the first node; on every layout of the calls. */
static void first_yes(void)
{
	standin_load();
	OK(ERRNO_OF(gdr_open()));
	ck_assert_uint_eq(rm_sim.calls(GET_INFO), 1);
	rm_assert_kept(0);
	ck_assert_uint_eq(cuda_hooks.calls("cuInit"), 0);
}

/* gVisor passes the second version alone, whose structure has a size in each release. */
static void second_version(void)
{
	standin_load();
	rm_sim.faults(GET_INFO ":*=0x56");
	OK(ERRNO_OF(gdr_open()));
	ck_assert_uint_gt(rm_sim.calls(GET_INFO_V2), 0);
	rm_assert_kept(0);
}

/* RM says yes, and nothing else says which flavour it is; libcuda exports nothing. */
static void unknown_flavour(void)
{
	gdr_mh_t h;

	standin_start();
	rm_sim.faults("EXPORT_TO_DMABUF_FD:*=0x56");
	rm_g = gdr_open();
	OK(ERRNO_OF(rm_g));
	FAILS_WITH(ENOTSUP, unit_arg, gdr_pin_buffer(rm_g, standin_alloc(MIB), MIB, 0, 0, &h));
	OK(gdr_close(rm_g));
}

/* A shortage says nothing about the flavour. */
static void unknown_flavour_short(void)
{
	gdr_mh_t h;

	standin_start();
	rm_g = gdr_open();
	OK(ERRNO_OF(rm_g));
	rm_sim.faults("RM_DUP_OBJECT:1=0x51");
	FAILS_WITH(ENOMEM, "NV_ERR_NO_MEMORY",
		   gdr_pin_buffer(rm_g, standin_alloc(MIB), MIB, 0, 0, &h));
	ck_assert_ptr_null(strstr(barcopy_last_error(), "flavour"));
	OK(gdr_close(rm_g));
}

/* A pin that is served names no flavour. */
static void unknown_flavour_served(void)
{
	gdr_mh_t h;

	standin_start();
	rm_g = gdr_open();
	OK(gdr_pin_buffer(rm_g, standin_alloc(MIB), MIB, 0, 0, &h));
	ck_assert_ptr_null(strstr(barcopy_last_error(), "flavour"));
	OK(gdr_close(rm_g));
}

/* Nor where one file cannot be opened now. */
static void no_promise(void)
{
	unsigned long n = 0;

	do {
		wrap_reset();
		wrap_fail("open", ++n, EMFILE);
		ck_assert_ptr_null(gdr_open());
	} while (wrap_failed());
	wrap_reset();
	FAILS_WITH(ENODEV, unit_arg, ERRNO_OF(gdr_open()));
	rm_assert_kept(0);
}

/* The attribute is asked before the program's first pin, whatever the link is. */
static void force_pcie_at_once(void)
{
	gdr_t g = gdr_open();
	int value = 7;

	OK(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value));
	ck_assert_int_eq(value, !getenv("GDRSIM_COHERENT"));
	OK(gdr_close(g));
}

#define TWO	 "GDRSIM_DEVICES=2 "
#define INSTANCE "the descriptor's memory is on device instance 0"
#define THREE	 "GDRSIM_DEVICES=3 "

#define SECOND_VERSION(driver)                                                            \
	{                                                                                 \
		"gdr_open() in gVisor, driver " driver, second_version,                   \
			"GDRSIM_RM_VERSION=0 GDRSIM_RM_TAINT=0 GDRSIM_RM_DRIVER=" driver, \
			.bare = true                                                      \
	}

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
	{ "two of one client", one_client, TWO },
	{ "chunks of two GPUs, by the dma-buf", chunks_of_two_by_the_dmabuf, TWO },
	{ "chunks of two GPUs, by their export", chunks_of_two_by_their_export,
	  TWO "GDRSIM_DMABUF=0" },
	{ "the export goes to another GPU's node", exported_elsewhere, TWO,
	  "libcuda exported the memory on /dev/nvidia1" },
	{ "the exported object is another GPU's", object_elsewhere, TWO "GDRSIM_DMABUF=0",
	  INSTANCE },
	{ "the same, driver 535", object_elsewhere,
	  TWO "GDRSIM_DMABUF=0 GDRSIM_RM_DRIVER=535.230.02", INSTANCE },
	{ "CUDA's GPU is no card of the driver's", no_such_card, "" },
	{ "a node is missing", one_node, TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_NO_NODE=1",
	  "rm: no /dev/nvidia1: the NVIDIA driver's node is not there" },
	{ "a node is denied", one_node, TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_DENIED=1",
	  "rm: /dev/nvidia1 may not be opened by this user (or container)" },
	{ "one trial fails", one_trial_fails, TWO },
	{ "/dev/nvidiactl is denied", control_node, "GDRCOPY_BACKEND=rm",
	  "rm: /dev/nvidiactl may not be opened by this user (or container)", .bare = true },
	{ "/dev/nvidiactl is missing", control_node, "GDRCOPY_BACKEND=rm",
	  "rm: no /dev/nvidiactl: the NVIDIA driver's node is not there", .bare = true },
	{ "/dev/nvidiactl is no device", no_device, "", .bare = true },
	{ "no libcuda", no_cuda, "GDRCOPY_BACKEND=rm", .bare = true },
	{ "gdr_open() asks RM", question, TWO, .bare = true },
	{ "gdr_open() stops at the first GPU", first_yes, TWO, .bare = true },
	{ "gdr_open(), driver 515", first_yes, "GDRSIM_RM_DRIVER=515.43.04", .bare = true },
	{ "gdr_open(), driver 525", first_yes, "GDRSIM_RM_DRIVER=525.60.11", .bare = true },
	{ "gdr_open(), a node is missing", first_yes,
	  TWO "GDRSIM_RM_MINORS=0,1 GDRSIM_RM_NO_NODE=0", .bare = true },
	{ "gdr_open(), the proprietary flavour", no_promise, "GDRSIM_RM_OPEN=0",
	  "rm: the GPU driver is not the open flavour", .bare = true },
	{ "gdr_open(), the proprietary flavour by its taint", no_promise,
	  "GDRSIM_RM_OPEN=0 GDRSIM_RM_VERSION=0", "rm: the GPU driver is not the open flavour",
	  .bare = true },
	{ "gdr_open(), the proprietary flavour without a taint", no_promise,
	  "GDRSIM_RM_OPEN=0 GDRSIM_RM_TAINT=0", "rm: the GPU driver is not the open flavour",
	  .bare = true },
	{ "gdr_open() by name, an old driver", no_promise,
	  "GDRCOPY_BACKEND=gdrdrv,rm GDRSIM_RM_DRIVER=470.256.02",
	  "rm: driver 470 is too old (515 is the first)", .bare = true },
	{ "gdr_open(), the open flavour by its taint", first_yes, "GDRSIM_RM_VERSION=0",
	  .bare = true },
	{ "gdr_open(), an unknown flavour", unknown_flavour,
	  "GDRSIM_RM_VERSION=0 GDRSIM_RM_TAINT=0", "the driver's flavour cannot be read here",
	  .bare = true },
	{ "gdr_open(), an unknown flavour, short of memory", unknown_flavour_short,
	  "GDRSIM_RM_VERSION=0 GDRSIM_RM_TAINT=0", .bare = true },
	{ "gdr_open(), an unknown flavour, served", unknown_flavour_served,
	  "GDRSIM_RM_VERSION=0 GDRSIM_RM_TAINT=0", .bare = true },
	{ "gdr_open(), a known flavour that exports nothing", unknown_flavour, "",
	  "rm: the trial on GPU 0 failed: cuMemGetHandleForAddressRange: "
	  "CUDA_ERROR_NOT_SUPPORTED (801); and", .bare = true },
	SECOND_VERSION("515.43.04"),
	SECOND_VERSION("530.30.02"),
	SECOND_VERSION("535.43.02"),
	SECOND_VERSION("545.23.06"),
	SECOND_VERSION("575.51.02"),
	SECOND_VERSION("580.65.06"),
	{ "gdr_open(), an integrated GPU", no_promise, "GDRSIM_INTEGRATED=1",
	  "rm: none of 1 GPUs exports its memory as a dma-buf: the GPU is integrated", .bare = true },
	{ "gdr_open(), no GPU", no_promise, "GDRSIM_DEVICES=0",
	  "rm: none of 0 GPUs exports its memory as a dma-buf", .bare = true },
	{ "gdr_open(), libcuda cannot be watched", no_promise, "LD_LIBRARY_PATH=$SIM/direct",
	  "rm: libcuda imports no ioctl() that could be watched", .bare = true },
	{ "FORCE_PCIE, asked at once", force_pcie_at_once, "", .bare = true },
	{ "FORCE_PCIE, asked at once, a coherent link", force_pcie_at_once, "GDRSIM_COHERENT=1",
	  .bare = true },
};

UNIT_MAIN("rm: GPUs", tests, rm_start(argv), unit_before = rm_begin, unit_after = rm_end_one)
