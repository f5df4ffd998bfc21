/* SPDX-License-Identifier: MIT */
/*
 * The system and library calls that libgdrapi makes, by way of the linker's --wrap: counted, made
 * to fail by number or by name, and balanced, in the thread that asks for it only. The stand-ins'
 * own calls are not touched. It knows nothing of why they are made.
 */
#ifndef TEST_COMMON_WRAP_H
#define TEST_COMMON_WRAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Forget every rule and count of this thread. */
void wrap_reset(void);

/* The nth wrapped call of this thread from now on fails, with the errno usual for it. 0: none. */
void wrap_fail_nth(unsigned long n);

/* The nth call (from 1; 0: every one) of that name fails with err, which dlerror() names. */
void wrap_fail(const char *name, unsigned long nth, int err);

/* dlopen of a library, or dlsym of a symbol, whose name contains this fails; NULL: none. */
void wrap_deny_library(const char *part);
void wrap_deny_symbol(const char *part);

/* open and fopen of a path that begins so open that file; NULL: none. */
void wrap_instead(const char *path, const char *file);

/* CLOCK_MONOTONIC stands at that second, for all threads; 0: it goes on. */
void wrap_clock(time_t second);

/* In this thread each look at CLOCK_MONOTONIC finds it that many ns later than the one before. */
void wrap_clock_steps(uint64_t ns);

/* What lseek answers, -1 for the truth. */
void wrap_lseek_size(off_t size);

/* mmap ignores that flag, as a kernel does that does not know it; MAP_SHARED: it maps privately. */
void wrap_mmap_ignores(int flag);

/* Before the next call of that name, once: fn, which may wait for another thread. */
void wrap_before(const char *name, void (*fn)(void));

/* For a slot that leads to ioctl(): a function of its type that returns call(fd, request, data). */
typedef int (*ioctl_fn)(int fd, unsigned long request, ...);
#define IOCTL_FUNCTION(name, call)                          \
	static int name(int fd, unsigned long request, ...) \
	{                                                   \
		va_list ap;                                 \
		void *data;                                 \
                                                            \
		va_start(ap, request);                      \
		data = va_arg(ap, void *);                  \
		va_end(ap);                                 \
		return call(fd, request, data);             \
	}

/* The name of the last call that was made to fail since wrap_reset(); NULL: none was. */
const char *wrap_failed(void);

/* Wrapped calls since wrap_reset(). */
unsigned long wrap_calls(const char *name);

/* ns that nanosleep() was asked for since wrap_reset(). */
uint64_t wrap_slept(void);

/* Bytes that this process mapped and has not unmapped again, by wrapped calls; may be negative. */
long long wrap_mapped(void);

#endif
