// SPDX-License-Identifier: MIT
/* One call of CUDA, of the resource manager, of the gdrdrv node or of the system fails inside a call. */
#include <stdlib.h>
#include <string.h>

#include "common/wrap.h"
#include "model/fault.h"
#include "model/model.h"

static bool met;
static time_t second =
	1000; /* at which the clock stands: a failed trial is repeated a second later */

void faults_start(void)
{
	wrap_clock(second);
}

void fault_maybe(void)
{
	unsigned int kind = below(4), n = 1 + below(below(2) ? 4 : 14), code = below(20);
	enum fault where = FAULT_SYSTEM;
	int results = 0;

	met = false;
	if (below(4) || getenv("MODEL_NO_FAULTS"))
		return;
	if (kind == 0 && !w.machine->gpu)
		where = FAULT_CUDA;
	else if (kind == 1 && w.machine->backend == BARCOPY_BACKEND_RM && !w.machine->gpu)
		where = FAULT_RM;
	else if (kind == 1 && w.machine->backend == BARCOPY_BACKEND_GDRDRV)
		where = FAULT_NODE;
	while (results < FAULT_RESULTS && fault_results[where][results].result)
		results++;
	if (where == FAULT_NODE)
		n = 1 + n % FAULT_NODE_CALLS;
	fault_arm(where, n, fault_results[where][code % (unsigned int)results].result);
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

static bool is_owed(const char *call, int rc)
{
	if (!owed || !is_end(call) || (rc != ENOMEM && rc != EIO))
		return false;
	owed--;
	return true;
}

bool worked(const char *call, int rc, int wanted)
{
	const char *failed = fault_disarm();
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
