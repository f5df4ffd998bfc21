/* SPDX-License-Identifier: MIT */
/*
 * Tests that are scripts: steps of one process, or of a process and its child, that free, unmap, unpin,
 * close and fork in some order. A script is a list of steps, "make b, free b, unmap b EINVAL": a verb of
 * the table in scene.c, the buffer that it acts on (b or other), and the errno that it must give if that is
 * not 0. "start" forks the child, which plays the second script; "signal" and "wait" let the two take turns.
 */
#ifndef PERF_SANITY_SCENE_H
#define PERF_SANITY_SCENE_H

#include "sanity/tests.h"

void scene_play(const struct sanity_test *test);

#endif
