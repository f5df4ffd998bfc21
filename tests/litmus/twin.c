// SPDX-License-Identifier: MIT
/* The second reader; see litmus.h. */
#include "litmus.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/exit.h"

static struct {
	pthread_t thread;
	const struct copies *copies;
	const uint8_t *data;
	size_t size;
	uint64_t *block, *newest; /* size bytes each */
	uint64_t count, torn, back;
	int cpu;
	_Atomic bool stop;
} twin;

static void tie(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		tool_fail("this process may not run on CPU %d", cpu);
}

/* The other CPU of that core, or -1. */
static int sibling_of(int cpu)
{
	char path[96];
	int first, second, got;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
		 cpu);
	file = fopen(path, "re");
	if (!file)
		return -1;
	/* "0,8" or "0-1" */
	got = fscanf(file, "%d%*[,-]%d", &first, &second);
	fclose(file);
	return got < 2 ? -1 : first == cpu ? second : first;
}

void twin_tie(char *text, size_t room)
{
	int here = sched_getcpu(), sibling = sibling_of(here);

	twin.cpu = sibling >= 0 ? sibling : here ^ 1;
	tie(here);
	snprintf(text, room, "CPUs %d and %d, %s", here, twin.cpu,
		 sibling >= 0 ? "of one core" : "neighbours: the system does not report siblings");
}

static void look(void)
{
	bool torn = false, back = false;

	for (size_t i = 0; i < twin.size / 8; i++) {
		uint64_t word = twin.block[i];

		torn |= (uint32_t)word != (uint32_t)(word >> 32);
		back |= (uint32_t)word < (uint32_t)twin.newest[i];
		if ((uint32_t)word > (uint32_t)twin.newest[i])
			twin.newest[i] = word;
	}
	twin.torn += torn;
	twin.back += back;
}

static void *run(void *arg)
{
	(void)arg;
	tie(twin.cpu);
	while (!atomic_load_explicit(&twin.stop, memory_order_relaxed)) {
		copies_from(twin.copies, twin.block, twin.data, twin.size);
		look();
		twin.count++;
	}
	return NULL;
}

void twin_start(const struct copies *copies, const uint8_t *data, size_t size)
{
	twin.copies = copies;
	twin.data = data;
	twin.size = size;
	twin.block = calloc(2, size);
	if (!twin.block)
		tool_fail("no memory");
	twin.newest = twin.block + size / 8;
	twin.count = twin.torn = twin.back = 0;
	twin.stop = false;
	if (pthread_create(&twin.thread, NULL, run, NULL))
		tool_fail("no thread could be started");
}

void twin_stop(uint64_t *copies, uint64_t *torn, uint64_t *back)
{
	twin.stop = true;
	pthread_join(twin.thread, NULL);
	free(twin.block);
	*copies = twin.count;
	*torn = twin.torn;
	*back = twin.back;
}
