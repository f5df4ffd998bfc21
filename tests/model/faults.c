// SPDX-License-Identifier: MIT
/* One call of CUDA, of the resource manager, of the gdrdrv node or of the system fails inside a call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "attack/life.h"
#include "common/rm.h"
#include "common/wrap.h"
#include "model/model.h"
#include "sim/node/gdrsim_node.h"

static enum { NONE, CUDA_CALL, RM_CALL, SYSTEM_CALL, NODE_CALL } armed;
static bool met;
static time_t second =
	1000; /* at which the clock stands: a failed trial is repeated a second later */
static __typeof__(&gdrsim_node_fail) node_faults;
static __typeof__(&gdrsim_node_calls) node_calls;
static const char *node_rule;

/* A refused call of the node is known by its name's count. */
static const char *const node_names[] = { "PIN_BUFFER", "UNPIN_BUFFER", "MMAP", "GET_INFO" };

void faults_start(void)
{
	void *fail = dlsym(RTLD_DEFAULT, "gdrsim_node_fail");
	void *calls = dlsym(RTLD_DEFAULT, "gdrsim_node_calls");

	memcpy(&node_faults, &fail, sizeof(fail));
	memcpy(&node_calls, &calls, sizeof(calls));
	wrap_clock(second);
}

void fault_maybe(void)
{
	static const int cuda_codes[] = { 999, 2, 801, 201 };
	static const int rm_codes[] = { 0xffff, 0x1a, 0x1b, 0x1f, 0x56 };
	unsigned int kind = below(4), n = 1 + below(below(2) ? 4 : 14), code = below(20);
	char rule[64];

	met = false;
	armed = NONE;
	if (below(4) || getenv("MODEL_NO_FAULTS"))
		return;
	wrap_reset();
	if (kind == 0 && !w.machine->gpu) {
		armed = CUDA_CALL;
		cuda_hooks.fail_nth(n, cuda_codes[code % COUNT(cuda_codes)]);
	} else if (kind == 1 && w.machine->backend == BARCOPY_BACKEND_RM && !w.machine->gpu) {
		armed = RM_CALL;
		rm_sim.fail_nth(n, rm_codes[code % COUNT(rm_codes)]);
	} else if (kind == 1 && w.machine->backend == BARCOPY_BACKEND_GDRDRV) {
		armed = NODE_CALL;
		node_rule = node_names[code % COUNT(node_names)];
		snprintf(rule, sizeof(rule), "%s:1=%s", node_rule, n % 2 ? "ENOMEM" : "EIO");
		node_faults(rule);
	} else {
		armed = SYSTEM_CALL;
		wrap_fail_nth(n);
	}
}

/* The name of the call that failed; NULL: none did. */
static const char *disarm(void)
{
	static char copy[64];
	const char *name = NULL;

	if (armed == CUDA_CALL) {
		name = cuda_hooks.failed();
	} else if (armed == RM_CALL) {
		name = rm_sim.failed();
	} else if (armed == NODE_CALL) {
		name = node_calls(node_rule) ? node_rule : NULL;
	} else if (armed == SYSTEM_CALL) {
		name = wrap_failed();
	}
	if (name)
		snprintf(copy, sizeof(copy), "%s", name);
	if (armed == CUDA_CALL)
		cuda_hooks.fail_nth(0, 0);
	else if (armed == RM_CALL)
		rm_sim.fail_nth(0, 0);
	else if (armed == NODE_CALL)
		node_faults(NULL);
	else if (armed == SYSTEM_CALL)
		wrap_reset();
	armed = NONE;
	return name ? copy : NULL;
}

/* What the thread has of CUDA's, which the failed call was to put back. */
static void put_back(void)
{
	CUstreamCaptureMode mode = 0;
	CUcontext ctx;

	while (!cuda.cuCtxPopCurrent_v2(&ctx))
		;
	CU(cuda.cuCtxSetCurrent(w.current));
	cuda.cuThreadExchangeStreamCaptureMode(&mode);
}

bool fault_met(void)
{
	return met;
}

/* Without a fault, and with good arguments. */
static bool is_lawful(int rc)
{
	if (rc == ENOMEM)
		return w.machine->small;
	/* CUDA exports no pages of which freed memory is the begin. */
	return rc == EINVAL && w.machine->backend == BARCOPY_BACKEND_DMABUF &&
	       strstr(barcopy_last_error(), "cuMemGetHandleForAddressRange");
}

/*
 * What a call of a cache could not unpin the cache's end returns, or the close. So many such calls
 * may have been; each is returned once at most.
 */
static unsigned int owed;

static bool is_end(const char *call)
{
	static const char *const ends[] = { "gdr_unmap", "gdr_unpin_buffer", "gdr_close",
					    "barcopy_unmap_range", "barcopy_mem_free",
					    "barcopy_cache_destroy" };

	for (size_t i = 0; i < COUNT(ends); i++)
		if (!strcmp(ends[i], call))
			return true;
	return false;
}

static bool is_owed(const char *call, int rc)
{
	if (!owed || !is_end(call) || (rc != ENOMEM && rc != EIO))
		return false;
	owed--;
	return true;
}

bool worked(const char *call, int rc, int wanted)
{
	const char *failed = disarm();
	CUcontext current;

	met = failed != NULL;
	say("%s = %d%s%s%s", call, rc, met ? " (" : "", met ? failed : "", met ? " fails)" : "");
	if (met) {
		/* An end that returns no failure has left nothing behind. */
		if (rc || !is_end(call))
			left_behind(failed);
		owed += !rc && !is_end(call);
		put_back();
		second += 2;
		wrap_clock(second);
		MUST(rc || !wanted, "%s succeeds, where errno %d must be", call, wanted);
	} else if (rc && !wanted && (is_lawful(rc) || is_owed(call, rc))) {
		return false;
	} else {
		MUST(rc == wanted, "%s: errno %d instead of %d", call, rc, wanted);
		CU(cuda.cuCtxGetCurrent(&current));
		MUST(current == w.current, "%s changes the current context", call);
	}
	if (rc) {
		MUST(errno_documented(call, rc), "%s does not document errno %d", call, rc);
		MUST(*barcopy_last_error(), "%s fails without a text", call);
	}
	return !rc;
}
