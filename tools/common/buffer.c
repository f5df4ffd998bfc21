/* SPDX-License-Identifier: MIT */
/* See buffer.h. */
#include "buffer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exit.h"

#define OTHER_MEMORY " (-a cuMemCreate and -a cuMemHostAlloc take other memory)"

const char *lib_error_text(int error)
{
	const char *text = barcopy_last_error();

	return text && *text ? text : strerror(error);
}

void lib_must(int error, const char *call)
{
	if (error)
		tool_fail("%s: %s", call, lib_error_text(error));
}

static gdr_t open_library(const char *call, gdr_t (*opens)(void), const char *more)
{
	gdr_t g = opens();
	int error = errno;

	if (!g && getenv("GDRCOPY_BACKEND"))
		tool_cannot("%s; unset GDRCOPY_BACKEND", lib_error_text(error));
	if (!g)
		tool_cannot("%s: %s; gdrcopy_doctor reports what to do%s", call,
			    lib_error_text(error), more);
	return g;
}

static gdr_t open_any(void)
{
	return barcopy_open(BARCOPY_OPEN_ANY);
}

gdr_t buffer_open_library(void)
{
	return open_library("barcopy_open(BARCOPY_OPEN_ANY)", open_any, "");
}

int buffer_pin(struct buffer *b, uint32_t pin_flags, int map_flags, char *why, size_t why_size)
{
	int rc =
		gdr_pin_buffer_v2(b->g, (unsigned long)b->mem.dptr, b->mem.size, pin_flags, &b->mh);

	if (rc) {
		snprintf(why, why_size, "pin: %s", lib_error_text(rc));
		return rc;
	}
	rc = gdr_get_info(b->g, b->mh, &b->info);
	b->map_size = b->info.mapped_size;
	if (!rc)
		rc = gdr_map_v2(b->g, b->mh, &b->map, b->map_size, map_flags);
	if (!rc)
		rc = gdr_get_info(b->g, b->mh, &b->info); /* with the mapping's type */
	if (rc) {
		snprintf(why, why_size, "map: %s", lib_error_text(rc));
		gdr_unpin_buffer(b->g, b->mh); /* unmaps too */
		return rc;
	}
	b->cpu = (uint8_t *)b->map + (b->mem.dptr - b->info.va);
	return 0;
}

int buffer_make(struct buffer *b, gdr_t g, const struct gpu *gpu, enum mem_kind kind, size_t size,
		int map_flags, char *why, size_t why_size)
{
	struct buffer n = { .g = g, .place = "GPU memory", .sync_memops = -1 };
	bool write_combined = map_flags == GDR_MAP_FLAG_REQ_WC_MAPPING;
	uint64_t v;
	int rc = mem_alloc(&n.mem, gpu, kind, size, write_combined, why, why_size);

	if (rc)
		return rc;
	rc = buffer_pin(&n, GDR_PIN_FLAG_DEFAULT, map_flags, why, why_size);
	if (rc) {
		mem_free(&n.mem);
		return -rc;
	}
	if (!barcopy_get_handle_attribute(g, n.mh, BARCOPY_HANDLE_ATTR_BACKEND, &v))
		n.backend = v;
	if (n.backend == BARCOPY_BACKEND_HOST)
		n.place = gpu_has(gpu, CU_DEVICE_ATTRIBUTE_INTEGRATED)
				  ? "memory that CPU and GPU share"
				  : "host memory";
	if (!barcopy_get_handle_attribute(g, n.mh, BARCOPY_HANDLE_ATTR_SYNC_MEMOPS, &v))
		n.sync_memops = (int)v;
	*b = n;
	return 0;
}

void buffer_unpin(struct buffer *b)
{
	lib_must(gdr_unmap(b->g, b->mh, b->map, b->map_size), "gdr_unmap");
	lib_must(gdr_unpin_buffer(b->g, b->mh), "gdr_unpin_buffer");
	b->map = NULL;
	b->cpu = NULL;
}

void buffer_unmake(struct buffer *b)
{
	if (b->map)
		buffer_unpin(b);
	mem_free(&b->mem);
}

void buffer_open(struct buffer *b, const struct gpu *gpu, int kind, size_t size, int map_flags)
{
	bool integrated = gpu_has(gpu, CU_DEVICE_ATTRIBUTE_INTEGRATED);
	char why[1024], note[sizeof(b->note)] = "";
	gdr_t g;
	int rc;

	if (kind != ALLOC_ANY) {
		g = buffer_open_library();
		rc = buffer_make(b, g, gpu, (enum mem_kind)kind, size, map_flags, why, sizeof(why));
		if (rc)
			tool_cannot("%zu byte%s of %s memory: %s; %s", size, plural(size),
				    mem_kind_name[kind], why,
				    rc == -ENOMEM ? "take a smaller size"
						  : "gdrcopy_doctor reports which memory can be "
						    "reached");
		return;
	}
	if (integrated)
		g = buffer_open_library();
	else
		g = open_library("gdr_open() fails, programs fall back to other copies", gdr_open,
				 OTHER_MEMORY);
	for (int k = 0; k < (integrated ? MEM_KINDS : 1); k++) {
		rc = buffer_make(b, g, gpu, (enum mem_kind)k, size, map_flags, why, sizeof(why));
		if (!rc) {
			memcpy(b->note, note, sizeof(note));
			return;
		}
		snprintf(note + strlen(note), sizeof(note) - strlen(note), "%s%s memory: %s",
			 *note ? "; " : "", mem_kind_name[k], why);
		/* another kind helps only where this one as such is refused */
		if (rc == -ENOMEM)
			tool_cannot("%zu byte%s of %s; take a smaller size", size, plural(size),
				    note);
		if (rc != -ENOTSUP && rc != -ENODEV && rc != -EPERM && rc != -EACCES)
			break;
	}
	tool_cannot("no GPU memory can be reached: %s; gdrcopy_doctor reports what to do%s", note,
		    OTHER_MEMORY);
}

void buffer_close(struct buffer *b)
{
	buffer_unmake(b);
	lib_must(gdr_close(b->g), "gdr_close");
}

const char *backend_name(uint64_t backend)
{
	static const char *const name[] = {
		[BARCOPY_BACKEND_GDRDRV] = "gdrdrv",
		[BARCOPY_BACKEND_DMABUF] = "dmabuf",
		[BARCOPY_BACKEND_RM] = "rm",
		[BARCOPY_BACKEND_HOST] = "host",
	};

	return backend < ARRAY_SIZE(name) && name[backend] ? name[backend] : "unknown";
}

const char *mapping_name(gdr_mapping_type_t type)
{
	const char *name = "unknown";

	gdr_get_mapping_type_string(type, &name);
	return name;
}
