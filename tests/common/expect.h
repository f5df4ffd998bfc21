/* SPDX-License-Identifier: MIT */
/* What a call of the library or of CUDA must return; else the test fails with the cause. */
#ifndef TEST_COMMON_EXPECT_H
#define TEST_COMMON_EXPECT_H

#include <check.h>
#include <errno.h>
#include <string.h>

#include "abi/cuda.h"
#include "barcopy.h"

#define OK(call)                                                                             \
	do {                                                                                 \
		int err_ = (call);                                                           \
		ck_assert_msg(!err_, "%s: errno %d: %s", #call, err_, barcopy_last_error()); \
	} while (0)
#define FAILS(err, call)                                                                          \
	do {                                                                                      \
		int err_ = (call);                                                                \
		ck_assert_msg(err_ == (err), "%s: errno %d instead of %s: %s", #call, err_, #err, \
			      barcopy_last_error());                                              \
	} while (0)
/* The same, and barcopy_last_error() contains that text. */
#define FAILS_WITH(err, text, call) \
	do {                        \
		FAILS(err, call);   \
		SAYS(text);         \
	} while (0)
#define SAYS(text)                                                                            \
	do {                                                                                  \
		const char *text_ = (text);                                                   \
		ck_assert_msg(strstr(barcopy_last_error(), text_), "\"%s\" is not in \"%s\"", \
			      text_, barcopy_last_error());                                   \
	} while (0)
/* For OK() and FAILS(): the errno of a call that returns NULL when it fails, such as gdr_open(). */
#define ERRNO_OF(pointer) ((pointer) ? 0 : errno)
/* A handle's attribute: HANDLE_HAS(g, h, BACKEND, BARCOPY_BACKEND_RM). */
#define HANDLE_HAS(g, h, attribute, expected)                                                     \
	do {                                                                                      \
		uint64_t value_ = 77;                                                             \
		OK(barcopy_get_handle_attribute(g, h, BARCOPY_HANDLE_ATTR_##attribute, &value_)); \
		ck_assert_uint_eq(value_, expected);                                              \
	} while (0)
#define CU(call) ck_assert_int_eq((call), CUDA_SUCCESS)

#endif
