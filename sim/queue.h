/* SPDX-License-Identifier: MIT */
/* The kernels of queues, for the table in kernels.c. */
#ifndef SIM_QUEUE_H
#define SIM_QUEUE_H

struct sim_launch;

void sim_queue_echo(const struct sim_launch *launch); /* view, u64 count, u32 flags, u64 bulk, u32 words */
void sim_queue_lines(const struct sim_launch *launch); /* view, u32 flags */
void sim_queue_slots(const struct sim_launch *launch); /* u64 in, u64 out, u32 words, u64 first, u64 last */

#endif
