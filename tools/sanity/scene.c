/* SPDX-License-Identifier: MIT */
/*
 * Tests that are scripts (sanity.h). A free revokes a mapping, which then faults, or it is
 * persistent and keeps its data until the unpin.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sanity/sanity.h"

#define BUFFER_SIZE (128 * KIB)

struct scene {
	struct buffer b, other;
	const char *child_script; /* NULL in the child */
	int socket[2]; /* the parent's end, the child's: signals, and the node */
	struct node node; /* in the child: what it received */
	pid_t child;
	uint64_t trips;
	char before[24]; /* the verb of the step before */
};

static const uint64_t token = 0x0123456789abcdef;

static void waive_on_host(void)
{
	if (sanity_is_host())
		sanity_waive("memory of the CPU: the pointer is the allocation's own, nothing is "
			     "pinned or mapped");
}

static void make(struct buffer *b)
{
	int flag = -1;

	sanity_make(b, BUFFER_SIZE);
	OK(gdr_copy_to_mapping(b->mh, b->cpu, &token, sizeof(token)));
	OK(barcopy_flush(b->mh));
	OK(gdr_get_callback_flag(b->g, b->mh, &flag));
	CHECK(flag == 0, "the callback flag is %d before the free", flag);
}

/* Data goes both ways, `count` times. */
static void trips(struct scene *s, const struct buffer *b, int count)
{
	while (count--)
		sanity_round_trip(b, 0, b->mem.size, ++s->trips + (s->child_script ? 0 : 1000));
}

static void check_fault(const struct scene *s, const struct buffer *b)
{
	char when[64], last[64];

	snprintf(when, sizeof(when), "%s the %s", s->child_script ? "after" : "in a child, after",
		 s->before);
	snprintf(last, sizeof(last), "of the last byte %.40s", when);
	if (!sanity_is_host()) {
		sanity_must_fault(b->cpu, when);
		sanity_must_fault(b->cpu + BUFFER_SIZE - 1, last);
	}
}

/* Verifies a mapped buffer whose memory is freed. */
static void check_freed(const struct scene *s, const struct buffer *b)
{
	uint64_t seen = 0;
	int flag = -1;

	OK(gdr_get_callback_flag(b->g, b->mh, &flag));
	CHECK(flag == !sanity.facts.persistent, "the callback flag is %d after the free", flag);
	if (!sanity.facts.persistent) {
		check_fault(s, b);
		return;
	}
	OK(gdr_copy_from_mapping(b->mh, &seen, b->cpu, sizeof(seen)));
	SAME("after the free of the memory", &token, &seen, sizeof(seen));
}

static void cuda_reads(const struct buffer *b)
{
	uint64_t seen = 0;

	sanity_gpu_read(&seen, b->mem.dptr, sizeof(seen));
	SAME("read by CUDA", &token, &seen, sizeof(seen));
}

/* A persistent pin can be mapped after the free, and shows the old data; another one cannot. */
static void map_freed(const struct buffer *b)
{
	uint64_t seen = 0;
	void *map;
	int rc = gdr_map(b->g, b->mh, &map, b->map_size);

	if (!sanity.facts.persistent)
		FAILS(EINVAL, rc);
	sanity_note("a map after the free: %s", rc ? barcopy_last_error() : "gives the old data");
	if (rc)
		return;
	OK(gdr_copy_from_mapping(b->mh, &seen, (uint8_t *)map + (b->cpu - (uint8_t *)b->map),
				 sizeof(seen)));
	SAME("mapped after the free of the memory", &token, &seen, sizeof(seen));
}

/* In a child: every call on the parent's handles and context. */
static void refuses(void *arg)
{
	struct buffer *b = arg;
	gdr_mh_t h;
	int v, minor;

	sanity_refused(b, b->mh, EACCES);
	FAILS(EACCES, gdr_pin_buffer_v2(b->g, (unsigned long)b->mem.dptr, 4096, 0, &h));
	FAILS(EACCES, gdr_driver_get_version(b->g, &v, &minor));
	FAILS(EACCES, gdr_get_attribute(b->g, GDR_ATTR_USE_PERSISTENT_MAPPING, &v));
	FAILS(EACCES, gdr_close(b->g));
}

/* A context that the child opens itself, without CUDA, does not reach the parent's memory. */
static void own_context(struct buffer *b)
{
	gdr_t g = barcopy_open(BARCOPY_OPEN_ANY);
	int major, minor;
	gdr_mh_t h;

	if (!g) {
		sanity_note("a child's own context: %s", barcopy_last_error());
		return;
	}
	OK(gdr_driver_get_version(g, &major, &minor));
	/* the stand-in's node takes a child for its parent, the GPU driver does not */
	if (gdr_pin_buffer_v2(g, (unsigned long)b->mem.dptr, 4096, 0, &h))
		sanity_note("a child's pin of its parent's memory: %s", barcopy_last_error());
	else
		CHECK(cu.is_stand_in, "a child pins its parent's memory");
	refuses(b); /* the parent's context is still out of reach */
	OK(gdr_close(g));
}

static void play(struct scene *s, const char *script);

static void play_child(void *arg)
{
	struct scene *s = arg;
	const char *script = s->child_script;

	s->child_script = NULL;
	play(s, script);
}

static void signal_other(const struct scene *s)
{
	CHECK(write(s->socket[!s->child_script], "", 1) == 1, "socket: %s", strerror(errno));
}

static void wait_for_other(const struct scene *s)
{
	struct pollfd p = { .fd = s->socket[!s->child_script], .events = POLLIN };
	char c;

	/* this process has both ends: there is no end of file if the other process fails */
	while (poll(&p, 1, 100) <= 0)
		if (report->has_reason)
			_exit(1);
	CHECK(read(p.fd, &c, 1) == 1, "socket: %s", strerror(errno));
}

static void start(struct scene *s)
{
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, s->socket), "socketpair: %s", strerror(errno));
	s->child = sanity_fork(play_child, s);
}

/* A step: what a process does, where a failure ends it, or a call of the library, with its errno. */
static int step(struct scene *s, struct buffer *b, const char *verb)
{
	uint64_t seen;
	int flag;

#define ACT(name, action)        \
	if (!strcmp(verb, name)) \
	return (void)(action), 0
#define CALL(name, call)         \
	if (!strcmp(verb, name)) \
	return call
	ACT("device", waive_on_host());
	ACT("make", make(b));
	ACT("unmake", sanity_unmake(b));
	ACT("trip", trips(s, b, 1));
	ACT("trips", trips(s, b, 10));
	ACT("remap", sanity_remap(b));
	ACT("free", mem_free(&b->mem));
	ACT("freed", check_freed(s, b));
	ACT("fault", check_fault(s, b));
	ACT("cuda-reads", cuda_reads(b));
	ACT("map-freed", map_freed(b));
	ACT("reopen", sanity.g = buffer_open_library());
	ACT("open-all", sanity_open()); /* CUDA too */
	ACT("close-all", sanity_close());
	ACT("start", start(s));
	ACT("join", sanity_join(s->child));
	ACT("signal", signal_other(s));
	ACT("wait", wait_for_other(s));
	ACT("refuses", refuses(b));
	ACT("refuses-grandchild", sanity_join(sanity_fork(refuses, b)));
	ACT("own-context", own_context(b));
	ACT("has-node", node_or_waive());
	ACT("send-node", node_send(s->socket[0], b->mem.dptr));
	ACT("receive-node", node_receive(s->socket[1], &s->node));
	ACT("node-refused", node_check_refused(&s->node, BUFFER_SIZE));
	CALL("close-node", close(s->node.fd));
	CALL("read", gdr_copy_from_mapping(b->mh, &seen, b->cpu, sizeof(seen)));
	CALL("flag", gdr_get_callback_flag(b->g, b->mh, &flag));
	CALL("unmap", gdr_unmap(b->g, b->mh, b->map, b->map_size));
	CALL("unpin", gdr_unpin_buffer(b->g, b->mh));
	CALL("close", gdr_close(sanity.g));
#undef ACT
#undef CALL
	return -1; /* there is no such step */
}

static void play_step(struct scene *s, const char *words)
{
	char verb[24] = "", object[8] = "", wanted[8] = "";
	struct buffer *b;
	int err, want;

	sscanf(words, "%23s %7s %7s", verb, object, wanted);
	b = strcmp(object, "other") ? &s->b : &s->other;
	want = strcmp(wanted, "EINVAL") ? 0 : EINVAL;
	sanity_step = words;
	err = step(s, b, verb);
	if (err != want)
		sanity_unexpected(__FILE__, __LINE__, verb, err, want);
	snprintf(s->before, sizeof(s->before), "%s", verb);
	sanity_step = NULL;
}

static void play(struct scene *s, const char *script)
{
	char steps[512], *save = NULL;

	snprintf(steps, sizeof(steps), "%s", script);
	for (char *words = strtok_r(steps, ",", &save); words; words = strtok_r(NULL, ",", &save))
		play_step(s, words + strspn(words, " "));
}

void scene_play(const struct sanity_test *test)
{
	struct scene s = { .before = "start", .child_script = test->child ? test->child : "" };

	play(&s, test->script);
}

/* A bare test forks before CUDA and the library are open, so that the child can open its own. */
const struct sanity_test sanity_scenes[] = {
	SCENE("access_after_free", "memory freed under its mapping", false,
	      "device, make b, free b, freed b, make other, trip other, freed b, unmap b, unpin b,"
	      "trip other, unmake other",
	      NULL),
	SCENE("free_one_of_two", "two mappings, the memory of one freed", false,
	      "device, make b, make other, free b, freed b, trip other, unpin b, trip other,"
	      "unmake other",
	      NULL),
	SCENE("map_after_free", "memory freed between pin and map", false,
	      "device, make b, unmap b, free b, map-freed b, unpin b", NULL),
	SCENE("unmap_after_free", "free, then unmap, then unpin", false,
	      "device, make b, free b, unmap b, unmap b EINVAL, unpin b, unpin b EINVAL", NULL),
	SCENE("unpin_after_free", "free, then unpin", false,
	      "device, make b, free b, unpin b, read b EINVAL, make b, unmap b, free b, unpin b",
	      NULL),
	SCENE("close_after_free", "free, then close", false,
	      "device, make b, free b, close, fault b, reopen, make b, unmake b", NULL),
	SCENE("access_after_unmap", "the pointer after gdr_unmap()", false,
	      "device, make b, unmap b, fault b, read b EINVAL, unpin b, free b", NULL),
	/* a close with live pins and mappings ends them; the memory itself keeps its data */
	SCENE("access_after_close", "pointer and handle after gdr_close()", false,
	      "make b, close, fault b, read b EINVAL, flag b EINVAL, unpin b EINVAL, cuda-reads b,"
	      "free b, reopen",
	      NULL),

	SCENE("fork_access", "a child's load from its parent's mapping faults", false,
	      "device, make b, start, join, trip b, unmake b", "fault b"),
	SCENE("fork_calls", "a child's calls on its parent's handles give EACCES", false,
	      "make b, start, join, trip b, unmake b", "refuses b, refuses-grandchild b"),
	SCENE("fork_then_unpin", "the parent unmaps and unpins under a child", false,
	      "make b, start, wait, trip b, unmap b, remap b, trip b, unmake b, make other, signal,"
	      "join, trip other, unmake other",
	      "signal, wait, refuses b, fault b"),
	/* the child's inherited descriptors are the last ones */
	SCENE("fork_then_close", "the parent closes before its child ends", false,
	      "make b, start, wait, close, free b, signal, join, reopen, make b, trip b, unmake b",
	      "signal, wait, refuses b, fault b"),
	SCENE("fork_open", "a child opens a context of its own", false,
	      "make b, start, join, trip b, unmake b", "own-context b"),
	SCENE("two_processes", "two processes at the same time", true,
	      "start, open-all, make b, wait, trips b, unmake b, signal, join",
	      "open-all, make b, signal, trips b, wait, trip b, unmake b, close-all"),
	SCENE("free_in_child", "a child frees memory while its parent uses its own", true,
	      "device, start, open-all, make b, wait, trip b, signal, wait, trip b, signal, join,"
	      "trip b, unmake b",
	      "open-all, make b, trip b, signal, wait, free b, signal, wait, unpin b, close-all"),
	/* a mapping whose memory was freed never shows another process's data */
	SCENE("free_in_parent", "freed memory is not seen as a child's", true,
	      "device, start, open-all, make b, free b, signal, wait, freed b, signal, join,"
	      "unpin b",
	      "open-all, wait, make b, trip b, signal, wait, unmake b, close-all"),

	/* the child gets the node's descriptor by the socket alone */
	SCENE("fd_calls", "the node's descriptor in another process", true,
	      "has-node, start, open-all, make b, send-node b, wait, trip b, signal, join, trip b,"
	      "unmake b",
	      "receive-node, node-refused, signal, wait, node-refused, close-node"),
	SCENE("fd_last_close", "another process closes the node last", true,
	      "has-node, start, open-all, make b, send-node b, wait, close, fault b, free b,"
	      "signal, join, reopen, make b, trip b, unmake b",
	      "receive-node, node-refused, signal, wait, node-refused, close-node"),
	END_OF_TESTS,
};
