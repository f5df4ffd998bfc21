/* SPDX-License-Identifier: MIT */
/*
 * A backend is one table of operations for one kind of mapping. It knows nothing of handles, other
 * backends, or its callers. docs/internals/changes.md has the files that a further one needs.
 */
#ifndef GDRI_BACKEND_H
#define GDRI_BACKEND_H

#include <errno.h>
#include <sys/types.h>

#include "barcopy.h"
#include "cuda/cuda.h"
#include "base/counters.h"
#include "base/error.h"

#define GDRI_BACKENDS 4

enum gdri_backend_caps {
	GDRI_CAP_DEVICE_MEMORY = 1, /* serves ordinary device memory, as gdr_open() promises */
	GDRI_CAP_UNKNOWN_MEMORY = 2, /* checks addresses itself: CUDA need not know them */
	GDRI_CAP_TAKES_DMABUF = 4 /* maps a dma-buf that another process passed on */
};

/* Memory of another process, by a descriptor, which remains the caller's. */
struct gdri_imported {
	int fd;
	bool dmabuf; /* a dma-buf without a device address: addr and va are 0 */
	int device; /* ordinal of the memory's GPU; -1: unknown */
};

struct gdri_pin_request {
	uint64_t addr; /* as the caller gave it */
	size_t size;
	uint32_t flags; /* GDR_PIN_FLAG_* */
	bool mapped; /* the whole range is mapped for as long as it is pinned */
	uint64_t va; /* addr rounded down to 64 KiB */
	size_t mapped_size; /* from va to the end rounded up to 64 KiB */
	struct gdri_memory memory; /* CUDA is asked about it unless memory.known is set */
	/* Of all the memory; or NULL. CUDA exports no imported memory again (H200, driver 580). */
	const struct gdri_imported *imported;
};

static inline bool gdri_is_dmabuf(const struct gdri_pin_request *request)
{
	return request->imported && request->imported->dmabuf;
}

/*
 * A pinned range. backends.c sets backend, state, va, mapped_size, page_size, device and counters;
 * the backend's pin() sets the rest of the first part and may change va, mapped_size and page_size.
 */
struct gdri_pin {
	const struct gdri_backend *backend;
	uint64_t va;
	size_t mapped_size;
	uint32_t page_size;
	int device; /* CUDA ordinal; -1: unknown */
	bool persistent;
	gdr_mapping_type_t type; /* of a default map */
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	void *state; /* the backend's, in this context */
	union { /* the backend's own */
		void *priv;
		uint64_t handle;
		int fd;
	};
	struct gdri_counters *counters; /* the context's; NULL: none */

	/*
	 * While mapped. The caller sets map_length (whole host pages, at most mapped_size),
	 * read_only and map_type = type; map() sets map, copy_start, copy_end, or a map_type.
	 */
	void *map;
	size_t map_length;
	bool read_only;
	gdr_mapping_type_t map_type;
	uintptr_t copy_start, copy_end; /* bytes that copies may touch */
};

static inline void gdri_pin_mapped(struct gdri_pin *pin, void *map)
{
	pin->map = map;
	pin->copy_start = (uintptr_t)map; /* copies may touch all that is mapped */
	pin->copy_end = pin->copy_start + pin->map_length;
}

/* All operations return 0 or -errno with its text, unless noted. */
struct gdri_backend {
	const char *name; /* as in GDRCOPY_BACKEND */
	barcopy_backend_t id;
	uint32_t caps;

	/* Can it serve anything here? Cheap, without a trial map. */
	int (*open)(void **state);
	/*
	 * Can it serve ordinary device memory, as far as is known without a call of CUDA? NULL: yes.
	 * gdr_open() asks if no other backend opened that can.
	 */
	int (*decide)(void);
	void (*close)(void *state); /* or NULL */

	void (*driver_version)(void *state, int *major, int *minor); /* NULL: the library's */
	int (*attribute)(void *state, gdr_attr_t attr); /* the value, not negative; NULL: 0 each */

	int (*pin)(const struct gdri_pin_request *request, struct gdri_pin *pin);
	int (*unpin)(struct gdri_pin *pin); /* or NULL */
	/* wish: the type that the caller asks for, or GDR_MAPPING_TYPE_NONE. */
	int (*map)(struct gdri_pin *pin, gdr_mapping_type_t wish);
	int (*unmap)(struct gdri_pin *pin); /* or NULL */
	int (*callback_flag)(struct gdri_pin *pin, int *flag); /* NULL: never revoked */
};

/* Is it a lack of memory, BAR, address space or descriptors, which an eviction may cure? */
static inline bool gdri_is_short(int rc)
{
	return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
}

/* A context's. Written by gdri_backends_open() and _close(), constant between. */
struct gdri_backends {
	size_t count;
	const struct gdri_backend *of[GDRI_BACKENDS]; /* in the order in which they are tried */
	void *state[GDRI_BACKENDS]; /* by id - 1; owned by that backend */
	struct gdri_counters *counters; /* of their pins; set by the context */
};

extern const struct gdri_backend gdri_backend_gdrdrv;
extern const struct gdri_backend gdri_backend_dmabuf;
extern const struct gdri_backend gdri_backend_rm;
extern const struct gdri_backend gdri_backend_host;

/* ---- what backends share: mapping.c ---------------------------------------------------------- */

int gdri_check_range(uint64_t addr, size_t size); /* -EINVAL: size 0; -EOVERFLOW: wraps */
int gdri_pin_describe(struct gdri_pin_request *request); /* fails for what no backend can map */

/* Opens a node for gdri_fork_close(). -ENODEV (`absent`: why), -EACCES, a shortage's, or -EIO. */
int gdri_open_node(const char *path, const char *absent, int *fd);

/*
 * Maps length bytes of fd from offset on, in no child; at: replaces the pages there, or NULL.
 * Returns 0, -errno with its text, or mmap's positive errno. If *map is not MAP_FAILED, pages
 * remain: at `at` they always do, since a hole there could become another thread's.
 */
int gdri_pages_map(int fd, off_t offset, void *at, size_t length, int prot, void **map);

int gdri_pages_unmap(struct gdri_pin *pin); /* the unmap() of a mapping that is pages only */

/*
 * Can a word in every 2 MiB of the map be loaded, and its last word? Raises no signal. A driver
 * that makes page-table entries on fault, 2 MiB at a time, has then made all of them.
 */
bool gdri_pages_readable(const void *map, size_t length);

/* Lets the kernel load the 8 bytes at p: EINVAL if it can, EFAULT if not. Raises no signal. */
int gdri_load_errno(const void *p);

const char *gdri_mapping_type_name(gdr_mapping_type_t type); /* NULL: no type */

/* -ENOTSUP, unless wish is NONE or the mapping's type. */
int gdri_check_wish(const struct gdri_pin *pin, gdr_mapping_type_t wish);

/* ---- a context's: backends.c ----------------------------------------------------------------- */

/* Chooses and opens; any: BARCOPY_OPEN_ANY. 0 or -errno. */
int gdri_backends_open(struct gdri_backends *set, bool any);
void gdri_backends_close(struct gdri_backends *set);

/* Pins by the first backend that can; completes the request, and fills *pin. */
int gdri_backends_pin(struct gdri_backends *set, struct gdri_pin_request *request,
		      struct gdri_pin *pin);

/* The pin's operations, counted. */
int gdri_backends_unpin(struct gdri_pin *pin);
int gdri_backends_map(struct gdri_pin *pin, gdr_mapping_type_t wish);
int gdri_backends_unmap(struct gdri_pin *pin);
int gdri_backends_callback_flag(struct gdri_pin *pin, int *flag); /* *flag: has it been revoked? */

int gdri_backends_attribute(struct gdri_backends *set, gdr_attr_t attr, int *value);
int gdri_backends_driver_version(struct gdri_backends *set, int *major, int *minor);

#endif
