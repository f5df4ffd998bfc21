/* SPDX-License-Identifier: MIT */
/*
 * What a backend is: one table of operations. A backend knows how to get at one kind
 * of mapping; it knows nothing of handles, of other backends, or of who calls.
 *
 * To add one: a file with its table, a line in backends.c, a barcopy_backend_t.
 */
#ifndef GDRI_BACKEND_H
#define GDRI_BACKEND_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuda/cuda.h"
#include "barcopy.h"
#include "base/counters.h"

#define GDRI_BACKENDS 4

/* Capabilities, looked at by gdri_backends_pin() and the attribute calls. */
enum gdri_backend_caps {
	GDRI_CAP_DEVICE_MEMORY = 1, /* serves ordinary device memory, as gdr_open() promises */
	GDRI_CAP_UNKNOWN_MEMORY = 2, /* judges addresses itself, so CUDA need not know them */
	GDRI_CAP_TAKES_DMABUF = 4 /* maps a dma-buf that another process handed over */
};

/* Memory that another process handed over as a descriptor, which stays the caller's. */
struct gdri_imported {
	int fd;
	bool dmabuf; /* a dma-buf: no device address stands for it here, addr and va are 0 */
	int device; /* ordinal of the GPU that the memory is on; -1 where not known */
};

/* What is to be pinned. */
struct gdri_pin_request {
	uint64_t addr; /* as the caller gave it */
	size_t size;
	uint32_t flags; /* GDR_PIN_FLAG_* */
	bool mapped; /* all of it as long as it is pinned */
	uint64_t va; /* addr rounded down to 64 KiB */
	size_t mapped_size; /* from va to the end, rounded up to 64 KiB */
	struct gdri_memory memory; /* what CUDA says of it */
	/*
	 * The descriptor of all of this memory, if it is another process's; else NULL. CUDA does not
	 * export imported memory again (H200, driver 580, 2026-11-20): whoever imported it still has it.
	 */
	const struct gdri_imported *imported;
};

static inline bool gdri_is_dmabuf(const struct gdri_pin_request *request)
{
	return request->imported && request->imported->dmabuf;
}

/*
 * A pinned range. The caller sets backend, state, va, mapped_size, page_size and device;
 * the backend's pin() the rest of the first part and may change page_size.
 */
struct gdri_pin {
	const struct gdri_backend *backend;
	uint64_t va;
	size_t mapped_size;
	uint32_t page_size;
	int device; /* CUDA ordinal, -1 where not known */
	bool persistent;
	gdr_mapping_type_t type; /* of a default map */
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	void *state; /* of the backend in this context */
	union { /* the backend's own */
		void *priv;
		uint64_t handle;
		int fd;
	};

	/* Kept by pin.c. */
	struct gdri_counters
		*counters; /* of its context; NULL: none, as in a test of a backend alone */

	/*
	 * While mapped. The caller sets map_length (a multiple of the host page, at most
	 * mapped_size) and map_type = type; map() sets map, copy_start and copy_end and may
	 * change map_type.
	 */
	void *map;
	size_t map_length;
	bool read_only; /* set by the caller: the map is not to be written */
	gdr_mapping_type_t map_type;
	uintptr_t copy_start, copy_end; /* bytes that copies may touch */
};

/* The whole of what is mapped is what copies may touch. */
static inline void gdri_pin_mapped(struct gdri_pin *pin, void *map)
{
	pin->map = map;
	pin->copy_start = (uintptr_t)map;
	pin->copy_end = pin->copy_start + pin->map_length;
}

/*
 * All return 0 or -errno with its text set, unless noted. NULL, where noted: for a backend that has
 * nothing of its own there; whoever calls it knows.
 */
struct gdri_backend {
	const char *name; /* as in GDRCOPY_BACKEND */
	barcopy_backend_t id;
	uint32_t caps;

	/*
	 * Can it serve anything here? Cheap: no trial. decides: whether gdr_open() succeeds rests on
	 * it alone, so it must be able to serve ordinary device memory, as far as that is known without
	 * a context; CUDA may be initialised to ask.
	 */
	int (*open)(bool decides, void **state);
	void (*close)(void *state); /* or NULL */

	int (*driver_version)(void *state, int *major, int *minor); /* or NULL: the library's */

	/* The value of a gdr_attr_t, never negative; NULL: 0 each. */
	int (*attribute)(void *state, gdr_attr_t attr);

	int (*pin)(void *state, const struct gdri_pin_request *request, struct gdri_pin *pin);
	int (*unpin)(struct gdri_pin *pin); /* or NULL */
	/* wish: the type asked for, or GDR_MAPPING_TYPE_NONE. */
	int (*map)(struct gdri_pin *pin, gdr_mapping_type_t wish);
	int (*unmap)(struct gdri_pin *pin); /* or NULL */
	int (*callback_flag)(struct gdri_pin *pin, int *flag); /* NULL: never revoked */

	/*
	 * A descriptor, the backend's, with POLLPRI while a revoked range is pinned; see gdrapi.h.
	 * NULL like callback_flag.
	 */
	int (*event_fd)(void *state, int *fd);
};

/* Is the failure one that room would mend: memory, BAR, address space, descriptors? */
static inline bool gdri_is_short(int rc)
{
	return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
}

/* Those of a context. Written by gdri_backends_open() and _close(), constant between. */
struct gdri_backends {
	size_t count;
	const struct gdri_backend *of[GDRI_BACKENDS]; /* in order of trial */
	void *state[GDRI_BACKENDS]; /* by id - 1; owned by that backend */
	struct gdri_counters *counters; /* what is done with pins is counted there */
};

/* What one of them says of an attribute. */
static inline int gdri_backends_ask(const struct gdri_backends *set, const struct gdri_backend *b,
				    gdr_attr_t attr)
{
	return b->attribute ? b->attribute(set->state[b->id - 1], attr) : 0;
}

extern const struct gdri_backend gdri_backend_gdrdrv;
/* The same node, pins by dma-buf alone; for GDRCOPY_BACKEND, never tried unasked. */
extern const struct gdri_backend gdri_backend_gdrdrv_dmabuf;
extern const struct gdri_backend gdri_backend_dmabuf;
extern const struct gdri_backend gdri_backend_rm;
extern const struct gdri_backend gdri_backend_host;

/* ---- what backends share: request.c, mmap.c, type.c ------------------------------------------ */

/* Completes a request for an address; refuses at once what no backend can serve. */
int gdri_pin_describe(struct gdri_pin_request *request);

/*
 * Maps length bytes of fd from offset on, which no child inherits; at: in place of what is there,
 * or NULL. 0; -errno with its text; or mmap's positive errno, for its caller to say what it means.
 * No page is there only where *map is MAP_FAILED; at `at` they stay, as a hole could be somebody
 * else's next.
 */
int gdri_pages_map(int fd, off_t offset, void *at, size_t length, int prot, void **map);

/* The unmap() of a pin whose map is nothing but pages. */
int gdri_pages_unmap(struct gdri_pin *pin);

/*
 * Whether one word in every 2 MiB of [map, map + length), and its last one, can be loaded, asked
 * without the risk of a signal. A driver that makes its page-table entries on fault, 2 MiB at a
 * time, has made them all then.
 */
bool gdri_pages_readable(const void *map, size_t length);

/* NULL for what is none. */
const char *gdri_mapping_type_name(gdr_mapping_type_t type);

/* -ENOTSUP with a text, unless wish is NONE or what the mapping is. */
int gdri_check_wish(const struct gdri_pin *pin, gdr_mapping_type_t wish);

/* Chooses and opens; any: BARCOPY_OPEN_ANY. counters is the caller's to set. Returns 0 or -errno. */
int gdri_backends_open(struct gdri_backends *set, bool any);
void gdri_backends_close(struct gdri_backends *set);

/* Pins by the first backend that can; fills request->va, mapped_size, memory, and *pin. */
int gdri_backends_pin(struct gdri_backends *set, struct gdri_pin_request *request,
		      struct gdri_pin *pin);

/* The pin's operations, counted. */
int gdri_backends_unpin(struct gdri_pin *pin);
int gdri_backends_map(struct gdri_pin *pin, gdr_mapping_type_t wish);
int gdri_backends_unmap(struct gdri_pin *pin);
/* Has it been revoked? */
int gdri_backends_callback_flag(struct gdri_pin *pin, int *flag);

/* See gdr_get_attribute() and gdr_driver_get_version(). */
int gdri_backends_attribute(struct gdri_backends *set, gdr_attr_t attr);
int gdri_backends_driver_version(struct gdri_backends *set, int *major, int *minor);

/* The event descriptor of the first backend that has one; -ENOTSUP where none has. */
int gdri_backends_event_fd(struct gdri_backends *set, int *fd);

#endif
