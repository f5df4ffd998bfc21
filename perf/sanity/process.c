/* SPDX-License-Identifier: MIT */
/* Processes made by fork: the child reaches nothing of its parent's, the parent goes on. */
#include <errno.h>
#include <unistd.h>

#include "sanity/sanity.h"
#include "sanity/tests.h"

#define KIB ((size_t)1024)

struct family {
	struct buffer b;
	struct gate go; /* the parent lets the child go on */
	struct gate done; /* and the child its parent */
};

/* A child from its start to its end, which ends nothing of its parent's. */
static void with_child(void (*child)(void *))
{
	struct family f;

	sanity_make(&f.b, 128 * KIB);
	sanity_join(sanity_fork(child, &f));
	sanity_round_trip(&f.b, 1);
	sanity_unmake(&f.b);
}

/* One that goes on beside its parent, by the gates. */
static pid_t start(struct family *f, void (*child)(void *))
{
	gate_make(&f->go);
	gate_make(&f->done);
	return sanity_fork(child, f);
}

static void child_loads(void *arg)
{
	struct family *f = arg;

	sanity_must_fault(f->b.cpu, "in a child");
	sanity_must_fault(f->b.cpu + f->b.mem.size - 1, "of the last byte in a child");
}

static void child_calls(void *arg)
{
	struct buffer *b = &((struct family *)arg)->b;
	uint64_t word = 0;
	gdr_info_t info;
	gdr_mh_t h;
	void *map;
	int v, minor;

	EXPECT(gdr_copy_from_mapping(b->mh, &word, b->cpu, 8), EACCES);
	EXPECT(gdr_copy_to_mapping(b->mh, b->cpu, &word, 8), EACCES);
	EXPECT(barcopy_get64(b->mh, b->cpu, &word), EACCES);
	EXPECT(barcopy_put64(b->mh, b->cpu, word), EACCES);
	EXPECT(barcopy_flush(b->mh), EACCES);
	EXPECT(gdr_pin_buffer_v2(b->g, (unsigned long)b->mem.dptr, 4096, 0, &h), EACCES);
	EXPECT(gdr_map(b->g, b->mh, &map, 4096), EACCES);
	EXPECT(gdr_unmap(b->g, b->mh, b->map, b->map_size), EACCES);
	EXPECT(gdr_get_info(b->g, b->mh, &info), EACCES);
	EXPECT(gdr_get_callback_flag(b->g, b->mh, &v), EACCES);
	EXPECT(gdr_driver_get_version(b->g, &v, &minor), EACCES);
	EXPECT(gdr_get_attribute(b->g, GDR_ATTR_USE_PERSISTENT_MAPPING, &v), EACCES);
	EXPECT(barcopy_get_event_fd(b->g, &v), EACCES);
	EXPECT(barcopy_next_revoked(b->g, &h), EACCES);
	EXPECT(gdr_unpin_buffer(b->g, b->mh), EACCES);
	EXPECT(gdr_close(b->g), EACCES);
}

static void fork_access(void)
{
	if (sanity_is_host())
		sanity_waive("memory of the CPU: what a child inherits of it is CUDA's affair");
	with_child(child_loads);
}

static void child_and_grandchild(void *arg)
{
	child_calls(arg);
	sanity_join(sanity_fork(child_calls, arg));
}

static void fork_calls(void)
{
	with_child(child_and_grandchild);
}

static void child_waits(void *arg)
{
	struct family *f = arg;

	gate_open(&f->done);
	gate_wait(&f->go);
	child_calls(f);
	if (!sanity_is_host())
		child_loads(f);
}

/* The parent goes on, and unmaps, unpins and frees under a living child. */
static void fork_then_unpin(void)
{
	struct buffer again;
	struct family f;
	pid_t pid;

	sanity_make(&f.b, 128 * KIB);
	pid = start(&f, child_waits);
	gate_wait(&f.done);
	sanity_round_trip(&f.b, 1);
	OK(gdr_unmap(f.b.g, f.b.mh, f.b.map, f.b.map_size));
	OK(gdr_map(f.b.g, f.b.mh, &f.b.map, f.b.map_size));
	f.b.cpu = (uint8_t *)f.b.map + (f.b.mem.dptr - f.b.info.va);
	sanity_round_trip(&f.b, 2);
	sanity_unmake(&f.b);
	sanity_make(&again, 128 * KIB);
	gate_open(&f.go);
	sanity_join(pid);
	sanity_round_trip(&again, 3);
	sanity_unmake(&again);
}

static void fork_then_close(void)
{
	struct family f;
	pid_t pid;

	sanity_make(&f.b, 128 * KIB);
	pid = start(&f, child_waits);
	gate_wait(&f.done);
	OK(gdr_close(sanity.g));
	mem_free(&f.b.mem);
	/* the child holds what it inherited, and lets go of it last */
	gate_open(&f.go);
	sanity_join(pid);
	sanity.g = buffer_open_library();
	sanity_make(&f.b, 128 * KIB);
	sanity_round_trip(&f.b, 1);
	sanity_unmake(&f.b);
}

/* A context that the child opens itself, without CUDA: the parent's memory is not reached by it. */
static void child_opens(void *arg)
{
	struct family *f = arg;
	int major, minor;
	gdr_mh_t h;
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);

	if (!g) {
		sanity_note("a child's own context: %s", barcopy_last_error());
		return;
	}
	OK(gdr_driver_get_version(g, &major, &minor));
	/* the stand-in's node takes a child for its parent, the GPU driver does not */
	if (gdr_pin_buffer_v2(g, (unsigned long)f->b.mem.dptr, 4096, 0, &h))
		sanity_note("a child's pin of its parent's memory: %s", barcopy_last_error());
	else
		CHECK(cuda_dl_is_stand_in(), "a child pins its parent's memory");
	child_calls(f); /* the parent's is no more reachable than before */
	OK(gdr_close(g));
}

static void fork_open(void)
{
	with_child(child_opens);
}

static void child_lives(void *arg)
{
	struct family *f = arg;

	sanity_open();
	sanity_make(&f->b, 128 * KIB);
	gate_open(&f->done);
	for (uint64_t i = 0; i < 10; i++)
		sanity_round_trip(&f->b, 1000 + i);
	gate_wait(&f->go);
	sanity_round_trip(&f->b, 2000);
	sanity_unmake(&f->b);
	sanity_close();
}

/* Two processes, each with CUDA and memory of its own, at the same time. */
static void two_processes(void)
{
	struct family f;
	struct buffer b;
	pid_t pid;

	pid = start(&f, child_lives); /* before CUDA is there */
	sanity_open();
	sanity_make(&b, 128 * KIB);
	gate_wait(&f.done);
	for (uint64_t i = 0; i < 10; i++)
		sanity_round_trip(&b, i);
	sanity_unmake(&b);
	gate_open(&f.go);
	sanity_join(pid);
}

static void no_host_memory(void)
{
	if (sanity_is_host())
		sanity_waive("memory of the CPU: nothing is mapped that a free could end");
}

/* Frees its memory under its mapping, while its parent looks at its own. */
static void child_frees(void *arg)
{
	struct family *f = arg;

	sanity_open();
	sanity_make(&f->b, 128 * KIB);
	sanity_round_trip(&f->b, 1000);
	gate_open(&f->done);
	gate_wait(&f->go);
	mem_free(&f->b.mem);
	gate_open(&f->done);
	gate_wait(&f->go);
	OK(gdr_unpin_buffer(f->b.g, f->b.mh));
	sanity_close();
}

static void free_in_child(void)
{
	struct family f;
	struct buffer b;
	pid_t pid;

	no_host_memory();
	pid = start(&f, child_frees); /* before CUDA is there */
	sanity_open();
	sanity_make(&b, 128 * KIB);
	gate_wait(&f.done);
	sanity_round_trip(&b, 1);
	gate_open(&f.go);
	gate_wait(&f.done);
	sanity_round_trip(&b, 2); /* the child's memory is freed */
	gate_open(&f.go);
	sanity_join(pid);
	sanity_round_trip(&b, 3);
	sanity_unmake(&b);
}

/* Takes memory once its parent has freed some, and fills it. */
static void child_takes(void *arg)
{
	struct family *f = arg;

	sanity_open();
	gate_wait(&f->go);
	sanity_make(&f->b, 128 * KIB);
	sanity_round_trip(&f->b, 1000);
	gate_open(&f->done);
	gate_wait(&f->go);
	sanity_unmake(&f->b);
	sanity_close();
}

/* What a mapping shows after the free of its memory is never another process's data. */
static void free_in_parent(void)
{
	const uint64_t token = 0x0123456789abcdef;
	uint64_t seen = 0;
	struct family f;
	struct buffer b;
	pid_t pid;

	no_host_memory();
	pid = start(&f, child_takes);
	sanity_open();
	sanity_make(&b, 128 * KIB);
	OK(gdr_copy_to_mapping(b.mh, b.cpu, &token, sizeof(token)));
	OK(barcopy_flush(b.mh));
	mem_free(&b.mem);
	gate_open(&f.go);
	gate_wait(&f.done);
	if (sanity.facts.persistent) {
		OK(gdr_copy_from_mapping(b.mh, &seen, b.cpu, sizeof(seen)));
		SAME("after the free, with memory of a child", &token, &seen, sizeof(seen));
	} else {
		sanity_must_fault(b.cpu, "after the free, with memory of a child");
	}
	gate_open(&f.go);
	sanity_join(pid);
	OK(gdr_unpin_buffer(b.g, b.mh));
}

const struct sanity_test sanity_process[] = {
	{ "fork_access", "a child's load from its parent's mapping faults", fork_access, false },
	{ "fork_calls", "a child's calls on its parent's handles give EACCES", fork_calls, false },
	{ "fork_then_unpin", "the parent unmaps and unpins under a child", fork_then_unpin, false },
	{ "fork_then_close", "the parent closes before its child ends", fork_then_close, false },
	{ "fork_open", "a child opens a context of its own", fork_open, false },
	{ "two_processes", "two processes at the same time", two_processes, true },
	{ "free_in_child", "a child frees memory beside its parent's", free_in_child, true },
	{ "free_in_parent", "freed memory is not seen as a child's", free_in_parent, true },
	{ NULL, NULL, NULL, false },
};
