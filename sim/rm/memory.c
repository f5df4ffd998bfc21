/* SPDX-License-Identifier: MIT */
/*
 * Physical memory of the GPUs, as descriptors from libcuda's stand-in, and the references to it. It
 * lives until its maker has ended it and no reference is left.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

#include "node/node.h"
#include "rm/rm.h"

/* Only the process that made the memory has these. */
static struct local {
	unsigned int life; /* of the slot */
	void (*release)(void *arg);
	void *arg;
} local[RM_MEMORIES];

static bool is_free(int i)
{
	return !rm->memories[i].live;
}

static int memory_new(int gpu, int fd, size_t size, void (*release)(void *), void *arg)
{
	int at = rm_slot(&rm->n_memories, RM_MEMORIES, is_free);
	struct rm_memory *m = &rm->memories[at];
	struct stat st;

	if (!at)
		return 0;
	if (libc_calls()->fstat(fd, &st)) {
		rm_slot_free(&rm->n_memories, at);
		return 0;
	}
	*m = (struct rm_memory){ .live = true,
				 .pid = getpid(),
				 .fd = fd,
				 .ino = st.st_ino,
				 .gpu = gpu,
				 .size = size,
				 .at = rm->next_memory,
				 .life = ++rm->life };
	rm->next_memory += (size + RM_PAGE - 1) & ~(uint64_t)(RM_PAGE - 1);
	local[at] = (struct local){ m->life, release, arg };
	return at;
}

int gdrsim_rm_memory_new(int gpu, int fd, size_t size, void (*release)(void *), void *arg)
{
	int at;

	rm_lock();
	at = memory_new(gpu, fd, size, release, arg);
	rm_unlock();
	return at ? at : -1;
}

unsigned int gdrsim_rm_memory_object(int id, unsigned int client, unsigned int device,
				     size_t offset, size_t length)
{
	const struct rm_client *c;
	nv_handle handle = 0;
	int parent;

	rm_lock();
	c = rm_client_find(client);
	parent = c ? rm_object_find(rm_client_index(c), device) : 0;
	if (!parent ||
	    rm_memory_object(rm_client_index(c), parent, &handle, id, offset, length) != NV_OK)
		handle = 0;
	rm_unlock();
	return handle;
}

static bool gone(const struct rm_memory *m)
{
	return m->live && m->ended && !m->refs;
}

static void slot_free(int at)
{
	rm->memories[at].live = false;
	rm_slot_free(&rm->n_memories, at);
}

bool gdrsim_rm_memory_end(int id, unsigned int client)
{
	const struct rm_client *c;
	bool done;

	rm_lock();
	c = rm_client_find(client);
	for (int i = 1; c && i < rm->n_objects.top; i++)
		if (rm->objects[i].client == rm_client_index(c) && rm->objects[i].memory == id)
			rm_object_free(i);
	rm->memories[id].ended = true;
	done = gone(&rm->memories[id]);
	if (done)
		slot_free(id);
	rm_unlock();
	return done;
}

void rm_memory_get(int memory)
{
	rm->memories[memory].refs++;
}

void rm_memory_put(int memory)
{
	rm->memories[memory].refs--;
}

/* One at a time, since its release may reenter. Memory of a process that has ended is skipped. */
static bool reap_one(void)
{
	struct local todo = { 0 };

	rm_lock();
	for (int i = 1; i < rm->n_memories.top && !todo.release; i++) {
		const struct rm_memory *m = &rm->memories[i];

		if (!gone(m) || m->pid != getpid() || local[i].life != m->life)
			continue;
		todo = local[i];
		slot_free(i);
	}
	rm_unlock();
	if (todo.release)
		todo.release(todo.arg);
	return todo.release;
}

void rm_memory_reap(void)
{
	while (reap_one())
		;
}

/* The descriptor is this process's own or inherited, or another process's, reached by /proc. */
int rm_memory_open(int memory, int flags)
{
	const struct rm_memory *m = &rm->memories[memory];
	char path[64];
	struct stat st;
	int fd = -1;

	for (int other = 0; other < 2 && fd < 0; other++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", other ? (int)m->pid : (int)getpid(),
			 m->fd);
		fd = sim_open_anyway(path, flags);
		if (fd >= 0 && (libc_calls()->fstat(fd, &st) || st.st_ino != m->ino)) {
			libc_calls()->close(fd);
			fd = -1;
		}
	}
	return fd;
}

static void close_foreign(void *arg)
{
	libc_calls()->close((int)(intptr_t)arg);
}

/*
 * cuMemExportToShareableHandle gives a descriptor of the memory itself here (machine.h), and a
 * control file with the object in the real driver. It is reopened for the importer.
 */
int rm_memory_of_foreign(int fd, size_t *size)
{
	struct sim_memfd info;
	int opened = sim_memfd_open(fd, &info), at;

	if (opened < 0)
		return 0;
	at = memory_new(info.device, opened, info.size, close_foreign, (void *)(intptr_t)opened);
	if (!at) {
		libc_calls()->close(opened);
		return 0;
	}
	rm->memories[at].ended = true; /* the importer alone needs it */
	rm->memories[at].refs = 1;
	*size = info.size;
	return at;
}
