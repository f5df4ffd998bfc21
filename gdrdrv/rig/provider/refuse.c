// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * A kernel that refuses what the client asks for: a function fails from a chosen call on. Memory
 * types (x86) fail when memory is short or another type is reserved, registrations of nodes when
 * memory or numbers are short. A kprobe, as in window.c, sends the caller to a function that
 * returns the error.
 */
#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/miscdevice.h>

#include "provider.h"

struct refusal {
	int from; /* the parameter, first: module_param_cb() points at it; under its lock */
#if defined(CONFIG_KPROBES) && defined(CONFIG_X86)
	void *function;
	struct kprobe probe;
	atomic_t calls_left; /* number of calls that still succeed */
	bool probing;
#endif
};

#if defined(CONFIG_KPROBES) && defined(CONFIG_X86)
#define REFUSAL(f)                      \
	{                               \
		.function = (void *)(f) \
	}

static noinline int refused(void)
{
	return -EBUSY;
}

static int on_call(struct kprobe *p, struct pt_regs *regs)
{
	struct refusal *r = container_of(p, struct refusal, probe);

	if (atomic_dec_if_positive(&r->calls_left) >= 0)
		return 0;
	instruction_pointer_set(regs, (unsigned long)refused);
	return 1;
}

/* Keeps the kernel from optimizing the probe into a jump, which could not be redirected. */
static void suppress_optimisation(struct kprobe *p, struct pt_regs *regs, unsigned long flags)
{
}

static int refuse_from(struct refusal *r, int nth)
{
	int ret = 0;

	if (r->probing)
		unregister_kprobe(&r->probe);
	r->probing = false;
	if (nth > 0) {
		atomic_set(&r->calls_left, nth - 1);
		r->probe = (struct kprobe){
			.addr = (kprobe_opcode_t *)r->function,
			.pre_handler = on_call,
			.post_handler = suppress_optimisation,
		};
		ret = register_kprobe(&r->probe);
		r->probing = !ret;
	}
	return ret;
}
#else
#define REFUSAL(f) \
	{          \
	}

static int refuse_from(struct refusal *r, int nth)
{
	return nth > 0 ? -EOPNOTSUPP : 0;
}
#endif

static struct refusal refuse_reserve = REFUSAL(arch_io_reserve_memtype_wc);
static struct refusal refuse_misc = REFUSAL(misc_register);
static struct refusal refuse_chrdev = REFUSAL(__register_chrdev);

static int refuse_set(const char *val, const struct kernel_param *kp)
{
	struct refusal *r = container_of((int *)kp->arg, struct refusal, from);
	int ret = param_set_int(val, kp);

	return ret ?: refuse_from(r, r->from);
}

static const struct kernel_param_ops refuse_ops = { .set = refuse_set, .get = param_get_int };
module_param_cb(refuse_reserve, &refuse_ops, &refuse_reserve.from, 0644);
MODULE_PARM_DESC(refuse_reserve, "the first call to reserve a memory type that fails; 0: none");
module_param_cb(refuse_misc, &refuse_ops, &refuse_misc.from, 0644);
MODULE_PARM_DESC(refuse_misc, "the first misc_register() that fails; 0: none");
module_param_cb(refuse_chrdev, &refuse_ops, &refuse_chrdev.from, 0644);
MODULE_PARM_DESC(refuse_chrdev, "the first __register_chrdev() that fails; 0: none");

void provider_refuse_exit(void)
{
	refuse_from(&refuse_reserve, 0);
	refuse_from(&refuse_misc, 0);
	refuse_from(&refuse_chrdev, 0);
}
