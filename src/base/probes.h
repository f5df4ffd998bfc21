/* SPDX-License-Identifier: MIT */
/*
 * The probes that tracers can attach to (provider "gdrapi"; gdrapi(7) lists them): each is one
 * instruction that does nothing and a note in the file. They are there where the system has
 * <sys/sdt.h>, unless GDRI_SDT says 0; with GDRI_SDT 1 it must have it (make SDT=0 or SDT=1).
 */
#ifndef GDRI_PROBES_H
#define GDRI_PROBES_H

#ifndef GDRI_SDT
#ifdef __has_include
#if __has_include(<sys/sdt.h>)
#define GDRI_SDT 1
#endif
#endif
#endif
#ifndef GDRI_SDT
#define GDRI_SDT 0
#endif

#if GDRI_SDT
#include <sys/sdt.h>
#define GDRI_PROBE2(name, a, b)	      DTRACE_PROBE2(gdrapi, name, a, b)
#define GDRI_PROBE3(name, a, b, c)    DTRACE_PROBE3(gdrapi, name, a, b, c)
#define GDRI_PROBE4(name, a, b, c, d) DTRACE_PROBE4(gdrapi, name, a, b, c, d)
#else
#define GDRI_PROBE2(name, a, b)	      ((void)(a), (void)(b))
#define GDRI_PROBE3(name, a, b, c)    ((void)(a), (void)(b), (void)(c))
#define GDRI_PROBE4(name, a, b, c, d) ((void)(a), (void)(b), (void)(c), (void)(d))
#endif

#endif
