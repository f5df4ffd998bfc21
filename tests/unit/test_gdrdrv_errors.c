// SPDX-License-Identifier: MIT
/*
 * The gdrdrv backend over the stand-in of the node: every call of the driver failing in every way,
 * and interrupted; handles of every width.
 */

#include "common/again.h"
#include "node_sim.h"

static void test_pin_errors(void)
{
	static const struct {
		const char *rule;
		int err;
	} cases[] = {
		{ "PIN_BUFFER_V2:*=EINVAL", EINVAL },	    { "PIN_BUFFER_V2:*=ENOMEM", ENOMEM },
		{ "PIN_BUFFER_V2:*=ENOSPC", ENOMEM },	    { "PIN_BUFFER_V2:*=EACCES", EACCES },
		{ "PIN_BUFFER_V2:*=EPERM", EACCES },	    { "PIN_BUFFER_V2:*=ENOTSUPP", ENOTSUP },
		{ "PIN_BUFFER_V2:*=EOPNOTSUPP", ENOTSUP },  { "PIN_BUFFER_V2:*=ENOTTY", ENOTSUP },
		{ "PIN_BUFFER_V2:*=ENODEV", ENODEV },	    { "PIN_BUFFER_V2:*=EFAULT", EIO },
		{ "PIN_BUFFER_V2:*=EOVERFLOW", EOVERFLOW }, { "GET_INFO_V2:*=EINVAL", EINVAL },
		{ "GET_INFO_V2:*=EACCES", EACCES },
	};
	gdr_mh_t h = { 42 };

	node_open_alone("2.6", "1");
	node.faults(cases[unit_row].rule);
	FAILS_WITH(cases[unit_row].err,
		   cases[unit_row].err == ENOMEM ? "no memory, or BAR1 is full" : "",
		   gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	ck_assert_uint_eq(h.h, 42);
	ck_assert_uint_eq(node.pins(), 0);
	node.faults(NULL);
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	if (cases[unit_row].err == ENODEV || cases[unit_row].err == EIO ||
	    cases[unit_row].err == EOVERFLOW)
		return; /* these say less than the host backend's ENOTSUP */
	/* The host backend, which does not serve this memory, leaves the number as it is. */
	node_env("GDRCOPY_BACKEND", "gdrdrv,host");
	node_open("2.6", "1");
	node.faults(cases[unit_row].rule);
	FAILS(cases[unit_row].err, gdr_pin_buffer(g, base, MIB, 0, 0, &h));
}

/* A driver that says it pinned something else than it was asked for. */
static void test_pin_elsewhere(void)
{
	static const char *const skews[] = { "65536", "-65536", "512", "-512", "-4194304" };
	gdr_mh_t h;

	node_env("GDRSIM_NODE_SKEW", skews[unit_row]);
	node_open_alone("2.6", "1");
	FAILS_WITH(EIO, "instead of", gdr_pin_buffer(g, base + 65536, MIB - 66560, 0, 0, &h));
	ck_assert_uint_eq(node.pins(), 0);
}

static void test_map_errors(void)
{
	static const struct {
		const char *rule;
		int err;
	} cases[] = {
		{ "MMAP:*=ENOMEM", ENOMEM },
		{ "MMAP:*=EINVAL", EINVAL },
		{ "MMAP:*=EACCES", EACCES },
		{ "MMAP:*=EAGAIN", EIO },
		{ "MMAP:*=EPERM", EACCES },
		{ "MMAP:*=ENOSPC", ENOMEM },
		{ "MADVISE:*=ENOMEM", ENOMEM },
		{ "MADVISE:*=EINVAL", ENOTSUP },
		{ "MMAP:*=REVOKE", EINVAL },
		{ "GET_INFO_V2:*=EINVAL", EINVAL },
		{ "REQ_MAPPING_TYPE:*=EINVAL", EINVAL },
		{ "REQ_MAPPING_TYPE:*=ENOTSUPP", ENOTSUP },
		{ "REQ_MAPPING_TYPE:*=EACCES", EACCES },
	};
	void *map = &g;
	gdr_mh_t h;

	node_open("2.6", "1");
	if (strstr(cases[unit_row].rule, "REVOKE") &&
	    test_emulator_lacks("test_map_errors, REVOKE",
				"a system call's read of a page beyond the end of its file"))
		return;
	OK(gdr_pin_buffer(g, base, 4 * MIB, 0, 0, &h));
	node.faults(cases[unit_row].rule);
	FAILS_WITH(cases[unit_row].err, cases[unit_row].rule[0] == 'R' ? "REQ_MAPPING_TYPE" : "",
		   gdr_map(g, h, &map, 4 * MIB));
	ck_assert_ptr_eq(map, &g);
	ck_assert_uint_eq(node.maps(), 0);
	node.faults(NULL);
	if (!strstr(cases[unit_row].rule, "REVOKE"))
		OK(gdr_map(g, h, &map, 4 * MIB));
}

/* A failing unpin is told, and the handle is gone all the same; close goes on to the end. */
static void test_unpin_errors(void)
{
	int fds, flag = 42;
	gdr_mh_t h[3];
	void *map;

	node_open("2.6", "1");
	for (int i = 0; i < 3; i++)
		OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h[i]));
	OK(gdr_map(g, h[2], &map, MIB));
	node.faults("GET_CB_FLAG:1=EINVAL,UNPIN_BUFFER:1=EINVAL,UNPIN_BUFFER:3=EACCES");
	FAILS(EINVAL, gdr_get_callback_flag(g, h[0], &flag));
	ck_assert_int_eq(flag, 42);
	FAILS(EINVAL, gdr_unpin_buffer(g, h[0]));
	FAILS(EINVAL, gdr_unpin_buffer(g, h[0]));
	ck_assert_uint_eq(node.calls("UNPIN_BUFFER"), 1);
	fds = resources_fds();
	FAILS(EACCES, gdr_close(g));
	ck_assert_uint_eq(node.calls("UNPIN_BUFFER"), 3);
	ck_assert_uint_eq(node.pins(), 0); /* the node's close took the rest */
	ck_assert_int_eq(resources_fds(), fds - 2); /* the node is a pipe here */
	FAILS(EINVAL, gdr_close(g));
	g = NULL;
}

/* Every call is made again after a signal. */
static void test_interrupted(void)
{
	int flag;
	gdr_mh_t h;
	void *map;

	node.faults("OPEN:1=EINTR,GET_VERSION:1=EINTR,GET_ATTR:1=EINTR,PIN_BUFFER_V2:1=EINTR,"
		    "GET_INFO_V2:1=EINTR,REQ_MAPPING_TYPE:1=EINTR,GET_CB_FLAG:1=EINTR,"
		    "UNPIN_BUFFER:1=EINTR");
	node_open("2.6", "1");
	ck_assert_int_eq(attribute(GDR_ATTR_USE_PERSISTENT_MAPPING), 1);
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	OK(gdr_map(g, h, &map, MIB));
	OK(gdr_get_callback_flag(g, h, &flag));
	OK(gdr_unpin_buffer(g, h));
}

/* Handles are the driver's business: 0, and more than 32 bits. */
static void test_handles(void)
{
	static const char *const firsts[] = { "0", "0xfffffff8", "0x7fffffff00000" };

	node_env("GDRSIM_NODE_HANDLE", firsts[unit_row]);
	node_open("2.6", "1");
	for (int i = 0; i < 3; i++)
		node_use_range();
}

static void test_handle_without_offset(void)
{
	gdr_mh_t h;
	void *map;

	node_env("GDRSIM_NODE_HANDLE", "0x8000000000000");
	node_open("2.6", "1");
	OK(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	FAILS(EOVERFLOW, gdr_map(g, h, &map, MIB));
}

static const struct unit_test tests[] = {
	{ "pin errors", test_pin_errors, .rows = 13 },
	{ "pin elsewhere", test_pin_elsewhere, .rows = 5 },
	{ "map errors", test_map_errors, .rows = 13 },
	{ "unpin errors", test_unpin_errors },
	{ "interrupted", test_interrupted },
	{ "handles", test_handles, .rows = 3 },
	{ "handle without offset", test_handle_without_offset },
};

UNIT_MAIN("gdrdrv: errors", tests, node_start(argv))
