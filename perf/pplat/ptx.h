/* SPDX-License-Identifier: MIT */
/*
 * The two kernels of pplat, as PTX that the driver compiles for its GPU: no CUDA compiler is
 * needed. The first waits for the CPU and answers, the second begins each round and waits for the
 * CPU.
 *
 * All blocks poll the same ping. Each block has its own pong and status word and its own part of
 * the data: thread t of block b handles word b * threads + t, then every word that lies a multiple
 * of the total number of threads further on.
 *
 * Volatile accesses of global memory have system scope, and membar.sys orders them for the CPU too
 * (PTX ISA, "Memory Consistency Model"). Thread 0 polls. A barrier then orders the ping before the
 * other threads' accesses; another orders their answers before the pong. Without a message thread 0
 * is alone and needs neither barriers nor fences, each of which costs about a microsecond. The
 * kernel reads the clock and compares with the stop word once in 256 polls.
 */
#ifndef PERF_PPLAT_PTX_H
#define PERF_PPLAT_PTX_H

/* The start of both: the thread's and the block's numbers, and the addresses of their words. */
#define PPLAT_START \
	"{\n" \
	"	.reg .pred %is_first, %has_data, %p;\n" \
	"	.reg .b32 %me, %threads, %block, %stride, %mine, %words, %rounds, %round;\n" \
	"	.reg .b32 %seen, %from, %to, %go, %i, %v;\n" \
	"	.reg .b64 %ping, %pong, %status, %data, %other, %timeout, %start, %now, %at;\n" \
	"	.shared .align 4 .u32 go;\n" \
	"	ld.param.u64 %ping, [p_ping];\n	ld.param.u64 %pong, [p_pong];\n" \
	"	ld.param.u64 %status, [p_status];\n	ld.param.u64 %data, [p_data];\n" \
	"	ld.param.u64 %other, [p_other];\n	ld.param.u32 %words, [p_words];\n" \
	"	ld.param.u32 %rounds, [p_rounds];\n	ld.param.u64 %timeout, [p_timeout_ns];\n" \
	"	cvta.to.global.u64 %ping, %ping;\n	cvta.to.global.u64 %pong, %pong;\n" \
	"	cvta.to.global.u64 %status, %status;\n	cvta.to.global.u64 %data, %data;\n" \
	"	cvta.to.global.u64 %other, %other;\n" \
	"	mov.u32 %me, %tid.x;\n	mov.u32 %threads, %ntid.x;\n" \
	"	mov.u32 %block, %ctaid.x;\n	mov.u32 %stride, %nctaid.x;\n" \
	"	mul.lo.u32 %stride, %stride, %threads;\n" \
	"	mad.lo.u32 %mine, %block, %threads, %me;\n" \
	"	mul.wide.u32 %at, %block, 4;\n" \
	"	add.u64 %pong, %pong, %at;\n" \
	"	add.u64 %status, %status, %at;\n" \
	"	setp.eq.u32 %is_first, %me, 0;\n" \
	"	setp.ne.u32 %has_data, %words, 0;\n" \
	"	or.pred %p, %is_first, %has_data;\n" \
	"	@!%p bra END;\n" \
	"	mov.u32 %round, 1;\n" \
	"NEXT:\n" \
	"	setp.gt.u32 %p, %round, %rounds;\n" \
	"	@%p bra END;\n"

/* Polls the ping; jumps to SEEN when it comes. Falls through on the timeout or the stop word. */
#define PPLAT_POLL \
	"	mov.u64 %start, %globaltimer;\n" \
	"	mov.u32 %i, 0;\n" \
	"POLL:\n" \
	"	ld.volatile.global.u32 %seen, [%ping];\n" \
	"	setp.eq.u32 %p, %seen, %round;\n" \
	"	@%p bra SEEN;\n" \
	"	add.u32 %i, %i, 1;\n" \
	"	setp.lt.u32 %p, %i, 256;\n" \
	"	@%p bra POLL;\n" \
	"	mov.u32 %i, 0;\n" \
	"	setp.eq.u32 %p, %seen, 0xffffffff;\n" \
	"	@%p bra STOP;\n" \
	"	mov.u64 %now, %globaltimer;\n" \
	"	sub.u64 %now, %now, %start;\n" \
	"	setp.lt.u64 %p, %now, %timeout;\n" \
	"	@%p bra POLL;\n" \
	"STOP:\n" \
	"	@!%has_data bra END;\n" \
	"	mov.u32 %go, 0;\n" \
	"	st.volatile.shared.u32 [go], %go;\n" \
	"	bra JOIN;\n"

/* Thread 0 has seen the ping: the other threads go on, or end with it if it has not. */
#define PPLAT_JOIN \
	"	membar.sys;\n" \
	"	mov.u32 %go, 1;\n" \
	"	st.volatile.shared.u32 [go], %go;\n" \
	"JOIN:\n" \
	"	bar.sync 0;\n" \
	"	ld.volatile.shared.u32 %go, [go];\n" \
	"	setp.eq.u32 %p, %go, 0;\n" \
	"	@%p bra END;\n"

#define PPLAT_END \
	"DONE:\n" \
	"	add.u32 %round, %round, 1;\n" \
	"	bra NEXT;\n" \
	"END:\n" \
	"	ret;\n" \
	"}\n"

static const char pplat_ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry gdrcopy_pplat(\n"
	"	.param .u64 p_ping, .param .u64 p_pong, .param .u64 p_status,\n"
	"	.param .u64 p_data, .param .u64 p_other, .param .u32 p_words,\n"
	"	.param .u32 p_rounds, .param .u64 p_timeout_ns)\n" PPLAT_START
	"	@!%is_first bra JOIN;\n" PPLAT_POLL
	"SEEN:\n"
	"	@!%has_data bra REPLY;\n" PPLAT_JOIN
	"	mov.u32 %i, %mine;\n"
	"WORD:\n"
	"	setp.ge.u32 %p, %i, %words;\n"
	"	@%p bra ANSWERED;\n"
	"	mul.wide.u32 %at, %i, 4;\n"
	"	add.u64 %now, %other, %at;\n"
	"	add.u64 %at, %data, %at;\n"
	"	ld.volatile.global.u32 %v, [%at];\n"
	"	add.u32 %v, %v, %round;\n"
	"	st.volatile.global.u32 [%now], %v;\n"
	"	add.u32 %i, %i, %stride;\n"
	"	bra WORD;\n"
	"ANSWERED:\n"
	"	membar.sys;\n"
	"	bar.sync 0;\n"
	"	@!%is_first bra DONE;\n"
	"REPLY:\n"
	"	st.volatile.global.u32 [%pong], %round;\n"
	"	st.volatile.global.u32 [%status], %round;\n" PPLAT_END
	".visible .entry gdrcopy_pplat_produce(\n"
	"	.param .u64 p_ping, .param .u64 p_pong, .param .u64 p_status,\n"
	"	.param .u64 p_data, .param .u64 p_other, .param .u32 p_words,\n"
	"	.param .u32 p_rounds, .param .u32 p_from, .param .u32 p_to,\n"
	"	.param .u64 p_timeout_ns)\n" PPLAT_START
	"	ld.param.u32 %from, [p_from];\n"
	"	ld.param.u32 %to, [p_to];\n"
	"	@!%has_data bra NOTIFY;\n"
	"	mov.u32 %i, %mine;\n"
	"WORD:\n"
	"	setp.ge.u32 %p, %i, %words;\n"
	"	@%p bra WRITTEN;\n"
	"	mul.wide.u32 %at, %i, 4;\n"
	"	add.u64 %at, %data, %at;\n"
	"	add.u32 %v, %i, %round;\n"
	"	st.volatile.global.u32 [%at], %v;\n"
	"	add.u32 %i, %i, %stride;\n"
	"	bra WORD;\n"
	"WRITTEN:\n"
	"	membar.sys;\n"
	"	bar.sync 0;\n"
	"	@!%is_first bra JOIN;\n"
	"NOTIFY:\n"
	"	st.volatile.global.u32 [%pong], %round;\n" PPLAT_POLL
	"SEEN:\n"
	"	mov.u64 %now, %globaltimer;\n"
	"	mul.wide.u32 %at, %block, 16;\n"
	"	add.u64 %at, %other, %at;\n"
	"	st.volatile.global.u32 [%status], %round;\n"
	"	setp.eq.u32 %p, %round, %from;\n"
	"	@%p st.volatile.global.u64 [%at], %now;\n"
	"	setp.eq.u32 %p, %round, %to;\n"
	"	@%p st.volatile.global.u64 [%at+8], %now;\n"
	"	@!%has_data bra DONE;\n" PPLAT_JOIN PPLAT_END;

#endif
