/* SPDX-License-Identifier: MIT */
/*
 * The litmus kernels as PTX, for compute capability 5.0 and newer: one thread block each, volatile
 * accesses, MEMBAR.SYS between the data and the flag that announces them. A wait ends when the word
 * is at least the round, so UINT32_MAX ends every wait.
 */
#ifndef DEV_LITMUS_PTX_H
#define DEV_LITMUS_PTX_H

#define PTX_HEAD(name)                                                                        \
	".visible .entry " name "(\n"                                                         \
	" .param .u64 p_data, .param .u64 p_flag,\n"                                          \
	" .param .u64 p_ack, .param .u64 p_report,\n"                                         \
	" .param .u32 p_words, .param .u32 p_rounds)\n"                                       \
	"{\n"                                                                                 \
	" .reg .pred %p, %first, %wrong, %torn, %stop;\n"                                     \
	" .reg .b32 %words, %rounds, %me, %all, %round, %i, %v, %lo, %hi, %nwrong, %ntorn;\n" \
	" .reg .b32 %t0, %t1;\n"                                                              \
	" .reg .b64 %data, %flag, %ack, %report, %at, %word;\n"                               \
	" ld.param.u64 %data, [p_data];\n"                                                    \
	" ld.param.u64 %flag, [p_flag];\n"                                                    \
	" ld.param.u64 %ack, [p_ack];\n"                                                      \
	" ld.param.u64 %report, [p_report];\n"                                                \
	" ld.param.u32 %words, [p_words];\n"                                                  \
	" ld.param.u32 %rounds, [p_rounds];\n"                                                \
	" mov.u32 %me, %tid.x;\n"                                                             \
	" mov.u32 %all, %ntid.x;\n"                                                           \
	" setp.eq.u32 %first, %me, 0;\n"

/* Stores %word to every word of the block, one thread a word; waits until all are performed. */
#define PTX_STORE_BLOCK                           \
	" mov.u32 %i, %me;\n"                     \
	"STORE:\n"                                \
	" setp.ge.u32 %p, %i, %words;\n"          \
	" @%p bra STORED;\n"                      \
	" mul.wide.u32 %at, %i, 8;\n"             \
	" add.u64 %at, %data, %at;\n"             \
	" st.volatile.global.u64 [%at], %word;\n" \
	" add.u32 %i, %i, %all;\n"                \
	" bra STORE;\n"                           \
	"STORED:\n"                               \
	" membar.sys;\n"                          \
	" bar.sync 0;\n"

/* The next round, and the end of all. */
#define PTX_END             \
	" bra ROUND;\n" \
	"DONE:\n"       \
	" ret;\n"       \
	"}\n"

/* clang-format off */
static const char litmus_ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	PTX_HEAD("litmus_produce")
	" mov.u32 %round, 1;\n"
	"ROUND:\n"
	" setp.gt.u32 %p, %round, %rounds;\n"
	" @%p bra DONE;\n"
	" mov.b64 %word, {%round, %round};\n"
	PTX_STORE_BLOCK
	" @!%first bra ACKED;\n"
	" membar.sys;\n"
	" st.volatile.global.u32 [%flag], %round;\n"
	"WAIT:\n"
	" ld.volatile.global.u32 %v, [%ack];\n"
	" setp.lt.u32 %p, %v, %round;\n"
	" @%p bra WAIT;\n"
	"ACKED:\n"
	" bar.sync 0;\n"
	" add.u32 %round, %round, 1;\n"
	PTX_END

	PTX_HEAD("litmus_consume")
	" mov.u32 %nwrong, 0;\n"
	" mov.u32 %ntorn, 0;\n"
	" mov.u32 %round, 1;\n"
	"ROUND:\n"
	" setp.gt.u32 %p, %round, %rounds;\n"
	" @%p bra DONE;\n"
	" @!%first bra SEEN;\n"
	"POLL:\n"
	" ld.volatile.global.u32 %v, [%flag];\n"
	" setp.lt.u32 %p, %v, %round;\n"
	" @%p bra POLL;\n"
	"SEEN:\n"
	" bar.sync 0;\n"
	" membar.sys;\n"
	" mov.u32 %t0, 0;\n"
	" mov.u32 %t1, 0;\n"
	" mov.u32 %i, %me;\n"
	"LOAD:\n"
	" setp.ge.u32 %p, %i, %words;\n"
	" @%p bra LOADED;\n"
	" mul.wide.u32 %at, %i, 8;\n"
	" add.u64 %at, %data, %at;\n"
	" ld.volatile.global.u64 %word, [%at];\n"
	" mov.b64 {%lo, %hi}, %word;\n"
	" setp.ne.u32 %p, %lo, %round;\n"
	" @%p mov.u32 %t0, 1;\n"
	" setp.ne.u32 %p, %hi, %round;\n"
	" @%p mov.u32 %t0, 1;\n"
	" setp.ne.u32 %p, %lo, %hi;\n"
	" @%p mov.u32 %t1, 1;\n"
	" add.u32 %i, %i, %all;\n"
	" bra LOAD;\n"
	"LOADED:\n"
	" setp.ne.u32 %wrong, %t0, 0;\n"
	" setp.ne.u32 %torn, %t1, 0;\n"
	" bar.red.or.pred %wrong, 0, %wrong;\n"
	" bar.red.or.pred %torn, 0, %torn;\n"
	" @!%first bra NEXT;\n"
	" @%wrong add.u32 %nwrong, %nwrong, 1;\n"
	" @%torn add.u32 %ntorn, %ntorn, 1;\n"
	" st.volatile.global.u32 [%report], %nwrong;\n"
	" st.volatile.global.u32 [%report+4], %ntorn;\n"
	" membar.sys;\n"
	" st.volatile.global.u32 [%ack], %round;\n"
	"NEXT:\n"
	" bar.sync 0;\n"
	" add.u32 %round, %round, 1;\n"
	PTX_END

	PTX_HEAD("litmus_seqlock")
	" mov.u32 %round, 0;\n"
	"ROUND:\n"
	" mov.u32 %v, 0;\n"
	" @%first ld.volatile.global.u32 %v, [%ack];\n"
	" setp.ne.u32 %stop, %v, 0;\n"
	" bar.red.or.pred %stop, 0, %stop;\n"
	" @%stop bra DONE;\n"
	" add.u32 %round, %round, 1;\n"
	" @%first st.volatile.global.u32 [%flag], %round;\n"
	" membar.sys;\n"
	" bar.sync 0;\n"
	" add.u32 %round, %round, 1;\n"
	" mov.b64 %word, {%round, %round};\n"
	PTX_STORE_BLOCK
	" membar.sys;\n"
	" @%first st.volatile.global.u32 [%flag], %round;\n"
	" membar.sys;\n"
	/* pauses for 0 to 16383 clocks, so that some reads succeed */
	" mul.lo.u32 %i, %round, 0x9e3779b1;\n"
	" shr.u32 %i, %i, 18;\n"
	" mov.u32 %lo, %clock;\n"
	"PAUSE:\n"
	" mov.u32 %hi, %clock;\n"
	" sub.u32 %hi, %hi, %lo;\n"
	" setp.lt.u32 %p, %hi, %i;\n"
	" @%p bra PAUSE;\n"
	" bar.sync 0;\n"
	PTX_END

	PTX_HEAD("litmus_count_up")
	" @!%first bra DONE;\n"
	" sub.u32 %i, %words, 1;\n"
	" mul.wide.u32 %at, %i, 8;\n"
	" add.u64 %at, %data, %at;\n"
	" mov.u32 %round, 1;\n"
	"ROUND:\n"
	" setp.gt.u32 %p, %round, %rounds;\n"
	" @%p bra DONE;\n"
	" ld.volatile.global.u32 %v, [%ack];\n"
	" setp.ne.u32 %p, %v, 0;\n"
	" @%p bra DONE;\n"
	" mov.b64 %word, {%round, %round};\n"
	" st.volatile.global.u64 [%at], %word;\n"
	" membar.sys;\n"
	" add.u32 %round, %round, 1;\n"
	PTX_END;
/* clang-format on */

#endif
