/* SPDX-License-Identifier: MIT */
/* See thread.h. */
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "core/tally.h"

static pthread_key_t key; /* constant while have_key; its value is not NULL in a watched thread */
static _Atomic bool have_key;

/*
 * What a thread does after this, in another destructor, has it watched anew: destructors run until
 * no key is set, four times at most.
 */
static void ends(void *value)
{
	(void)value;
	gdri_tally_thread_ends();
	gdri_error_thread_ends();
}

__attribute__((constructor)) static void make_key(void)
{
	atomic_store_explicit(&have_key, !pthread_key_create(&key, ends), memory_order_release);
}

/*
 * Where this code is unloaded (a static library inside of a module), threads that live on must not
 * look for it when they end.
 */
__attribute__((destructor)) static void delete_key(void)
{
	if (atomic_exchange_explicit(&have_key, false, memory_order_acq_rel))
		pthread_key_delete(key);
}

bool gdri_thread_watch(void)
{
	return atomic_load_explicit(&have_key, memory_order_acquire) &&
	       !pthread_setspecific(key, &key);
}
