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

#include "common/expect.h"
#include "common/standin.h"
#include "common/unit.h"
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

/*
 * For main, before unit_main(): this program with the stand-in of the node. Each test then begins with
 * CUDA started and a node as by default.
 */
void node_start(char **argv);

/* Sets a variable; NULL removes it. */
void node_env(const char *name, const char *value);

/* gdr_open() on a node of that level, persistent "0" or "1"; fails the test if it fails. */
gdr_t node_open(const char *level, const char *persistent);
/* The same with no other backend, whose reason would cover this one's. */
gdr_t node_open_alone(const char *level, const char *persistent);

/* The whole life of an unaligned range of 5000 bytes across the end of a GPU page, from `base`. */
void node_use_range(gdr_t g, uint64_t base);

#endif
