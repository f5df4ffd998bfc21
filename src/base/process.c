/* SPDX-License-Identifier: MIT */
/* See process.h. */
#include "base/process.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"

/* Before the first open there is no page: everything reads as "no tag". */
static const _Atomic uint32_t no_tag;
_Atomic(const _Atomic uint32_t *) gdri_process_page = &no_tag;

/* Made while no fork happens. A child inherits last_tag, so its own tags are new ones. */
static _Atomic uint32_t *page;
static uint32_t last_tag;

/* The table of GDRI_IN_CHILD(), between the names that the linker gives to a section's ends. */
extern void (*const __start_gdri_in_child[])(void) __attribute__((visibility("hidden")));
extern void (*const __stop_gdri_in_child[])(void) __attribute__((visibility("hidden")));

/*
 * The child has one thread, and a lock that another thread held in the parent stays locked for ever. So all
 * locks are made anew; what they guard is only reached after the tag was checked.
 */
static void in_child(void)
{
	gdri_fork_in_child();
	/* Where the kernel does not know MADV_WIPEONFORK. */
	if (page)
		atomic_store_explicit(page, 0, memory_order_relaxed);
	for (void (*const *fn)(void) = __start_gdri_in_child; fn < __stop_gdri_in_child; fn++)
		(*fn)();
}

static int make_page_held(void)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	if (pthread_atfork(gdri_fork_hold, gdri_fork_release, in_child)) {
		munmap(p, size);
		return -ENOMEM;
	}
	/* Kernels before 4.14 refuse it: then in_child() empties the page. */
	(void)madvise(p, size, MADV_WIPEONFORK);
	page = p;
	atomic_store_explicit(&gdri_process_page, page, memory_order_release);
	return 0;
}

int gdri_process_enter(void)
{
	int rc;

	gdri_fork_hold();
	rc = page ? 0 : make_page_held();
	if (!rc && !atomic_load_explicit(page, memory_order_relaxed))
		atomic_store_explicit(page, ++last_tag, memory_order_relaxed);
	gdri_fork_release();
	return rc ? gdri_fail(ENOMEM, "no memory for the fork guard") : 0;
}
