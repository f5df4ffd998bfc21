/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the gdrdrv backend share: the stand-in of the node and its hooks, contexts on
 * it, a range used from pin to unpin. A program of theirs starts itself again with the stand-in
 * preloaded; it lies in GDRSIM_DIR.
 */
#ifndef TEST_COMMON_NODE_H
#define TEST_COMMON_NODE_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/standin.h"
#include "barcopy.h"
#include "sim/node/gdrsim_node.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

/* The hooks of gdrsim_node.h; `faults` is gdrsim_node_fail. */
struct node_hooks {
	__typeof__(&gdrsim_node_fail) faults;
	__typeof__(&gdrsim_node_calls) calls;
	__typeof__(&gdrsim_node_pins) pins;
	__typeof__(&gdrsim_node_maps) maps;
};
extern struct node_hooks node;

/* For main: runs the case in one process per test, with CUDA started and a node as by default. */
int node_main(char **argv, const char *suite, void (*add)(TCase *tc));

/* Sets a variable; NULL removes it. */
void node_env(const char *name, const char *value);

/* gdr_open() on a node of that level, persistent "0" or "1"; fails the test if it fails. */
gdr_t node_open(const char *level, const char *persistent);
/* The same with no other backend, whose reason would cover this one's. */
gdr_t node_open_alone(const char *level, const char *persistent);

/* The whole life of an unaligned range of 5000 bytes across the end of a GPU page, from `base`. */
void node_use_range(gdr_t g, uint64_t base);

#define assert_ok(call)                                                                         \
	do {                                                                                    \
		int rc_ = (call);                                                               \
		ck_assert_msg(rc_ == 0, #call ": %s: %s", strerror(rc_), barcopy_last_error()); \
	} while (0)

#define assert_text(part)                                                               \
	ck_assert_msg(strstr(barcopy_last_error(), part), "\"%s\" is not in: %s", part, \
		      barcopy_last_error())

#endif
