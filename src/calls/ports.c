/* SPDX-License-Identifier: MIT */
/* The entry points of ports. Those of a port that exists take no lock of the context. */
#include "queue/port.h"

#include "base/struct_size.h"
#include "calls/calls.h"

int barcopy_port_create(gdr_t g, int device, const barcopy_port_options_t *options,
			barcopy_port_t *port)
{
	barcopy_port_options_t o = { 0 };
	void *name;
	int rc = port ? 0 : gdri_null("port");

	if (!rc && options)
		rc = gdri_struct_in(&o, sizeof(o), FIRST_PORT_OPTIONS, options);
	rc = rc ?: gdri_check_flags(o.flags, BARCOPY_PORT_MANUAL, "a port");
	rc = rc ?: gdri_ring_create(g, &gdri_port_kind, device, o.lines, &o, &name);
	if (!rc)
		*port = name;
	return gdri_out(rc);
}

int barcopy_port_get_view(barcopy_port_t port, barcopy_port_view_t *view)
{
	const struct gdri_port *p = gdri_ring_find(&gdri_ports, port);
	int rc = !p ? gdri_ring_refuse(port, &gdri_port_kind) : view ? 0 : gdri_null("view");

	if (!rc)
		*view = p->view;
	return gdri_out(rc);
}

int barcopy_port_receive(barcopy_port_t port, barcopy_port_message_t *messages, uint32_t n,
			 uint32_t *count, uint64_t timeout_ns)
{
	struct gdri_port *p = gdri_ring_find(&gdri_ports, port);

	if (__builtin_expect(!p || !messages || !count || !n, 0))
		return gdri_out(
			!p  ? gdri_ring_refuse(port, &gdri_port_kind)
			: n ? gdri_null("messages or count")
			    : gdri_fail(EINVAL, "n is 0: the call receives at least one post"));
	return gdri_out(gdri_port_receive(p, messages, n, count, timeout_ns));
}

int barcopy_port_retire(barcopy_port_t port, uint64_t post, uint32_t n)
{
	struct gdri_port *p = gdri_ring_find(&gdri_ports, port);

	return gdri_out(p ? gdri_port_retire(p, post, n) : gdri_ring_refuse(port, &gdri_port_kind));
}

int barcopy_port_answer(barcopy_port_t port, const uint32_t *calls, const uint64_t *answers,
			uint32_t count)
{
	const struct gdri_port *p = gdri_ring_find(&gdri_ports, port);

	if (!p || !calls || !answers)
		return gdri_out(p ? gdri_null("calls or answers")
				  : gdri_ring_refuse(port, &gdri_port_kind));
	return gdri_out(gdri_port_answer(p, calls, answers, count));
}

int barcopy_port_stop(barcopy_port_t port, uint32_t flags)
{
	return gdri_out(gdri_ring_stop(&gdri_port_kind, port, flags, BARCOPY_PORT_ABORT));
}

int barcopy_port_end(barcopy_port_t port)
{
	return gdri_out(gdri_ring_stop(&gdri_port_kind, port, GDRI_RING_END, GDRI_RING_END));
}

int barcopy_port_destroy(barcopy_port_t port)
{
	return gdri_out(gdri_ring_destroy(&gdri_port_kind, port));
}
