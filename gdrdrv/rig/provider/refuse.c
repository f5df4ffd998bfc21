// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A kernel that refuses memory types (x86): arch_io_reserve_memtype_wc() fails from a chosen call
 * on, as it does when memory is short or another type is reserved. A kprobe, as in window.c, sends
 * the caller to a function that returns the error.
 */
#include <linux/atomic.h>
#include <linux/io.h>
#include <linux/kprobes.h>

#include "provider.h"

static int refuse_reserve; /* under the lock of the parameters */

#if defined(CONFIG_KPROBES) && defined(CONFIG_X86)
static atomic_t calls_left; /* number of calls that still succeed */
static bool probing;

static noinline int refused(resource_size_t start, resource_size_t size)
{
	return -EBUSY;
}

static int on_reserve(struct kprobe *p, struct pt_regs *regs)
{
	if (atomic_dec_if_positive(&calls_left) >= 0)
		return 0;
	instruction_pointer_set(regs, (unsigned long)refused);
	return 1;
}

/* Keeps the kernel from optimizing the probe into a jump, which could not be redirected. */
static void suppress_optimisation(struct kprobe *p, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe;

static int refuse_from(int nth)
{
	int ret = 0;

	if (probing)
		unregister_kprobe(&probe);
	probing = false;
	if (nth > 0) {
		atomic_set(&calls_left, nth - 1);
		probe = (struct kprobe){
			.addr = (kprobe_opcode_t *)(void *)arch_io_reserve_memtype_wc,
			.pre_handler = on_reserve,
			.post_handler = suppress_optimisation,
		};
		ret = register_kprobe(&probe);
		probing = !ret;
	}
	return ret;
}
#else
static int refuse_from(int nth)
{
	return nth > 0 ? -EOPNOTSUPP : 0;
}
#endif

static int refuse_set(const char *val, const struct kernel_param *kp)
{
	int ret = param_set_int(val, kp);

	return ret ?: refuse_from(refuse_reserve);
}

static const struct kernel_param_ops refuse_ops = { .set = refuse_set, .get = param_get_int };
module_param_cb(refuse_reserve, &refuse_ops, &refuse_reserve, 0644);
MODULE_PARM_DESC(refuse_reserve, "the first call to reserve a memory type that fails; 0: none");

void provider_refuse_exit(void)
{
	refuse_from(0);
}
