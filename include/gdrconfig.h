/* SPDX-License-Identifier: MIT */
/*
 * For programs written for GDRCopy that include this header: which of its architectures this is.
 * Nothing of this library needs it.
 */
#ifndef GDRCONFIG_H
#define GDRCONFIG_H

#if defined(__x86_64__)
#define GDRAPI_X86
#elif defined(__aarch64__)
#define GDRAPI_ARM64
#else
#error "x86-64 and aarch64 only"
#endif

#endif
