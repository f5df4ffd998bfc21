/* SPDX-License-Identifier: MIT */
/*
 * Included before each source of a wheel's library, so that a library built on any machine runs on
 * glibc 2.17 and later. Chooses the oldest symbol versions of functions that moved from libpthread
 * and libdl into libc (2.32 and 2.34), of functions that read numbers, whose new names (2.38) also
 * accept C23's 0b, and of fstat(), which was an inline function before 2.33.
 */
#include <sys/stat.h>

#ifdef __x86_64__
#define OLDEST_STAT 1 /* _STAT_VER of bits/stat.h */
#define OLDEST "GLIBC_2.2.5"
#define OLDEST_DLINFO "GLIBC_2.3.3"
#define OLDEST_C99 "GLIBC_2.7"
#else
#define OLDEST_STAT 0
#define OLDEST "GLIBC_2.17"
#define OLDEST_DLINFO OLDEST
#define OLDEST_C99 OLDEST
#endif
#define OLD(function, version) RENAMED(function, function, version)
#define RENAMED(function, old, version) __asm__(".symver " #function ", " #old "@" version)

OLD(dlclose, OLDEST);
OLD(dlerror, OLDEST);
OLD(dlinfo, OLDEST_DLINFO);
OLD(dlopen, OLDEST);
OLD(dlsym, OLDEST);
OLD(pthread_key_create, OLDEST);
OLD(pthread_key_delete, OLDEST);
OLD(pthread_mutex_trylock, OLDEST);
OLD(pthread_once, OLDEST);
OLD(pthread_setspecific, OLDEST);
OLD(pthread_sigmask, OLDEST);
RENAMED(__isoc23_sscanf, __isoc99_sscanf, OLDEST_C99);
RENAMED(__isoc23_strtoul, strtoul, OLDEST);
RENAMED(__isoc23_strtoull, strtoull, OLDEST);

int __fxstat(int version, int fd, struct stat *st);
OLD(__fxstat, OLDEST);

static inline int oldest_fstat(int fd, struct stat *st)
{
	return __fxstat(OLDEST_STAT, fd, st);
}
#define fstat oldest_fstat

#undef OLD
#undef RENAMED
#undef OLDEST
#undef OLDEST_DLINFO
#undef OLDEST_C99
