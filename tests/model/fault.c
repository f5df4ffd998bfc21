// SPDX-License-Identifier: MIT
/* See fault.h. */
#define _GNU_SOURCE
#include "model/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rm.h"
#include "common/standin.h"
#include "common/unit.h"
#include "common/wrap.h"
#include "sim/node/gdrsim_node.h"

const char *const fault_names[FAULTS] = { "CUDA", "RM", "system", "node" };

const struct fault_result fault_results[FAULTS][FAULT_RESULTS] = {
	[FAULT_CUDA] = { { 999, EIO }, { 2, ENOMEM }, { 801, ENOTSUP }, { 201, EINVAL } },
	/* NV_STATUS: generic, no resources, no permission, invalid argument, not supported. */
	[FAULT_RM] = { { 0xffff, EIO }, { 0x1a, ENOMEM }, { 0x1b, EACCES }, { 0x1f, EINVAL },
		       { 0x56, ENOTSUP } },
	[FAULT_SYSTEM] = { { -1, ENOMEM } }, /* or the errno usual for the call (wrap.c) */
	[FAULT_NODE] = { { EIO, EIO }, { ENOMEM, ENOMEM } },
};

/* A refused call of the node is known by its name's count. */
static const char *const node_names[FAULT_NODE_CALLS] = { "PIN_BUFFER_V2", "UNPIN_BUFFER",
							  "MMAP", "GET_INFO_V2" };

static bool armed;
static enum fault at;
static const char *node_name;

static void *node_hook(const char *name)
{
	void *hook = dlsym(RTLD_DEFAULT, name);

	if (!hook)
		abort();
	return hook;
}

static void node_fail(const char *rule)
{
	__typeof__(&gdrsim_node_fail) set;

	*(void **)&set = node_hook("gdrsim_node_fail");
	set(rule);
}

static bool node_failed(void)
{
	__typeof__(&gdrsim_node_calls) calls;

	*(void **)&calls = node_hook("gdrsim_node_calls");
	return calls(node_name);
}

void fault_arm(enum fault where, unsigned long n, int result)
{
	char rule[64];

	armed = true;
	at = where;
	wrap_reset();
	switch (where) {
	case FAULT_CUDA:
		cuda_hooks.fail_nth(n, result);
		break;
	case FAULT_RM:
		rm_sim.fail_nth(n, result);
		break;
	case FAULT_NODE:
		armed = n <= COUNT(node_names);
		if (!armed)
			break;
		node_name = node_names[n - 1];
		snprintf(rule, sizeof(rule), "%s:1=%s", node_name,
			 result == ENOMEM ? "ENOMEM" : "EIO");
		node_fail(rule);
		break;
	default:
		wrap_fail_nth(n);
	}
}

const char *fault_disarm(void)
{
	static char copy[64];
	const char *name = !armed		 ? NULL
			   : at == FAULT_CUDA	 ? cuda_hooks.failed()
			   : at == FAULT_RM	 ? rm_sim.failed()
			   : at == FAULT_SYSTEM	 ? wrap_failed()
			   : node_failed()	 ? node_name
						 : NULL;

	/* The hooks forget it. */
	if (name)
		snprintf(copy, sizeof(copy), "%s", name);
	if (armed && at == FAULT_CUDA)
		cuda_hooks.fail_nth(0, 0);
	else if (armed && at == FAULT_RM)
		rm_sim.fail_nth(0, 0);
	else if (armed && at == FAULT_NODE)
		node_fail(NULL);
	else if (armed)
		wrap_reset();
	armed = false;
	return name ? copy : NULL;
}

bool is_end(const char *call)
{
	static const char *const ends[] = { "gdr_unmap",	     "gdr_unpin_buffer",
					    "gdr_close",	     "barcopy_unmap_range",
					    "barcopy_mem_free",	     "barcopy_cache_destroy",
					    "barcopy_queue_destroy", "barcopy_port_destroy" };

	for (size_t i = 0; i < COUNT(ends); i++)
		if (!strcmp(ends[i], call))
			return true;
	return false;
}

#define PIN	EINVAL, EOVERFLOW, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO
#define THE_END EINVAL, EACCES, ENOMEM, EIO /* ENOMEM: of munmap() */

bool errno_documented(const char *call, int err)
{
	static const struct {
		const char *call;
		int errnos[12];
	} all[] = {
		{ "gdr_open", { ENODEV, EACCES, EINVAL, ENOMEM, EMFILE, ENFILE, EIO } },
		{ "gdr_pin_buffer_v2", { PIN } },
		{ "gdr_map",
		  { EINVAL, EAGAIN, EACCES, ENODEV, ENOMEM, EMFILE, ENFILE, ENOTSUP, EIO } },
		{ "gdr_unmap", { THE_END } },
		{ "gdr_unpin_buffer", { THE_END } },
		{ "gdr_close", { THE_END } },
		{ "gdr_copy_to_mapping", { EINVAL, EACCES, EIO } },
		{ "gdr_copy_from_mapping", { EINVAL, EACCES, EIO } },
		{ "barcopy_map_range", { PIN } },
		{ "barcopy_unmap_range", { THE_END } },
		{ "barcopy_set_copy_options", { EINVAL, ENOTSUP, ENOMEM, EACCES, EIO } },
		{ "barcopy_cache_create", { EINVAL, ENOMEM, EACCES } },
		{ "barcopy_cache_get", { PIN } },
		{ "barcopy_cache_put", { EINVAL, EACCES } },
		{ "barcopy_cache_invalidate", { EINVAL, EACCES } },
		{ "barcopy_cache_trim", { EINVAL, EACCES } },
		{ "barcopy_cache_destroy", { EBUSY, THE_END } },
		{ "barcopy_mem_alloc",
		  { EINVAL, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO } },
		{ "barcopy_mem_free", { THE_END } },
		{ "barcopy_mem_export",
		  { EINVAL, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO } },
		{ "barcopy_port_create",
		  { EINVAL, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO } },
		{ "barcopy_port_stop", { EINVAL, EACCES } },
		{ "barcopy_port_destroy", { THE_END } },
		{ "barcopy_queue_create",
		  { EINVAL, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO } },
		{ "barcopy_queue_send", { EINVAL, EACCES, ETIMEDOUT, EPIPE } },
		{ "barcopy_queue_stop", { EINVAL, EACCES } },
		{ "barcopy_queue_destroy", { THE_END } },
		{ "barcopy_mem_import",
		  { EINVAL, ENOTSUP, ENOMEM, EMFILE, ENFILE, ENODEV, EACCES, EIO } },
	};
	size_t i = 0;

	while (i < sizeof(all) / sizeof(all[0]) && strcmp(all[i].call, call) != 0)
		i++;
	for (int k = 0; i < sizeof(all) / sizeof(all[0]) && all[i].errnos[k]; k++)
		if (all[i].errnos[k] == err)
			return true;
	return false;
}
