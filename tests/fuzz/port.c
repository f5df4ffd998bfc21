/* SPDX-License-Identifier: MIT */
/* A port whose kernel is hostile: any bytes in the ring, between any calls of the CPU. */
#include <stdlib.h>
#include <string.h>

#include "queue/port.h"
#include "tests/common/standin.h"

enum { LINES = 16, HEAD = 4, STEP = 12 };

static barcopy_port_t port_of(uint32_t flags)
{
	const barcopy_port_options_t options = { sizeof(options), .lines = LINES, .flags = flags };
	barcopy_port_t port;

	standin_start();
	if (barcopy_port_create(gdr_open(), 0, &options, &port))
		abort();
	return port;
}

/* The header and the seven words of a line arrive whole, in this lap. */
static void arrive(const struct gdri_port *p, uint64_t line)
{
	uint64_t lap = ((line >> p->ring.shift) + 1) & BARCOPY_QUEUE_LAP_MASK;
	char *at = p->ring.incoming + line % LINES * GDRI_LINE;

	for (int i = 0; i < 8; i++) {
		uint64_t word;

		memcpy(&word, at + 8 * i, 8);
		word &= ~((uint64_t)BARCOPY_QUEUE_LAP_MASK << BARCOPY_QUEUE_DATA_BITS);
		word |= lap << BARCOPY_QUEUE_DATA_BITS;
		memcpy(at + 8 * i, &word, 8);
	}
}

/* Nothing lies behind what the calls may write: neither messages nor counts. */
static void receive(barcopy_port_t port, struct gdri_port *p, uint32_t n, uint32_t *call)
{
	barcopy_port_message_t *m = malloc((n + !n) * sizeof(*m));
	uint64_t before = p->received;
	uint32_t count = 0;
	int rc = barcopy_port_receive(port, m, n, &count, 0);

	if (rc ? count : count > n || p->received - before < count)
		abort();
	if (p->received - before > LINES || (p->manual && p->received - p->retired > LINES))
		abort();
	for (uint32_t i = 0; i < count; i++) {
		if (m[i].size > BARCOPY_QUEUE_LINE)
			abort();
		*call = m[i].call ? m[i].call : *call;
	}
	free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static barcopy_port_t ports[2];
	barcopy_port_t port;
	struct gdri_port *p;
	uint32_t call = 0;

	if (size < HEAD)
		return 0;
	if (!ports[0]) {
		ports[0] = port_of(0);
		ports[1] = port_of(BARCOPY_PORT_MANUAL);
	}
	port = ports[data[0] & 1];
	p = gdri_ring_find(&gdri_ports, port);
	p->received = p->retired = p->shown = data[1] | (uint64_t)data[2] << 40;
	p->ended = data[3] & 1;
	memset(p->ring.incoming, 0, LINES * GDRI_LINE);
	memset(p->open, 0, LINES * (sizeof(*p->open) + sizeof(*p->done)));
	/* Steps: what, how many, and up to ten bytes that the kernel stores somewhere in the ring. */
	for (data += HEAD, size -= HEAD; size >= STEP; data += STEP, size -= STEP) {
		uint64_t answer = data[3], received = p->received;
		uint32_t n = data[1] % (LINES + 2), calls[2] = { call, data[2] };

		/* Within the lap of free lines: no line that is received and not retired. */
		for (uint64_t i = received;
		     i - p->retired < LINES && i < received + data[1] % LINES; i++) {
			memcpy(p->ring.incoming + i % LINES * GDRI_LINE + data[2] % 7 * 8, data + 4,
			       8);
			if (data[0] & 0x80)
				arrive(p, i);
		}
		switch (data[0] % 4) {
		case 0:
			receive(port, p, n, &call);
			break;
		case 1:
			(void)barcopy_port_retire(port, p->retired + data[2] % 4, n);
			break;
		case 2:
			(void)barcopy_port_answer(port, calls, (uint64_t[]){ answer, 1 },
						  data[3] % 3);
			break;
		default:
			(void)barcopy_port_stop(port, data[2] & BARCOPY_PORT_ABORT);
			break;
		}
		if (p->retired > p->received || p->shown > p->retired)
			abort();
	}
	return 0;
}
