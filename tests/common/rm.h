/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the rm backend share: the stand-in of NVIDIA's nodes and its hooks. A program
 * of theirs starts itself again with the stand-in preloaded; it lies in GDRSIM_DIR. It knows
 * nothing of libgdrapi.
 */
#ifndef TEST_COMMON_RM_H
#define TEST_COMMON_RM_H

#include <stdint.h>

#include "sim/rm/gdrsim_rm.h"

struct rm_hooks {
	__typeof__(&gdrsim_rm_fail) faults;
	__typeof__(&gdrsim_rm_fail_nth) fail_nth;
	__typeof__(&gdrsim_rm_failed) failed;
	__typeof__(&gdrsim_rm_calls) calls;
	__typeof__(&gdrsim_rm_counts) counts;
	__typeof__(&gdrsim_rm_bar1_used) bar1_used;
	__typeof__(&gdrsim_rm_stale) stale;
};
extern struct rm_hooks rm_sim;

/*
 * For main, before unit_main() or the like: this program with NVIDIA's nodes; exits where that is
 * impossible. The hooks are found then.
 */
void rm_start(char **argv);

/*
 * The GPU's maps take that much BAR1; less where the machine's BAR1 is static or maps share it
 * (GDRSIM_BAR1_STATIC, GDRSIM_BAR1_REUSE).
 */
void rm_assert_bar1(int gpu, uint64_t bytes);

/* Fails the test if the process has anything left that struct gdrsim_rm_counts counts. */
void rm_assert_nothing_left(void);

#endif
