/* SPDX-License-Identifier: MIT */
/* Queues (barcopy_queue.h, docs/queue.md), whose GPU memory has the ring of requests. */
#ifndef GDRI_QUEUE_H
#define GDRI_QUEUE_H

#include "queue/ring.h"

struct gdri_queue {
	struct gdri_ring ring;

	/* Used by the sender alone; the first three are constant. */
	char *requests; /* in the mapping of GPU memory */
	char *state; /* in host memory */
	bool direct; /* MOVDIR64B writes a whole line; no fence follows */
	bool stopped;
	uint64_t sent; /* lines written */
	uint64_t freed; /* of those, lines that the kernel has taken, as last read */
	uint64_t send_asked; /* when a wait last asked CUDA, in ns */

	/* Used by the receiver alone. */
	_Alignas(64) uint64_t received; /* lines read */
	uint64_t credited; /* of those, lines whose reading was reported to the kernel */
	uint64_t receive_asked;

	_Alignas(64) barcopy_queue_view_t view;
};

extern struct gdri_slots gdri_queues;
extern const struct gdri_ring_kind gdri_queue_kind;

/* See the public calls. All return 0, or -errno after setting the error's text. */
int gdri_queue_send(struct gdri_queue *queue, const void *message, size_t size, uint32_t flags,
		    uint64_t timeout_ns);
int gdri_queue_receive(struct gdri_queue *queue, void *message, size_t capacity, size_t *size,
		       uint64_t timeout_ns);
void gdri_queue_stop(struct gdri_ring *ring, uint32_t flags);

#endif
