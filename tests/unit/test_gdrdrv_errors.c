// SPDX-License-Identifier: MIT
/*
 * The gdrdrv backend over the stand-in of the node: every call of the driver failing in every way,
 * and interrupted; handles of every width.
 */
#include <errno.h>

#include "common/again.h"
#include "common/node.h"
#include "common/resources.h"

START_TEST(test_pin_errors)
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
	uint64_t base = standin_alloc(MIB);
	gdr_mh_t h = { 42 };
	gdr_t g;

	g = node_open_alone("2.6", "1");
	node.faults(cases[_i].rule);
	ck_assert_int_eq(gdr_pin_buffer(g, base, MIB, 0, 0, &h), cases[_i].err);
	ck_assert_uint_eq(h.h, 42);
	ck_assert_uint_eq(node.pins(), 0);
	node.faults(NULL);
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	assert_ok(gdr_close(g));
}
END_TEST

/* A driver that says it pinned something else than it was asked for. */
START_TEST(test_pin_elsewhere)
{
	static const char *const skews[] = { "65536", "-65536", "512", "-4194304" };
	uint64_t base = standin_alloc(MIB);
	gdr_mh_t h;
	gdr_t g;

	node_env("GDRSIM_NODE_SKEW", skews[_i]);
	g = node_open_alone("2.6", "1");
	ck_assert_int_eq(gdr_pin_buffer(g, base + 65536, MIB - 65536, 0, 0, &h), EIO);
	assert_text("instead of");
	ck_assert_uint_eq(node.pins(), 0);
	assert_ok(gdr_close(g));
}
END_TEST

START_TEST(test_map_errors)
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
		{ "MADVISE:*=ENOMEM", ENOMEM },
		{ "MADVISE:*=EINVAL", ENOTSUP },
		{ "MMAP:*=REVOKE", EINVAL },
		{ "GET_INFO_V2:*=EINVAL", EINVAL },
		{ "REQ_MAPPING_TYPE:*=EINVAL", EINVAL },
		{ "REQ_MAPPING_TYPE:*=ENOTSUPP", ENOTSUP },
		{ "REQ_MAPPING_TYPE:*=EACCES", EACCES },
	};
	uint64_t base = standin_alloc(4 * MIB);
	gdr_t g = node_open("2.6", "1");
	void *map = &g;
	gdr_mh_t h;

	if (strstr(cases[_i].rule, "REVOKE") &&
	    test_emulator_lacks("test_map_errors, REVOKE",
				"a system call's read of a page beyond the end of its file"))
		return;
	assert_ok(gdr_pin_buffer(g, base, 4 * MIB, 0, 0, &h));
	node.faults(cases[_i].rule);
	ck_assert_int_eq(gdr_map(g, h, &map, 4 * MIB), cases[_i].err);
	ck_assert_ptr_eq(map, &g);
	ck_assert_uint_eq(node.maps(), 0);
	node.faults(NULL);
	if (!strstr(cases[_i].rule, "REVOKE"))
		assert_ok(gdr_map(g, h, &map, 4 * MIB));
	assert_ok(gdr_close(g));
	ck_assert_uint_eq(node.pins(), 0);
}
END_TEST

/* A failing unpin is told, and the handle is gone all the same; close goes on to the end. */
START_TEST(test_unpin_errors)
{
	uint64_t base = standin_alloc(MIB);
	gdr_t g = node_open("2.6", "1");
	int fds, flag = 42;
	gdr_mh_t h[3];
	void *map;

	for (int i = 0; i < 3; i++)
		assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h[i]));
	assert_ok(gdr_map(g, h[2], &map, MIB));
	node.faults("GET_CB_FLAG:1=EINVAL,UNPIN_BUFFER:1=EINVAL,UNPIN_BUFFER:3=EACCES");
	ck_assert_int_eq(gdr_get_callback_flag(g, h[0], &flag), EINVAL);
	ck_assert_int_eq(flag, 42);
	ck_assert_int_eq(gdr_unpin_buffer(g, h[0]), EINVAL);
	ck_assert_int_eq(gdr_unpin_buffer(g, h[0]), EINVAL);
	ck_assert_uint_eq(node.calls("UNPIN_BUFFER"), 1);
	fds = resources_fds();
	ck_assert_int_eq(gdr_close(g), EACCES);
	ck_assert_uint_eq(node.calls("UNPIN_BUFFER"), 3);
	ck_assert_uint_eq(node.pins(), 0); /* the node's close took the rest */
	ck_assert_int_eq(resources_fds(), fds - 2); /* the node is a pipe here */
	ck_assert_int_eq(gdr_close(g), EINVAL);
}
END_TEST

/* Every call is made again after a signal. */
START_TEST(test_interrupted)
{
	gdr_t g;
	uint64_t base = standin_alloc(MIB);
	int flag;
	gdr_mh_t h;
	void *map;

	node.faults("OPEN:1=EINTR,GET_VERSION:1=EINTR,GET_ATTR:1=EINTR,PIN_BUFFER_V2:1=EINTR,"
		    "GET_INFO_V2:1=EINTR,REQ_MAPPING_TYPE:1=EINTR,GET_CB_FLAG:1=EINTR,"
		    "UNPIN_BUFFER:1=EINTR");
	g = node_open("2.6", "1");
	assert_ok(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &flag));
	ck_assert_int_eq(flag, 1);
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	assert_ok(gdr_map(g, h, &map, MIB));
	assert_ok(gdr_get_callback_flag(g, h, &flag));
	assert_ok(gdr_unpin_buffer(g, h));
	assert_ok(gdr_close(g));
}
END_TEST

/* Handles are the driver's business: 0, and more than 32 bits. */
START_TEST(test_handles)
{
	static const char *const firsts[] = { "0", "0xfffffff8", "0x7fffffff00000" };
	uint64_t base = standin_alloc(MIB);
	gdr_t g;

	node_env("GDRSIM_NODE_HANDLE", firsts[_i]);
	g = node_open("2.6", "1");
	for (int i = 0; i < 3; i++)
		node_use_range(g, base);
	assert_ok(gdr_close(g));
}
END_TEST

START_TEST(test_handle_without_offset)
{
	uint64_t base = standin_alloc(MIB);
	gdr_mh_t h;
	void *map;
	gdr_t g;

	node_env("GDRSIM_NODE_HANDLE", "0x8000000000000");
	g = node_open("2.6", "1");
	assert_ok(gdr_pin_buffer(g, base, MIB, 0, 0, &h));
	ck_assert_int_eq(gdr_map(g, h, &map, MIB), EOVERFLOW);
	assert_ok(gdr_close(g));
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_loop_test(tc, test_pin_errors, 0, 13);
	tcase_add_loop_test(tc, test_pin_elsewhere, 0, 4);
	tcase_add_loop_test(tc, test_map_errors, 0, 12);
	tcase_add_test(tc, test_unpin_errors);
	tcase_add_test(tc, test_interrupted);
	tcase_add_loop_test(tc, test_handles, 0, 3);
	tcase_add_test(tc, test_handle_without_offset);
}

int main(int argc, char **argv)
{
	(void)argc;
	return node_main(argv, "gdrdrv: errors", add_tests);
}
