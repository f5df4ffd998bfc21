/* SPDX-License-Identifier: MIT */
/* See lru.h. */
#include "cache/lru.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

static void put(struct gdri_lru *lru, size_t place, struct gdri_lru_node *node)
{
	lru->heap[place] = node;
	node->place = place;
}

static void sift_up(struct gdri_lru *lru, struct gdri_lru_node *node)
{
	size_t at = node->place;

	while (at && lru->heap[(at - 1) / 2]->key > node->key) {
		put(lru, at, lru->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	put(lru, at, node);
}

static void sift_down(struct gdri_lru *lru, struct gdri_lru_node *node)
{
	size_t at = node->place, child;

	while ((child = 2 * at + 1) < lru->count) {
		if (child + 1 < lru->count && lru->heap[child + 1]->key < lru->heap[child]->key)
			child++;
		if (lru->heap[child]->key >= node->key)
			break;
		put(lru, at, lru->heap[child]);
		at = child;
	}
	put(lru, at, node);
}

int gdri_lru_add(struct gdri_lru *lru, struct gdri_lru_node *node, uint64_t key)
{
	if (lru->count == lru->room) {
		size_t room = lru->room ? 2 * lru->room : 64;
		struct gdri_lru_node **heap = realloc(lru->heap, room * sizeof(*heap));

		if (!heap)
			return gdri_fail(ENOMEM, "no memory for the cache's order");
		lru->heap = heap;
		lru->room = room;
	}
	node->key = key;
	put(lru, lru->count++, node);
	sift_up(lru, node);
	return 0;
}

void gdri_lru_remove(struct gdri_lru *lru, struct gdri_lru_node *node)
{
	struct gdri_lru_node *last = lru->heap[--lru->count];

	if (last == node)
		return;
	put(lru, node->place, last);
	sift_up(lru, last);
	sift_down(lru, last);
}

void gdri_lru_raise(struct gdri_lru *lru, struct gdri_lru_node *node, uint64_t key)
{
	node->key = key;
	sift_down(lru, node);
}

void gdri_lru_destroy(struct gdri_lru *lru)
{
	free(lru->heap);
	*lru = (struct gdri_lru){ .heap = NULL };
}
