/* SPDX-License-Identifier: MIT */
/* Random data and its check; see copytest.h. */
#include "copytest.h"

#include <errno.h>
#include <string.h>

#include "exit.h"

#define GUARD 64 /* bytes behind the host side, which a copy that overruns changes */

const char *const direction_name[DIRECTIONS] = { "write", "read" };

/* The SplitMix64 generator: every seed gives a full-period stream of its own. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void copytest_random(void *p, size_t n, uint64_t sequence)
{
	uint64_t state = sequence * 0xd1342543de82ef95u + 1, v;
	uint8_t *byte = p;
	size_t i;

	for (i = 0; i + sizeof(v) <= n; i += sizeof(v)) {
		v = next_random(&state);
		memcpy(byte + i, &v, sizeof(v));
	}
	if (i < n) {
		v = next_random(&state);
		memcpy(byte + i, &v, n - i);
	}
}

int copytest_compare(const char *what, size_t base, const uint8_t *expect, const uint8_t *seen,
		     size_t n)
{
	size_t i, first = n, wrong = 0;

	if (!memcmp(expect, seen, n))
		return 0;
	for (i = 0; i < n; i++) {
		if (expect[i] == seen[i])
			continue;
		if (!wrong++)
			first = i;
	}
	tool_note("%s: wrong byte at offset %zu (0x%zx): expected 0x%02x, found 0x%02x; %zu of %zu "
		  "bytes differ",
		  what, base + first, base + first, expect[first], seen[first], wrong, n);
	return -EIO;
}

size_t copytest_host_size(size_t max)
{
	return max + GUARD;
}

void copytest_init(struct copytest *t, const struct gpu_mem *mem, size_t max)
{
	size_t n = copytest_host_size(mem->size);

	*t = (struct copytest){ .mem = mem };
	t->host = tool_alloc_pages(copytest_host_size(max));
	t->expect = tool_alloc_pages(n);
	t->seen = tool_alloc_pages(n);
}

void copytest_before(struct copytest *t, enum direction dir, uint8_t *host, size_t offset,
		     size_t size)
{
	copytest_random(t->expect, t->mem->size, ++t->sequence);
	cuda_must(cu.MemcpyHtoD(t->mem->dptr, t->expect, t->mem->size), "cuMemcpyHtoD");
	/* without SYNC_MEMOPS the copy may still be under way */
	cuda_must(cu.CtxSynchronize(), "cuCtxSynchronize");
	/* every byte differs from the one that the copy replaces */
	copytest_random(host, copytest_host_size(size), ++t->sequence);
	for (size_t i = 0; i < size; i++)
		if (host[i] == t->expect[offset + i])
			host[i] ^= 0xff;
	if (dir == WRITE)
		memcpy(t->expect + offset, host, size);
	else
		memcpy(t->seen, host + size, GUARD);
}

int copytest_after(struct copytest *t, enum direction dir, const uint8_t *host, size_t offset,
		   size_t size)
{
	int rc;

	if (dir == WRITE) {
		memset(t->seen, 0, t->mem->size);
		cuda_must(cu.MemcpyDtoH(t->seen, t->mem->dptr, t->mem->size), "cuMemcpyDtoH");
		cuda_must(cu.CtxSynchronize(), "cuCtxSynchronize");
		return copytest_compare("write, GPU buffer", 0, t->expect, t->seen, t->mem->size);
	}
	/* the message names the offset in the GPU buffer */
	rc = copytest_compare("read, host buffer", offset, t->expect + offset, host, size);
	if (!rc)
		rc = copytest_compare("read, behind the host buffer", size, t->seen, host + size,
				      GUARD);
	return rc;
}
