/* SPDX-License-Identifier: MIT */
/* Ports (barcopy_queue.h, docs/queue.md), whose GPU memory has the slots of calls. */
#ifndef GDRI_PORT_H
#define GDRI_PORT_H

#include "queue/ring.h"

struct gdri_port {
	struct gdri_ring ring;

	/* Set before publication, constant until the port ends. */
	uint32_t *open; /* of each slot: the name of the call to answer; 0: none */
	uint8_t *done; /* of each line: it is retired, one before it is not; under the gate */
	uint64_t spin_ns, yield_ns, sleep_ns;
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

	barcopy_port_view_t view;
};

extern struct gdri_slots gdri_ports;
extern const struct gdri_ring_kind gdri_port_kind;

/* See the public calls. All return 0, or -errno after setting the error's text. */
int gdri_port_receive(struct gdri_port *port, barcopy_port_message_t *messages, uint32_t n,
		      uint32_t *count, uint64_t timeout_ns);
int gdri_port_retire(struct gdri_port *port, uint64_t post, uint32_t n);
int gdri_port_answer(const struct gdri_port *port, const uint32_t *calls, const uint64_t *answers,
		     uint32_t count);
void gdri_port_stop(struct gdri_ring *ring, uint32_t flags);

#endif
