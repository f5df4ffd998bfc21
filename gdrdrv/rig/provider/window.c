// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A free inside a window. One thread of a client stops at a chosen place in the kernel, another
 * thread frees memory meanwhile, and the first goes on when the free has ended or waits for it. So
 * every round hits a window of a microsecond, however the emulated processors are scheduled.
 *
 * The client is not changed: a kprobe at the entry of a function (of the kernel, or the client's
 * own ->mmap, found through its descriptor) sends the thread through detour(). That function waits
 * and then calls the original, in process context and with the client's locks held. An empty
 * post_handler keeps the kernel from optimizing the kprobe into a jump, which could not be
 * redirected.
 *
 * One window at a time. The file depends neither on the client nor on pins.
 */
#define pr_fmt(fmt) "provider: " fmt

#include <linux/delay.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include "provider.h"

/* States of one use: a thread asks for a free; another arms itself, stops, and goes on. */
enum { IDLE, CALLED, ARMED, CLAIMED, STOPPED, RELEASED };

static DEFINE_MUTEX(lock); /* opening and closing of the window; the steps to CALLED and ARMED */
static struct provider_file *owner; /* lock; NULL: no window is open */
static u32 place; /* lock */
static atomic_t state;

/* Of one use; written by the freeing thread before CALLED. */
static struct task_struct *freer;
static unsigned long timeout; /* jiffies */
static bool in_callback, freed;
static bool held; /* written by the freeing thread */

/* Written by the thread to be stopped: before and after ARMED; @outcome before RELEASED. */
static pid_t tid;
static int passes; /* calls that it makes before it stops */
static u32 outcome;

/* The thread waits here until the free has ended, or sleeps on a lock that this thread holds. */
static void wait_in_window(void)
{
	unsigned long until = jiffies + timeout;

	atomic_set(&state, STOPPED);
	for (;;) {
		bool waits = READ_ONCE(in_callback) && task_state_to_char(freer) == 'D';

		/* In this order: a freeing thread that has ended also sleeps, for this thread. */
		smp_rmb();
		if (READ_ONCE(freed)) {
			outcome = PROVIDER_FREED_INSIDE;
			break;
		}
		if (waits) {
			outcome = PROVIDER_FREE_WAITED;
			break;
		}
		if (time_after(jiffies, until)) {
			outcome = PROVIDER_WINDOW_TIMEOUT;
			break;
		}
		usleep_range(20, 50);
	}
	atomic_set_release(&state, RELEASED);
}

static bool claim(void)
{
	if (atomic_read_acquire(&state) != ARMED || task_pid_nr(current) != tid || passes-- > 0)
		return false;
	return atomic_cmpxchg(&state, ARMED, CLAIMED) == ARMED;
}

#ifdef CONFIG_KPROBES
typedef unsigned long (*any_fn)(unsigned long, unsigned long, unsigned long, unsigned long,
				unsigned long, unsigned long);

static struct kprobe probe;
static any_fn function; /* the probed function */

/* Up to six arguments in registers, which covers every probed function. */
static noinline unsigned long detour(unsigned long a, unsigned long b, unsigned long c,
				     unsigned long d, unsigned long e, unsigned long f)
{
	bool after = place == PROVIDER_AFTER_MMAP;
	unsigned long ret;

	if (!after)
		wait_in_window();
	ret = function(a, b, c, d, e, f);
	if (after)
		wait_in_window();
	return ret;
}

static int on_entry(struct kprobe *p, struct pt_regs *regs)
{
	if (!claim())
		return 0;
	instruction_pointer_set(regs, (unsigned long)detour);
	return 1;
}

static void suppress_optimisation(struct kprobe *p, struct pt_regs *regs, unsigned long flags)
{
}

static any_fn function_at(u32 at, int fd)
{
	struct file *file;
	any_fn fn = NULL;

	switch (at) {
	case PROVIDER_AFTER_MMAP:
		file = fget(fd);
		if (file) {
			fn = (any_fn)(void *)file->f_op->mmap;
			fput(file);
		}
		return fn;
	case PROVIDER_BEFORE_INSERT:
		return (any_fn)(void *)vmf_insert_pfn_prot;
#ifdef CONFIG_X86
	case PROVIDER_BEFORE_RESERVE:
		return (any_fn)(void *)arch_io_reserve_memtype_wc;
#endif
	default:
		return NULL;
	}
}

static int probe_open(u32 at, int fd)
{
	function = function_at(at, fd);
	if (!function)
		return -EOPNOTSUPP;
	probe = (struct kprobe){
		.addr = (kprobe_opcode_t *)function,
		.pre_handler = on_entry,
		.post_handler = suppress_optimisation,
	};
	return register_kprobe(&probe);
}

static void probe_close(void)
{
	unregister_kprobe(&probe);
}
#else
static int probe_open(u32 at, int fd)
{
	return -EOPNOTSUPP;
}

static void probe_close(void)
{
}
#endif

/* Places inside the provider, which need no probe. */
static bool is_ours(u32 at)
{
	return at == PROVIDER_BEFORE_PUT || at == PROVIDER_AFTER_GET;
}

/* The free has ended: lets the stopped thread go, if it still waits. */
static u32 let_go(void)
{
	WRITE_ONCE(freed, true);
	smp_wmb(); /* before this thread sleeps again; pairs with wait_in_window() */
	while (atomic_read_acquire(&state) != RELEASED)
		usleep_range(20, 50);
	freer = NULL;
	held = false;
	atomic_set_release(&state, IDLE);
	return outcome;
}

static void close_locked(void)
{
	if (owner && !is_ours(place))
		probe_close();
	owner = NULL;
}

int provider_window_open(struct provider_file *file, const struct provider_window *arg)
{
	int ret = 0;

	mutex_lock(&lock);
	if ((owner && owner != file) || atomic_read(&state) != IDLE) {
		ret = -EBUSY;
		goto unlock;
	}
	close_locked();
	place = arg->place;
	if (!is_ours(place))
		ret = probe_open(place, arg->fd);
	if (!ret)
		owner = file;
unlock:
	mutex_unlock(&lock);
	return ret;
}

void provider_window_close(struct provider_file *file)
{
	if (owner == file && held)
		let_go();
	mutex_lock(&lock);
	if (owner == file)
		close_locked();
	mutex_unlock(&lock);
}

void provider_window_pass(u32 at)
{
	if (READ_ONCE(place) == at && claim())
		wait_in_window();
}

void provider_window_in_callback(bool in)
{
	if (READ_ONCE(freer) == current)
		WRITE_ONCE(in_callback, in);
}

int provider_window_arm(struct provider_file *file, const struct provider_window_arm *arg)
{
	unsigned long until = jiffies + msecs_to_jiffies(arg->timeout_ms) + 1;
	int ret = -EAGAIN;

	while (ret == -EAGAIN) {
		mutex_lock(&lock);
		if (owner != file) {
			ret = -EINVAL;
		} else if (atomic_read(&state) == CALLED) {
			tid = task_pid_nr(current);
			passes = arg->passes;
			atomic_set_release(&state, ARMED);
			ret = 0;
		} else if (time_after(jiffies, until)) {
			ret = -ETIMEDOUT;
		}
		mutex_unlock(&lock);
		if (ret == -EAGAIN)
			usleep_range(20, 50);
	}
	return ret;
}

/* Waits until a thread has stopped in the window. On a timeout no thread is armed any more. */
static int call_for_a_thread(struct provider_file *file, u32 timeout_ms)
{
	unsigned long until;
	int ret = 0, now;

	mutex_lock(&lock);
	if (owner != file || timeout_ms > PROVIDER_WINDOW_MAX_MS)
		ret = -EINVAL;
	else if (atomic_read(&state) != IDLE)
		ret = -EBUSY;
	if (!ret) {
		freer = current;
		timeout = msecs_to_jiffies(timeout_ms) + 1;
		in_callback = false;
		freed = false;
		outcome = PROVIDER_WINDOW_MISSED;
		atomic_set_release(&state, CALLED);
	}
	mutex_unlock(&lock);
	if (ret)
		return ret;

	until = jiffies + timeout;
	while ((now = atomic_read(&state)) < STOPPED) {
		/* A thread that has been claimed is about to stop. */
		if (now != CLAIMED && time_after(jiffies, until))
			atomic_cmpxchg(&state, now, RELEASED);
		usleep_range(20, 50);
	}
	return 0;
}

int provider_window_free(struct provider_file *file, struct provider_window_free *arg)
{
	int ret = call_for_a_thread(file, arg->timeout_ms);

	if (ret)
		return ret;
	ret = provider_block_free(file, arg->va);
	held = arg->hold;
	if (!held)
		arg->outcome = let_go();
	return ret;
}

int provider_window_go(struct provider_file *file, struct provider_window_go *arg)
{
	if (owner != file || !held)
		return -EINVAL;
	arg->outcome = let_go();
	return 0;
}
