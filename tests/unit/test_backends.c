// SPDX-License-Identifier: MIT
/*
 * Which backends a context has and which one serves a pin: gdr_open's promise, GDRCOPY_BACKEND,
 * fall-through, and the text of a pin that fails.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/expect.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "barcopy.h"

enum memory { DEVICE, CHUNK, HOST, HEAP, MANAGED, KINDS };

/*
 * A scene: what is opened on this machine and pinned there, line by line, in a process of its own.
 * A line may change the environment first ("NAME=value" words; "-" removes one), and a call of CUDA
 * may fail in it.
 */
struct line {
	enum { END, OPEN, NO_OPEN, ATTRIBUTES, PIN, NO_PIN } is;
	int what; /* flags of the open; what is pinned, an enum memory */
	int result; /* an errno; the backend; the attributes that are 1, as bits */
	const char *set, *fault, *says[3], *never[2];
	uint32_t pin_flags;
	int type; /* of the mapping, if it matters */
};
enum { PERSISTENT = 1, FORCE_PCIE = 2, DMABUF_MMAP = 4 };
enum { DEFAULT = BARCOPY_OPEN_DEFAULT, ANY = BARCOPY_OPEN_ANY };
enum { DMABUF = BARCOPY_BACKEND_DMABUF, RM = BARCOPY_BACKEND_RM, ON_HOST = BARCOPY_BACKEND_HOST,
       GDRDRV = BARCOPY_BACKEND_GDRDRV };

static void change_environment(const char *words)
{
	char copy[256], *word, *save = NULL;

	snprintf(copy, sizeof(copy), "%s", words ? words : "");
	for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');

		*value++ = '\0';
		ck_assert_int_eq(strcmp(value, "-") ? setenv(word, value, 1) : unsetenv(word), 0);
	}
}

static void text_is(const struct line *line)
{
	const char *text = barcopy_last_error();

	ck_assert_str_ne(text, "");
	for (size_t i = 0; i < COUNT(line->says) && line->says[i]; i++)
		ck_assert_msg(strstr(text, line->says[i]), "\"%s\" is not in \"%s\"", line->says[i],
			      text);
	for (size_t i = 0; i < COUNT(line->never) && line->never[i]; i++)
		ck_assert_msg(!strstr(text, line->never[i]), "\"%s\" is in \"%s\"", line->never[i],
			      text);
}

static void open_fails(const struct line *line)
{
	errno = 0;
	ck_assert_ptr_null(barcopy_open((uint32_t)line->what));
	ck_assert_int_eq(errno, line->result);
	text_is(line);
	errno = 0;
	if (line->what == DEFAULT && !gdr_open())
		ck_assert_int_eq(errno, line->result);
}

/* L1: whatever the backend, the version is there. */
static gdr_t opened(int flags)
{
	gdr_t g = flags == DEFAULT ? gdr_open() : barcopy_open((uint32_t)flags);
	int major = -1, minor = -1;

	ck_assert_msg(g != NULL, "%s", barcopy_last_error());
	OK(gdr_driver_get_version(g, &major, &minor));
	ck_assert_int_eq(major, 2);
	ck_assert_int_eq(minor, 6);
	return g;
}

static uint64_t memory_of(enum memory kind)
{
	static uint64_t at[KINDS];
	struct standin_vmm v;
	CUdeviceptr p;

	if (at[kind])
		return at[kind];
	standin_start();
	standin_vmm_alloc(&v, 0, 1, STANDIN_GRANULE, true);
	at[DEVICE] = standin_alloc(4096);
	at[CHUNK] = v.ptr;
	at[HOST] = (uintptr_t)standin_host_alloc(4096, 0);
	at[HEAP] = (uintptr_t)malloc(4096);
	CU(cuda.cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
	at[MANAGED] = p;
	return at[kind];
}

static void pins(gdr_t g, const struct line *line, uint64_t addr)
{
	uint64_t id = 0, type = 0, persistent = 7;
	gdr_mh_t h;
	int rc = gdr_pin_buffer_v2(g, addr, 4096, line->pin_flags, &h);

	ck_assert_msg(!rc, "%d: %s", rc, barcopy_last_error());
	OK(barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_BACKEND, &id));
	OK(barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_MAPPING_TYPE, &type));
	ck_assert_uint_eq(id, (uint64_t)line->result);
	/* The stand-in of the node is in persistent mode; host memory is CUDA's to free. */
	OK(barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_PERSISTENT, &persistent));
	ck_assert_uint_eq(persistent, id != BARCOPY_BACKEND_HOST);
	ck_assert(!line->type || type == (uint64_t)line->type);
	OK(gdr_unpin_buffer(g, h));
	/* P2P tokens are accepted and dropped: the memory is the process's own. */
	ck_assert_int_eq(gdr_pin_buffer(g, addr, 4096, 77, 0, &h) |
				 gdr_pin_buffer(g, addr, 64, 0, 7, &h),
			 0);
}

static void pin_fails(gdr_t g, const struct line *line, uint64_t addr)
{
	gdr_mh_t h = { 77 };

	ck_assert_int_eq(gdr_pin_buffer_v2(g, addr, 4096, line->pin_flags, &h), line->result);
	text_is(line);
	ck_assert_uint_eq(h.h, 77);
}

static int attributes(gdr_t g)
{
	static const gdr_attr_t attr[] = { GDR_ATTR_USE_PERSISTENT_MAPPING,
					   GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE,
					   GDR_ATTR_USING_DMA_BUF_MMAP };
	int bits = 0, v;

	for (size_t i = 0; i < COUNT(attr); i++) {
		OK(gdr_get_attribute(g, attr[i], &v));
		ck_assert(v == 0 || v == 1);
		bits |= v << i;
	}
	return bits;
}

static void play(const struct line *line)
{
	gdr_t g = NULL;

	standin_load();
	for (; line->is != END; line++) {
		bool pin = line->is == PIN || line->is == NO_PIN;
		uint64_t addr = pin ? memory_of((enum memory)line->what) : 0;

		change_environment(line->set);
		cuda_hooks.set_fail(line->fault);
		if (line->is == OPEN) {
			ck_assert(!g || !gdr_close(g));
			g = opened(line->what);
		} else if (line->is == NO_OPEN) {
			open_fails(line);
		} else if (line->is == ATTRIBUTES) {
			ck_assert_int_eq(attributes(g), line->result);
		} else {
			(line->is == PIN ? pins : pin_fails)(g, line, addr);
		}
		cuda_hooks.set_fail(NULL);
	}
	ck_assert(!g || !gdr_close(g));
}

/* clang-format off */
#define OPENS(how, ...) { .is = OPEN, .what = how, __VA_ARGS__ }
#define OPEN_FAILS(how, err, ...) { .is = NO_OPEN, .what = how, .result = err, __VA_ARGS__ }
#define HAS(bits) { .is = ATTRIBUTES, .result = bits }
#define PINS(memory, by, ...) { .is = PIN, .what = memory, .result = by, __VA_ARGS__ }
#define PIN_FAILS(memory, err, ...) { .is = NO_PIN, .what = memory, .result = err, __VA_ARGS__ }
#define SCENE(name, ...) \
	static void name(void) { play((const struct line[]){ __VA_ARGS__, { .is = END } }); }

/* Below CUDA 13.3 and without NVIDIA's nodes no backend serves device memory: gdr_open() fails. */
SCENE(open_keeps_its_promise,
	OPEN_FAILS(DEFAULT, ENODEV, .says = { "dmabuf: ", "13.3", "rm: no /dev/nvidiactl" }),
	OPENS(ANY),
	OPEN_FAILS(2, EINVAL),
	OPEN_FAILS(4, EINVAL),
	OPEN_FAILS(INT32_MIN, EINVAL, .says = { "0x80000000" }),
	OPEN_FAILS(DEFAULT, EIO, .fault = "cuDriverGetVersion:*=999", .says = { "cuDriverGetVersion" }))

/* With the nodes rm serves it on the stock driver, if the GPUs export their memory. */
SCENE(open_rests_on_rm,
	OPEN_FAILS(DEFAULT, EACCES, "GDRSIM_RM=denied", .says = { "rm: /dev/nvidiactl may not be opened",
	  "BARCOPY_OPEN_ANY" }, .never = { "barcopy_mem_alloc" }),
	OPEN_FAILS(DEFAULT, ENODEV, "GDRSIM_RM=- GDRSIM_RM_DRIVER=470.256.02",
	  .says = { "rm: driver 470 is too old" }),
	OPEN_FAILS(DEFAULT, ENODEV, "GDRSIM_RM_DRIVER=- GDRSIM_DMABUF=0",
	  .says = { "rm: none of 1 GPUs exports its memory as a dma-buf" }),
	OPENS(DEFAULT, .set = "GDRSIM_DMABUF=-"), HAS(PERSISTENT | FORCE_PCIE),
	PINS(DEVICE, RM))

/* A new enough CUDA does not suffice: the GPUs must export their memory. */
SCENE(no_promise_without_dmabuf,
	OPEN_FAILS(DEFAULT, ENODEV, .says = { "exports its memory as a dma-buf",
	  "barcopy_open(BARCOPY_OPEN_ANY) maps cudaHostAlloc memory, and perhaps that of barcopy_mem_alloc()" }), OPENS(ANY),
	OPEN_FAILS(DEFAULT, ENODEV, "GDRCOPY_USE_DMABUF_MMAP=1", .says = { "dmabuf: none of 1 GPUs" }, .never = { "perhaps" }))

/* Where the GPU is integrated no advice names memory that cannot be mapped there. */
SCENE(managed_advice,
	OPENS(ANY), PIN_FAILS(MANAGED, EINVAL, "GDRSIM_INTEGRATED=1",
	  .says = { "pinned: allocate with cudaHostAlloc" }, .never = { "cudaMalloc" }),
	PIN_FAILS(HOST, EINVAL, .pin_flags = GDR_PIN_FLAG_FORCE_PCIE, .never = { "its device memory" }))

/* Naming a backend is asking for it: no BARCOPY_OPEN_ANY is needed. */
SCENE(named_backends_alone,
	OPENS(DEFAULT), HAS(PERSISTENT | FORCE_PCIE), PINS(CHUNK, RM),
	PIN_FAILS(HOST, ENOTSUP, .says = { "rm: not device memory" }, .never = { "host: " }),
	OPEN_FAILS(DEFAULT, ENODEV, "GDRCOPY_BACKEND=gdrdrv", .says = { "any memory here: gdrdrv: " },
	  .never = { "ordinary" }),
	OPENS(DEFAULT, .set = "GDRCOPY_BACKEND=host"), HAS(0), PINS(HOST, ON_HOST),
	PIN_FAILS(CHUNK, ENOTSUP, .says = { "host: not memory of cudaHostAlloc" }))

/* The order of the list is the order of trial. */
SCENE(order,
	OPENS(ANY), PINS(CHUNK, RM),
	OPENS(DEFAULT, .set = "GDRCOPY_BACKEND=rm,dmabuf"), PINS(CHUNK, RM), PINS(DEVICE, RM),
	/* of two unclear reasons the first one's; a shortage of the second is the errno */
	PIN_FAILS(CHUNK, EIO, .fault = "cuMemGetHandleForAddressRange:1=999,cuMemGetHandleForAddressRange:2=100"),
	PIN_FAILS(CHUNK, ENOMEM, .fault = "cuMemGetHandleForAddressRange:1=801,cuMemGetHandleForAddressRange:*=2"),
	PIN_FAILS(CHUNK, ENOMEM, .fault = "cuMemGetHandleForAddressRange:1=800,cuMemGetHandleForAddressRange:*=2"),
	/* an address that is wrong for the first may be of the wrong kind for the second, which says more */
	PIN_FAILS(CHUNK, ENOTSUP, .fault = "cuMemGetHandleForAddressRange:1=1,cuMemGetHandleForAddressRange:*=801"),
	OPENS(DEFAULT, .set = "GDRCOPY_BACKEND=dmabuf,rm"), PINS(CHUNK, DMABUF),
	PIN_FAILS(CHUNK, EACCES, .fault = "cuMemGetHandleForAddressRange:1=801,cuMemGetHandleForAddressRange:*=800"),
	PINS(CHUNK, DMABUF, "GDRSIM_DMABUF_PCIE=1", .pin_flags = GDR_PIN_FLAG_FORCE_PCIE),
	PIN_FAILS(CHUNK, ENOMEM, "GDRSIM_DMABUF_PCIE=-", "cuMemGetHandleForAddressRange:1=801,cuMemGetHandleForAddressRange:*=2",
	  .pin_flags = GDR_PIN_FLAG_FORCE_PCIE),
	OPENS(DEFAULT, .set = "GDRCOPY_BACKEND=host,rm"), HAS(PERSISTENT | FORCE_PCIE), PINS(CHUNK, RM),
	/* memory that is there, of which libcuda exports nothing: as what came by CUDA IPC */
	PIN_FAILS(CHUNK, ENOTSUP, .fault = "cuMemGetHandleForAddressRange:*=1",
	  .says = { "cuMemGetHandleForAddressRange: CUDA_ERROR_INVALID_VALUE", "CUDA IPC" }),
	PIN_FAILS(CHUNK, EINVAL, .fault = "cuMemGetHandleForAddressRange:*=1",
	  .pin_flags = GDR_PIN_FLAG_FORCE_PCIE, .never = { "IPC" }))

/* One context: a backend that can serves each kind of memory. */
SCENE(fall_through,
	OPENS(ANY), HAS(PERSISTENT | FORCE_PCIE), PINS(HOST, ON_HOST),
	PINS(CHUNK, RM), PINS(CHUNK, DMABUF, .fault = "cuMemGetHandleForAddressRange:1=801"))

SCENE(beside_the_node, OPENS(DEFAULT), PINS(DEVICE, GDRDRV), PINS(CHUNK, RM), PINS(HOST, ON_HOST),
	/* host's reason for memory of its kind says more than the driver's EINVAL */
	OPENS(DEFAULT, .set = "GDRCOPY_BACKEND=gdrdrv,host"),
	PIN_FAILS(HOST, ENOTSUP, .fault = "cuMemHostGetFlags:*=999", .says = { "gdrdrv: ", "host: " }))

SCENE(use_dmabuf_mmap,
	OPEN_FAILS(ANY, ENODEV, .says = { "13.3", "any memory" }), /* driver 13.0: this backend alone was asked for */
	OPENS(ANY, .set = "GDRSIM_DRIVER_VERSION=13030"), HAS(PERSISTENT | FORCE_PCIE | DMABUF_MMAP),
	PINS(CHUNK, DMABUF),
	PIN_FAILS(CHUNK, ENOTSUP, "GDRSIM_DMABUF_MMAP=0", .says = { "dmabuf: " }, .never = { "rm: " }),
	/* Only 1 asks for it. */
	OPENS(ANY, .set = "GDRSIM_DMABUF_MMAP=- GDRSIM_DRIVER_VERSION=13000 GDRCOPY_USE_DMABUF_MMAP="),
	OPENS(ANY, .set = "GDRCOPY_USE_DMABUF_MMAP=0"), OPENS(ANY, .set = "GDRCOPY_USE_DMABUF_MMAP=2"),
	OPENS(ANY, .set = "GDRCOPY_USE_DMABUF_MMAP=11"), OPENS(ANY, .set = "GDRCOPY_USE_DMABUF_MMAP=yes"),
	/* the newer variable wins */
	OPENS(DEFAULT, .set = "GDRCOPY_USE_DMABUF_MMAP=1 GDRCOPY_BACKEND=rm"), PINS(CHUNK, RM))

SCENE(every_reason_is_named,
	OPENS(ANY, .set = "GDRSIM_DMABUF_MMAP=0 GDRSIM_RM_PROTECTED=1"),
	PIN_FAILS(DEVICE, ENOTSUP, .says = { "dmabuf: this driver refuses mmap of its dma-buf",
	  "rm: the trial on GPU 0 failed: RM_MAP_MEMORY: NV_ERR_NOT_SUPPORTED", "host: not memory of cudaHostAlloc" },
	  .never = { "integrated" }))

/* rm's trial of exportable memory is short of it, which other memory does not need. */
SCENE(behind_a_short_trial, OPENS(ANY), PINS(DEVICE, DMABUF, .fault = "cuMemCreate:*=2"))

/* Memory that no backend may serve. ENOMEM of one backend ends the pin. */
SCENE(wrong_memory,
	OPENS(ANY), PIN_FAILS(HEAP, EINVAL, .says = { "know this address: pageable host memory" }),
	PIN_FAILS(MANAGED, EINVAL, .says = { "managed", "allocate with cudaMalloc, cuMemCreate or" }),
	PIN_FAILS(DEVICE, ENOMEM, "GDRSIM_DMABUF_MMAP=1", "cuMemGetHandleForAddressRange:1=2",
	  .says = { "rm: " }, .never = { "dmabuf: ", "host: " }))

/* Which of several backends' reasons is the errno of a failed pin. */
SCENE(precedence,
	OPENS(ANY), HAS(PERSISTENT | FORCE_PCIE), PINS(CHUNK, RM), /* the trial is over */
	PIN_FAILS(CHUNK, ENOTSUP, .fault = "cuMemGetHandleForAddressRange:*=999"), /* host's says more */
	PIN_FAILS(CHUNK, ENOMEM, .fault = "cuMemGetHandleForAddressRange:*=2"),
	PIN_FAILS(CHUNK, EACCES, .fault = "cuMemGetHandleForAddressRange:*=800"))

/* rm's EACCES outranks the ENOTSUP of the backend behind it, and host's. */
SCENE(refused_by_rm,
	OPENS(ANY, .set = "GDRSIM_DMABUF_MMAP=0"), PINS(CHUNK, RM), /* the trial is over */
	PIN_FAILS(CHUNK, EACCES, .fault = "cuMemGetHandleForAddressRange:1=800",
	  .says = { "dmabuf: this driver refuses mmap of its dma-buf", "rm: " }))

SCENE(only_unclear_reasons,
	OPENS(DEFAULT), PINS(CHUNK, RM),
	PIN_FAILS(CHUNK, EIO, .fault = "cuMemGetHandleForAddressRange:*=999",
	  .says = { "rm: cuMemGetHandleForAddressRange: CUDA_ERROR_UNKNOWN" }),
	PIN_FAILS(CHUNK, ENODEV, .fault = "cuMemGetHandleForAddressRange:*=100"))

/*
 * Without a coherent link every mapping of rm is one over PCIe. Programs ask again without the flag
 * when they see EINVAL: so also where one backend alone could serve, and refuses for the flag only.
 */
SCENE(force_pcie,
	OPENS(ANY), PINS(DEVICE, RM, .pin_flags = GDR_PIN_FLAG_FORCE_PCIE),
	PIN_FAILS(HOST, EINVAL, .pin_flags = GDR_PIN_FLAG_FORCE_PCIE, .says = { "GDR_PIN_FLAG_FORCE_PCIE" }),
	OPENS(DEFAULT, .set = "GDRCOPY_BACKEND=dmabuf"),
	PIN_FAILS(HOST, ENOTSUP, .says = { "dmabuf: not device memory" }),
	PIN_FAILS(DEVICE, EINVAL, .pin_flags = GDR_PIN_FLAG_FORCE_PCIE),
	PINS(DEVICE, DMABUF, "GDRSIM_DMABUF_PCIE=1", .pin_flags = GDR_PIN_FLAG_FORCE_PCIE),
	OPENS(DEFAULT, .set = "GDRCOPY_BACKEND=host"))

/* Over a coherent link mappings are cached unless GDR_PIN_FLAG_FORCE_PCIE is supported and given. */
SCENE(coherent_link,
	OPENS(ANY), PINS(DEVICE, RM, .type = GDR_MAPPING_TYPE_CACHING), /* starts CUDA */
	OPENS(DEFAULT, .set = "GDRSIM_RM_DRIVER=580.95.05 GDRCOPY_BACKEND=rm"), HAS(PERSISTENT),
	PINS(DEVICE, RM, .type = GDR_MAPPING_TYPE_CACHING),
	PIN_FAILS(DEVICE, EINVAL, .pin_flags = GDR_PIN_FLAG_FORCE_PCIE),
	/* a later driver has no PCIe mapping for rm either */
	OPENS(DEFAULT, .set = "GDRSIM_RM_DRIVER=595.45.04"), HAS(PERSISTENT),
	PINS(DEVICE, RM, .type = GDR_MAPPING_TYPE_CACHING),
	PIN_FAILS(DEVICE, EINVAL, .pin_flags = GDR_PIN_FLAG_FORCE_PCIE),
	OPENS(DEFAULT, .set = "GDRCOPY_BACKEND=dmabuf"),
	PINS(DEVICE, DMABUF, .type = GDR_MAPPING_TYPE_CACHING),
	PINS(DEVICE, DMABUF, .pin_flags = GDR_PIN_FLAG_FORCE_PCIE, .type = GDR_MAPPING_TYPE_WC))
/* clang-format on */

/*
 * Programs open and close at every query: one CUDA call, no cuInit, after which children that are
 * forked later have no CUDA.
 */
static void open_is_cheap(void)
{
	standin_load();
	OK(gdr_close(barcopy_open(ANY)));
	ck_assert_uint_eq(cuda_hooks.calls("cuInit"), 0);
	ck_assert_uint_eq(cuda_hooks.calls(NULL), cuda_hooks.calls("cuDriverGetVersion"));
	OK(gdr_close(opened(DEFAULT)));
	ck_assert_uint_eq(cuda_hooks.calls("cuInit"), 0);
	ck_assert_uint_eq(cuda_hooks.calls(NULL), cuda_hooks.calls("cuDriverGetVersion"));
}

static void open_without_libcuda(void)
{
	wrap_reset();
	wrap_deny_library("libcuda");
	open_fails(&(struct line)OPEN_FAILS(DEFAULT, ENODEV, .says = { "no CUDA driver" }));
	open_fails(&(struct line)OPEN_FAILS(ANY, ENODEV, .says = { "dmabuf: ", "rm: ", "host: " }));
}

static void bad_backend_list(void)
{
	static const char *const lists[] = {
		"cuda",	   "RM",	 "rmx",		 "r", "rm,", ",rm",	    "rm,,host",
		"rm host", "rm,rm",	 "host,rm,host", ",", " ",   "dmabuf;host", "nothere,rm",
	};
	static const char *const says[COUNT(lists)] = { [13] = "\"nothere\"" };

	for (size_t i = 0; i < COUNT(lists); i++) {
		struct line line = { .result = EINVAL, .says = { "GDRCOPY_BACKEND", says[i] } };

		setenv("GDRCOPY_BACKEND", lists[i], 1);
		line.never[0] = i == 13 ? "nothere," : NULL;
		for (line.what = DEFAULT; line.what <= ANY; line.what++)
			open_fails(&line);
	}
	change_environment("GDRCOPY_BACKEND= GDRSIM_RM=absent"); /* as if it were not set */
	open_fails(&(struct line)OPEN_FAILS(DEFAULT, ENODEV, .says = { "rm: no /dev/nvidiactl" }));
}

static void ranges(void)
{
	static const struct {
		unsigned long addr;
		size_t size;
		int err;
	} table[] = {
		{ 0, 4096, EINVAL },
		{ 0, 0, EINVAL },
		{ 0x7f0000000000, 0, EINVAL },
		{ ~0UL, 1, EOVERFLOW },
		{ ~0UL, 2, EOVERFLOW },
		{ 1, ~0UL, EOVERFLOW },
		{ 0x7f0000000000, ~0UL, EOVERFLOW },
		{ ~0UL - 65535, 1, EOVERFLOW },
		{ ~0UL - 65535, 65536, EOVERFLOW },
		{ ~0UL - 65537, 1, EINVAL }, /* ends on the last page: only unknown */
		{ 2, ~0UL - 1, EOVERFLOW },
	};
	gdr_mh_t h = { 77 };
	gdr_t g;

	standin_start();
	g = opened(ANY);
	for (size_t i = 0; i < COUNT(table); i++) {
		int rc = gdr_pin_buffer_v2(g, table[i].addr, table[i].size, 0, &h);

		ck_assert_msg(rc == table[i].err, "%zu: %d, %s", i, rc, barcopy_last_error());
	}
	ck_assert_uint_eq(h.h, 77);
	OK(gdr_close(g));
}

/* The version is the highest of the backends', not that of the last. */
static void highest_version(void)
{
	int major, minor;
	gdr_t g;

	standin_load();
	g = gdr_open();
	ck_assert_ptr_nonnull(g);
	OK(gdr_driver_get_version(g, &major, &minor));
	ck_assert_int_eq(major, 2);
	ck_assert_int_eq(minor, 7);
	OK(gdr_close(g));
}

/* ---- the machines of docs/platforms.md, one a row of its table -------------- */

enum { PLATFORMS = 7, CELLS = 6 };
static const char *const machines[][2] = {
	{ "Orin", "GDRSIM_INTEGRATED=1 GDRSIM_RM=absent" },
	{ "Thor", "GDRSIM_INTEGRATED=1" },
	{ "GB10", "GDRSIM_INTEGRATED=1" },
	{ "Grace", "GDRSIM_COHERENT=1 GDRSIM_NODE_TYPE=2" },
	{ "PCIe", "" },
};

/* The cells of that row, and what makes the stand-ins its machine: that of a row above if none. */
static const char *platform_row(int row, char line[512], char *cell[CELLS])
{
	FILE *page = fopen("docs/platforms.md", "r");
	const char *machine = NULL;

	ck_assert_msg(page != NULL, "docs/platforms.md");
	while (fgets(line, 512, page) && !strstr(line, "| machine |"))
		;
	for (int i = -1; i <= row; i++) {
		ck_assert(fgets(line, 512, page) && *line == '|');
		for (size_t m = 0; m < COUNT(machines); m++)
			machine = strstr(line, machines[m][0]) ? machines[m][1] : machine;
	}
	for (int i = 0; i < CELLS; i++)
		cell[i] = strtok(i ? NULL : line, "|");
	ck_assert(row + 1 < PLATFORMS || !fgets(line, 512, page) || *line != '|');
	fclose(page);
	return machine;
}

/* The type with which a backend serves memory, by a cell like "gdrdrv: cached; rm: Device"; 0: not. */
static int served(const char *cell, const char *backend)
{
	const char *at = strstr(cell, backend), *type = at ? strchr(at, ':') : NULL;

	if (!at)
		return 0;
	if (!type || !strncmp(type, ": cached", 8))
		return GDR_MAPPING_TYPE_CACHING;
	return strncmp(type, ": Device", 8) ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_DEVICE;
}

static void platform(void)
{
	static const char *const backends[] = { "gdrdrv", "rm", "dmabuf", "host" };
	char line[512], *cell[CELLS];
	const char *machine = platform_row(unit_row, line, cell);
	gdr_info_v2_t info;
	gdr_mh_t h;
	void *map;

	change_environment(machine);
	if (strstr(cell[1], "before 590"))
		change_environment("GDRSIM_RM_DRIVER=580.95.05 GDRSIM_DRIVER_VERSION=13000");
	for (size_t i = 0; i < COUNT(backends); i++)
		for (enum memory kind = DEVICE; kind <= HOST; kind++) {
			int want = served(cell[2 + kind], backends[i]), got = 0;
			uint64_t addr = memory_of(kind);
			gdr_t g;

#if !defined(__aarch64__)
			want = want == GDR_MAPPING_TYPE_DEVICE ? GDR_MAPPING_TYPE_WC : want;
#endif
			setenv("GDRCOPY_BACKEND", backends[i], 1);
			g = barcopy_open(ANY);
			if (g && !gdr_pin_buffer_v2(g, addr, 4096, 0, &h)) {
				OK(gdr_map(g, h, &map, 4096));
				OK(gdr_get_info_v2(g, h, &info));
				got = (int)info.mapping_type;
			}
			ck_assert_msg(got == want, "%s, %s: \"%s\", by %s: %d, not %d: %s", cell[0],
				      cell[1], cell[2 + kind], backends[i], got, want,
				      barcopy_last_error());
			ck_assert(!g || !gdr_close(g));
		}
}

#define CUDA_13_3 "GDRSIM_DRIVER_VERSION=13030"

static const struct unit_test tests[] = {
	{ "gdr_open keeps its promise", open_keeps_its_promise, "GDRSIM_RM=absent" },
	{ "gdr_open rests on rm", open_rests_on_rm, "" },
	{ "gdr_open is cheap", open_is_cheap, CUDA_13_3 },
	{ "gdr_open without dma-buf export", no_promise_without_dmabuf,
	  CUDA_13_3 " GDRSIM_DMABUF=0" },
	{ "gdr_open on an integrated GPU", no_promise_without_dmabuf,
	  CUDA_13_3 " GDRSIM_INTEGRATED=1" },
	{ "managed memory on an integrated GPU", managed_advice, CUDA_13_3 " GDRSIM_INTEGRATED=1" },
	{ "gdr_open without libcuda", open_without_libcuda, "" },
	{ "GDRCOPY_BACKEND that names none", bad_backend_list, "" },
	{ "GDRCOPY_BACKEND names one", named_backends_alone, "GDRCOPY_BACKEND=rm" },
	{ "GDRCOPY_BACKEND orders", order, CUDA_13_3 },
	{ "each pin by a backend that can", fall_through, CUDA_13_3 },
	{ "each pin by a backend that can, gdrdrv", beside_the_node,
	  CUDA_13_3 " LD_PRELOAD=$SIM/libgdrdrv_node.so" },
	{ "the highest version", highest_version,
	  "GDRSIM_NODE_LEVEL=2.7 LD_PRELOAD=$SIM/libgdrdrv_node.so" },
	{ "GDRCOPY_USE_DMABUF_MMAP", use_dmabuf_mmap, "GDRCOPY_USE_DMABUF_MMAP=1" },
	{ "behind a trial that is short of memory", behind_a_short_trial,
	  "GDRSIM_DRIVER_VERSION=13030 GDRSIM_RM_EXPORT_SIZE=2616" },
	{ "every backend's reason", every_reason_is_named, CUDA_13_3 },
	{ "memory that is none, or short", wrong_memory, CUDA_13_3 },
	{ "precedence of errors", precedence, "" },
	{ "precedence of rm's refusal", refused_by_rm, CUDA_13_3 },
	{ "no backend can, for unclear reasons", only_unclear_reasons, "GDRCOPY_BACKEND=rm" },
	{ "GDR_PIN_FLAG_FORCE_PCIE", force_pcie, CUDA_13_3 },
	{ "coherent link", coherent_link, CUDA_13_3 " GDRSIM_COHERENT=1 GDRSIM_DMABUF_PCIE=1" },
	{ "a row of docs/platforms.md's table", platform,
	  CUDA_13_3 " GDRSIM_DMABUF_PCIE=1 LD_PRELOAD=$SIM/libgdrdrv_node.so", .rows = PLATFORMS },
	{ "ranges that cannot be", ranges, CUDA_13_3 },
};

UNIT_MAIN("backends", tests)
