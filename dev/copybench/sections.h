/* SPDX-License-Identifier: MIT */
/* The tables of copybench: each call measures and shows one or two. */
#ifndef PERF_COPYBENCH_SECTIONS_H
#define PERF_COPYBENCH_SECTIONS_H

/* sizes.c */
void read_section(void);
void write_section(void);
void edges_section(void);

/* small.c */
void vectors_section(void);
void flags_section(void);
void call_section(void);

/* help.c */
void engine_section(void);
void threads_section(void);

#endif
