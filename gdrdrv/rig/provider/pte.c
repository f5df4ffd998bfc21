// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The raw page-table entry of an address of the calling process. */
#include <linux/mm.h>
#include <linux/sched.h>

#include "provider.h"

/*
 * Takes no lock, because the tests also read entries inside ->mmap, which holds mmap_lock. The
 * caller keeps the page tables of @addr: it has a neighbouring page mapped.
 */
int provider_read_pte(struct provider_pte *arg)
{
	unsigned long addr = arg->addr;
	pgd_t *pgd = pgd_offset(current->mm, addr);
	p4d_t *p4d;
	pud_t *pud;
	pmd_t *pmd, pmdval;
	pte_t pte;

	arg->pte = 0;
	arg->level = 0;
	if (addr >= TASK_SIZE)
		return -EINVAL;
	if (pgd_none(READ_ONCE(*pgd)))
		return 0;
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(READ_ONCE(*p4d)))
		return 0;
	pud = pud_offset(p4d, addr);
	if (pud_none(READ_ONCE(*pud)))
		return 0;
	pmd = pmd_offset(pud, addr);
	pmdval = READ_ONCE(*pmd);
	if (pmd_none(pmdval))
		return 0;
#ifdef CONFIG_X86
	if (pmd_val(pmdval) & _PAGE_PSE) {
#else
	if (pmd_leaf(pmdval)) {
#endif
		arg->pte = pmd_val(pmdval);
		arg->level = 2;
		return 0;
	}
	pte = READ_ONCE(*pte_offset_kernel(pmd, addr));
	if (pte_none(pte))
		return 0;
	arg->pte = pte_val(pte);
	arg->level = 1;
	return 0;
}
