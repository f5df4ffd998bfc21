/* SPDX-License-Identifier: MIT */
/* The entry points of ports. Those of a port that exists take no lock of the context. */
#include "queue/port.h"

#include "base/struct_size.h"
#include "calls/calls.h"

int barcopy_port_create(gdr_t g, int device, const barcopy_port_options_t *options,
			barcopy_port_t *port)
{
	barcopy_port_options_t o = { 0 };
	struct gdri_ctx *ctx;
	int rc = 0;

	if (!port)
		rc = gdri_null("port");
	else if (options)
		rc = gdri_struct_in(&o, sizeof(o), FIRST_PORT_OPTIONS, options);
	if (!o.lines)
		o.lines = GDRI_PORT_LINES;
	if (!rc)
		rc = gdri_check_flags(o.flags, BARCOPY_PORT_MANUAL, "a port");
	if (!rc && (o.lines < GDRI_QUEUE_RING_MIN || o.lines > GDRI_QUEUE_RING_MAX ||
		    o.lines & (o.lines - 1)))
		rc = gdri_fail(EINVAL, "lines is %u: a port has a power of two from %d to %d",
			       o.lines, GDRI_QUEUE_RING_MIN, GDRI_QUEUE_RING_MAX);
	rc = rc ?: gdri_ctx_get(g, &ctx);
	return gdri_out(rc ?: gdri_ctx_put(ctx, gdri_port_create(ctx, device, &o, port)));
}

int barcopy_port_get_view(barcopy_port_t port, barcopy_port_view_t *view)
{
	const struct gdri_port *p = gdri_port_find(port);
	int rc = !p ? gdri_port_refuse(port) : view ? 0 : gdri_null("view");

	if (!rc)
		*view = p->view;
	return gdri_out(rc);
}

int barcopy_port_receive(barcopy_port_t port, barcopy_port_message_t *messages, uint32_t n,
			 uint32_t *count, uint64_t timeout_ns)
{
	struct gdri_port *p = gdri_port_find(port);

	if (__builtin_expect(!p || !messages || !count || !n, 0))
		return gdri_out(
			!p  ? gdri_port_refuse(port)
			: n ? gdri_null("messages or count")
			    : gdri_fail(EINVAL, "n is 0: the call receives at least one post"));
	return gdri_out(gdri_port_receive(p, messages, n, count, timeout_ns));
}

int barcopy_port_retire(barcopy_port_t port, uint64_t post, uint32_t n)
{
	struct gdri_port *p = gdri_port_find(port);

	return gdri_out(p ? gdri_port_retire(p, post, n) : gdri_port_refuse(port));
}

int barcopy_port_answer(barcopy_port_t port, const uint32_t *calls, const uint64_t *answers,
			uint32_t count)
{
	const struct gdri_port *p = gdri_port_find(port);

	if (!p || !calls || !answers)
		return gdri_out(p ? gdri_null("calls or answers") : gdri_port_refuse(port));
	return gdri_out(gdri_port_answer(p, calls, answers, count));
}

int barcopy_port_stop(barcopy_port_t port, uint32_t flags)
{
	struct gdri_port *p = gdri_port_find(port);
	int rc = p ? gdri_check_flags(flags, BARCOPY_PORT_ABORT, "a stop") : gdri_port_refuse(port);

	if (!rc)
		gdri_port_stop(p, flags);
	return gdri_out(rc);
}

int barcopy_port_end(barcopy_port_t port)
{
	struct gdri_port *p = gdri_port_find(port);

	if (p)
		gdri_port_end(p);
	return gdri_out(p ? 0 : gdri_port_refuse(port));
}

int barcopy_port_destroy(barcopy_port_t port)
{
	struct gdri_port *p = gdri_port_find(port);
	struct gdri_ctx *ctx;
	int rc = p ? gdri_ctx_get(atomic_load_explicit(&p->g, memory_order_acquire), &ctx)
		   : gdri_port_refuse(port);

	if (rc)
		return gdri_out(rc);
	if (gdri_slot_is(&p->slot, (uintptr_t)port))
		gdri_port_destroy(p);
	else
		rc = gdri_port_refuse(port);
	return gdri_out(gdri_ctx_put(ctx, rc));
}
