/* SPDX-License-Identifier: MIT */
/* What a call of the library or of CUDA must return; if it does not, the test ends with the cause. */
#ifndef TEST_COMMON_EXPECT_H
#define TEST_COMMON_EXPECT_H

#include <check.h>

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
#define CU(call) ck_assert_int_eq((call), CUDA_SUCCESS)

#endif
