/* SPDX-License-Identifier: MIT */
/*
 * The CPU's side of ports (barcopy_queue.h, docs/queue.md). A port owns two blocks like a queue:
 * mapped GPU memory with a few words and the slots of calls, and host memory with the ring.
 */
#ifndef GDRI_PORT_H
#define GDRI_PORT_H

#include "queue/queue.h"

enum { GDRI_PORT_LINES = 1024 };

struct gdri_port {
	struct gdri_slot slot;

	/* Set before publication, constant until the port ends. */
	_Atomic(gdr_t) g; /* atomic: see struct gdri_queue */
	char *control; /* in the mapping of GPU memory; the slots of calls follow */
	char *ring; /* in host memory */
	const struct gdri_copy_plan *plan; /* of the mapping */
	uint32_t *open; /* of each slot: the name of the call to answer; 0: none */
	uint8_t *done; /* of each line: it is retired, one before it is not; under the gate */
	uint64_t spin_ns, yield_ns, sleep_ns;
	uint32_t lines, shift;
	uint32_t quantum; /* lines retired before kernels are told in any case */
	bool manual;

	/* The receiver's; whoever retires reads the first. */
	_Alignas(64) _Atomic uint64_t received;
	uint64_t idle; /* since when nothing has come, over several waits; 0: not known yet */
	uint64_t asked; /* when CUDA was asked last */
	uint32_t looks;

	/* Under the gate; without `manual`, the receiver's. */
	_Alignas(64) pthread_mutex_t gate;
	uint64_t retired, shown;

	/* Any thread's. */
	_Alignas(64) _Atomic uint32_t state; /* the bits of the state word */
	_Atomic bool ended;

	/* Used by create and destroy. */
	struct gdri_ctx *ctx;
	barcopy_mem_t mem;
	struct gdri_cuda_pages *pages;
	barcopy_port_view_t view;
	LIST_ENTRY(gdri_port) link; /* in ctx->ports; under ctx->lock */
};

extern struct gdri_slots gdri_ports;

/* See the public calls. All return 0, or -errno after setting the error's text. */
int gdri_port_create(struct gdri_ctx *ctx, int device, const barcopy_port_options_t *options,
		     barcopy_port_t *port);
void gdri_port_destroy(struct gdri_port *port);
int gdri_port_receive(struct gdri_port *port, barcopy_port_message_t *messages, uint32_t n,
		      uint32_t *count, uint64_t timeout_ns);
int gdri_port_retire(struct gdri_port *port, uint64_t post, uint32_t n);
int gdri_port_answer(const struct gdri_port *port, const uint32_t *calls, const uint64_t *answers,
		     uint32_t count);
void gdri_port_stop(struct gdri_port *port, uint32_t flags);
void gdri_port_end(struct gdri_port *port);

/* Ends the ports of a retired context; their memory stays: a kernel may use it. */
void gdri_ports_end(struct gdri_ctx *ctx);

static inline struct gdri_port *gdri_port_find(barcopy_port_t name)
{
	return (struct gdri_port *)gdri_slots_find_own(&gdri_ports, (uintptr_t)name);
}

static inline int gdri_port_refuse(barcopy_port_t name)
{
	return gdri_slots_fail(&gdri_ports, (uintptr_t)name, "a port");
}

#endif
