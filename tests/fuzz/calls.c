/* SPDX-License-Identifier: MIT */
/*
 * Imports of any descriptor and size, and structs with any struct_size: the input is a series of
 * calls. Each struct lies in a block of its declared size, or of 8 bytes where that size is to be
 * refused, so that ASan sees each byte that the library touches beyond it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "barcopy_queue.h"
#include "tests/common/standin.h"

#define NEED(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

enum { KINDS = 8, MOST = 4096, PIECE = 2 << 20 };

static gdr_t g;
static barcopy_mem_t own;
static int fds[KINDS];

static void start(void)
{
	CUdeviceptr p;
	int pair[2];

	standin_start();
	NEED(g = gdr_open());
	NEED(!barcopy_mem_alloc(g, 0, PIECE, BARCOPY_MEM_SHAREABLE, &own));
	NEED(!barcopy_mem_export(g, &own, &fds[0]));
	p = standin_alloc(PIECE);
	NEED(!cuda.cuMemGetHandleForAddressRange(&fds[1], p, PIECE,
						 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	fds[2] = memfd_create("file", MFD_CLOEXEC);
	NEED(!ftruncate(fds[2], PIECE));
	fds[3] = open("/dev/zero", O_RDWR);
	fds[4] = open("/", O_RDONLY | O_DIRECTORY);
	NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	fds[5] = pair[0];
	fds[6] = -1;
	fds[7] = 1000000;
}

struct input {
	const uint8_t *at;
	size_t left;
};

static void take(struct input *in, void *to, size_t size)
{
	size_t n = size < in->left ? size : in->left;

	memset(to, 0, size);
	memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
}

static void import(struct input *in)
{
	struct {
		uint8_t fd, device, flags, round;
		uint32_t size;
	} a;
	uint8_t byte = 1;
	barcopy_mem_t mem;
	size_t size;
	int rc;

	take(in, &a, sizeof(a));
	size = a.round & 1 ? (size_t)a.size << 16 : a.size;
	if (a.round & 2)
		size = PIECE;
	rc = barcopy_mem_import(g, (int8_t)a.device, fds[a.fd % KINDS], size, a.flags, &mem);
	if (rc)
		return;
	NEED(a.fd % KINDS < 2 && size && size <= PIECE); /* memory, and no more than there is */
	NEED(!gdr_copy_to_mapping(mem.handle, (char *)mem.cpu_ptr + size - 1, &byte, 1));
	NEED(!gdr_copy_from_mapping(mem.handle, &byte, mem.cpu_ptr, 1));
	NEED(!barcopy_mem_free(g, &mem));
}

static void sized(struct input *in, uint8_t which)
{
	barcopy_cache_t cache = NULL;
	barcopy_queue_t queue = NULL;
	uint16_t declared;
	size_t size;
	char *block;

	take(in, &declared, sizeof(declared));
	size = declared == UINT16_MAX ? SIZE_MAX : declared % (MOST + 64);
	block = calloc(1, size < 8 || size > MOST ? 8 : size);
	NEED(block);
	take(in, block, size < 8 || size > MOST ? 8 : size);
	memcpy(block, &size, sizeof(size));
	switch (which % 6) {
	case 0:
		barcopy_set_copy_options(own.handle, (barcopy_copy_options_t *)(void *)block);
		break;
	case 1:
		if (!barcopy_cache_create(g, (barcopy_cache_options_t *)(void *)block, &cache))
			NEED(!barcopy_cache_destroy(cache));
		break;
	case 2:
		if (!barcopy_queue_create(g, 0, (barcopy_queue_options_t *)(void *)block, &queue))
			NEED(!barcopy_queue_destroy(queue));
		break;
	case 3:
		barcopy_get_stats(g, (barcopy_stats_t *)(void *)block);
		break;
	case 4:
		barcopy_get_bar_info(0, (barcopy_bar_info_t *)(void *)block);
		break;
	default:
		NEED(!barcopy_cache_create(g, NULL, &cache));
		barcopy_cache_get_stats(cache, (barcopy_cache_stats_t *)(void *)block);
		NEED(!barcopy_cache_destroy(cache));
	}
	NEED(!memcmp(block, &size, sizeof(size)));
	free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	uint8_t call;

	if (!g)
		start();
	for (int i = 0; i < 8 && in.left; i++) {
		take(&in, &call, 1);
		if (call & 1)
			import(&in);
		else
			sized(&in, call >> 1);
	}
	return 0;
}
