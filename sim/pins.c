/* SPDX-License-Identifier: MIT */
/*
 * Pins of device memory for the stand-in of the kernel driver's node. A pin holds the memory. A pin
 * with a revocation ends when the program frees the last allocation in its range.
 */
#include <errno.h>
#include <stdlib.h>

#include "sim.h"

struct pin {
	struct pin *next;
	unsigned long id;
	sim_addr addr;
	size_t size;
	void (*revoke)(void *arg);
	void *arg;
	unsigned int n_pieces;
	struct sim_piece pieces[];
};

static struct pin *pins;
static unsigned long next_id = 1;

/* The piece of memory at `at`; false: none that can be pinned. */
static bool piece_at(sim_addr at, sim_addr end, struct sim_piece *piece)
{
	struct sim_alloc *alloc = sim_find_in(at, (size_t)(end - at));
	sim_addr base;
	size_t size;

	if (!alloc)
		return false;
	switch (alloc->kind) {
	case SIM_DEVICE:
	case SIM_POOL:
		/* Its block's other bytes belong to the driver: they can be pinned with it. */
		base = alloc->block;
		size = alloc->block_size;
		break;
	case SIM_VMM:
		if (!alloc->obj->prop.allocFlags.gpuDirectRDMACapable)
			return false;
		base = alloc->base;
		size = alloc->size;
		break;
	default:
		return false;
	}
	if (at < base || at - base >= size)
		return false;
	piece->obj = alloc->obj;
	piece->offset = (size_t)(at - base);
	piece->size = size - piece->offset;
	if (piece->size > end - at)
		piece->size = (size_t)(end - at);
	return true;
}

/* Under the lock; holds the memory from here on. */
static int pin_add(struct pin *pin, struct gdrsim_piece *pieces, unsigned long *id)
{
	for (unsigned int i = 0; i < pin->n_pieces; i++) {
		sim_obj_get(pin->pieces[i].obj);
		pieces[i].fd = pin->pieces[i].obj->fd;
		pieces[i].offset = pin->pieces[i].offset;
		pieces[i].size = pin->pieces[i].size;
	}
	pin->id = next_id++;
	pin->next = pins;
	pins = pin;
	*id = pin->id;
	return (int)pin->n_pieces;
}

int gdrsim_pin(unsigned long long addr, size_t size, void (*revoke)(void *arg), void *arg,
	       struct gdrsim_piece *pieces, unsigned int room, unsigned long *id)
{
	struct pin *pin = calloc(1, sizeof(*pin) + room * sizeof(pin->pieces[0]));
	sim_addr end = addr + size;
	int rc = -EINVAL;

	if (!pin)
		return -ENOMEM;
	pthread_mutex_lock(&sim.lock);
	if (sim_integrated()) /* no BAR */
		goto out;
	for (sim_addr at = addr; at < end; at += pin->pieces[pin->n_pieces++].size)
		if (pin->n_pieces == room || !piece_at(at, end, &pin->pieces[pin->n_pieces]))
			goto out;
	pin->addr = addr;
	pin->size = size;
	pin->revoke = revoke;
	pin->arg = arg;
	rc = pin_add(pin, pieces, id);
out:
	pthread_mutex_unlock(&sim.lock);
	if (rc < 0)
		free(pin);
	return rc;
}

static void pin_free(struct pin *pin)
{
	for (unsigned int i = 0; i < pin->n_pieces; i++)
		sim_obj_put(pin->pieces[i].obj);
	free(pin);
}

void gdrsim_unpin(unsigned long id)
{
	struct pin **link = &pins, *pin;

	pthread_mutex_lock(&sim.lock);
	while (*link && (*link)->id != id)
		link = &(*link)->next;
	pin = *link;
	if (pin) {
		*link = pin->next;
		pin_free(pin);
	}
	pthread_mutex_unlock(&sim.lock);
}

void sim_pins_freed(sim_addr addr, size_t size)
{
	struct pin **link = &pins;

	while (*link) {
		struct pin *pin = *link;

		if (!pin->revoke || addr >= pin->addr + pin->size || pin->addr >= addr + size ||
		    sim_find_in(pin->addr, pin->size)) {
			link = &pin->next;
			continue;
		}
		*link = pin->next;
		pin->revoke(pin->arg);
		pin_free(pin);
	}
}
