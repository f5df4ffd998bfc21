// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * nvidia_p2p_* of the stand-in provider, behaving as the real one is known to:
 *
 * - a pin belongs to the process that owns the memory, unless it shows the context's tokens;
 * - a put of a callback pin in another process returns 0 and unlinks nothing: the callback comes;
 * - a put that comes after the callback returns 0;
 * - the page table of a callback pin dies with the callback, which must free it;
 * - persistent pins keep the pages beyond the free, until the put, which any process may do.
 *
 * Which calls exist is decided by the nv-p2p.h that this is built with. Module parameters make it
 * fail or misbehave. Wrong use by the client is an error in the log and in the counters.
 */
#define pr_fmt(fmt) "provider: " fmt

#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "nv-p2p.h"
#include "provider.h"

#define KNOB(name, text)               \
	static int name;               \
	module_param(name, int, 0644); \
	MODULE_PARM_DESC(name, text)

KNOB(fail_get, "errno of every get");
KNOB(fail_persistent, "errno of every persistent get");
KNOB(fail_put, "errno of every put, which then does nothing");
KNOB(callback_ms, "delay before each callback");
KNOB(table_version, "version of the page table, 0 for the header's");
KNOB(page_kib, "page size of the table: 0 (64), 4, 64, 128; another value is sent as it is");
KNOB(cacheable, "set the flag CPU_CACHEABLE");
KNOB(short_table, "entries left out");
KNOB(map_uncached, "hold an uncached mapping of the first page of what is pinned next");
KNOB(last_flags, "flags of the last persistent get");

struct pin {
	struct list_head node;
	struct provider_block *block;
	struct nvidia_p2p_page_table *table;
	void (*callback)(void *data);
	void *data;
	pid_t tgid;
	u64 va;
	u64 p2p_token;
	u32 va_space;
	bool own_call; /* by nvidia_p2p_get_pages_persistent() */
};

struct live_table {
	struct list_head node;
	struct nvidia_p2p_page_table table;
};

static LIST_HEAD(pins); /* provider_bar.lock */
static LIST_HEAD(tables);
static DEFINE_SPINLOCK(tables_lock);
static void __iomem *uncached;
static u8 uuid[16] = "stand-in GPU";

#define client_error(fmt, ...)                             \
	do {                                               \
		provider_counts.errors++;                  \
		pr_err("ERROR: " fmt "\n", ##__VA_ARGS__); \
	} while (0)

static void table_destroy(struct live_table *live)
{
	if (live->table.pages)
		kvfree(live->table.pages[0]);
	kvfree(live->table.pages);
	kfree(live);
}

/* True when @table was alive; it is not any more. */
static bool table_kill(struct nvidia_p2p_page_table *table)
{
	struct live_table *live, *found = NULL;

	spin_lock(&tables_lock);
	list_for_each_entry(live, &tables, node)
		if (&live->table == table)
			found = live;
	if (found)
		list_del(&found->node);
	spin_unlock(&tables_lock);
	if (found)
		table_destroy(found);
	return found;
}

static u32 table_page_size(u32 *type)
{
	switch (READ_ONCE(page_kib)) {
	case 4:
		*type = NVIDIA_P2P_PAGE_SIZE_4KB;
		return 4 << 10;
	case 0:
	case 64:
		*type = NVIDIA_P2P_PAGE_SIZE_64KB;
		return 64 << 10;
	case 128:
		*type = NVIDIA_P2P_PAGE_SIZE_128KB;
		return 128 << 10;
	default:
		*type = page_kib;
		return 64 << 10;
	}
}

static struct nvidia_p2p_page_table *table_make(struct provider_block *block, u64 va, u64 len)
{
	struct live_table *live = kzalloc(sizeof(*live), GFP_KERNEL);
	struct nvidia_p2p_page_table *table;
	struct nvidia_p2p_page *page;
	u32 size, i;
	u64 off;

	if (!live)
		return NULL;
	table = &live->table;
	size = table_page_size(&table->page_size);
	off = round_down(va, (u64)size) - block->va;
	table->version = table_version ? table_version : NVIDIA_P2P_PAGE_TABLE_VERSION;
	table->entries = DIV_ROUND_UP_ULL(va + len - round_down(va, (u64)size), size);
	table->gpu_uuid = uuid;
	table->pages = kvcalloc(table->entries, sizeof(*table->pages), GFP_KERNEL);
	page = kvcalloc(table->entries, sizeof(*page), GFP_KERNEL);
	if (!table->pages || !page) {
		kvfree(page);
		kvfree(table->pages);
		kfree(live);
		return NULL;
	}
	for (i = 0; i < table->entries; i++, off += size) {
		table->pages[i] = &page[i];
		page[i].physical_address =
			provider_bar.phys + off % PROVIDER_PAGE_SIZE +
			block->pages[off / PROVIDER_PAGE_SIZE] * PROVIDER_PAGE_SIZE;
	}
	table->entries -= min_t(u32, short_table, table->entries);
#ifdef P2P_TEST_TABLE_FLAGS
	table->flags = cacheable ? NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE : 0;
#endif
	spin_lock(&tables_lock);
	list_add(&live->node, &tables);
	spin_unlock(&tables_lock);
	return table;
}

static bool may_pin(struct provider_block *block, u64 p2p_token, u32 va_space)
{
	if (p2p_token || va_space)
		return block->owner->p2p_token == p2p_token && block->owner->va_space == va_space;
	return block->owner->tgid == current->tgid;
}

/* As map_uncached says: another mapping of the page at @phys, or none. */
void provider_hold_uncached(phys_addr_t phys)
{
	lockdep_assert_held(&provider_bar.lock);
	if (uncached && !map_uncached) {
		iounmap(uncached);
		uncached = NULL;
	}
	if (map_uncached && !uncached)
		uncached = ioremap(phys, PAGE_SIZE);
}

static int pin_make(const struct pin *want, u64 len, struct nvidia_p2p_page_table **table)
{
	struct pin *pin;
	int ret = -EINVAL;

	if (READ_ONCE(fail_get))
		return -fail_get;
	if (!len || (want->va | len) & (PROVIDER_PAGE_SIZE - 1))
		return -EINVAL;
	pin = kmemdup(want, sizeof(*want), GFP_KERNEL);
	if (!pin)
		return -ENOMEM;

	mutex_lock(&provider_bar.lock);
	pin->block = provider_block_find_locked(pin->va, len);
	if (!pin->block || !may_pin(pin->block, pin->p2p_token, pin->va_space))
		goto err_unlock;
	pin->table = table_make(pin->block, pin->va, len);
	if (!pin->table) {
		ret = -ENOMEM;
		goto err_unlock;
	}
	pin->tgid = current->tgid;
	if (!pin->callback)
		pin->block->refs++;
	provider_hold_uncached(pin->table->pages[0]->physical_address);
	list_add(&pin->node, &pins);
	*table = pin->table;
	mutex_unlock(&provider_bar.lock);
	provider_window_pass(PROVIDER_AFTER_GET);
	return 0;

err_unlock:
	mutex_unlock(&provider_bar.lock);
	kfree(pin);
	return ret;
}

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	struct pin want = {
		.callback = free_callback,
		.data = data,
		.va = virtual_address,
		.p2p_token = p2p_token,
		.va_space = va_space,
	};

	if (!free_callback) {
#if defined(P2P_TEST_NULL_CALLBACK) && !defined(P2P_TEST_PERSISTENT_API)
		if (READ_ONCE(fail_persistent))
			return -fail_persistent;
#else
		return -EINVAL;
#endif
	}
	return pin_make(&want, length, page_table);
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

static int pin_put(u64 p2p_token, u32 va_space, u64 va, struct nvidia_p2p_page_table *table,
		   bool own_call)
{
	struct pin *pin;

	if (READ_ONCE(fail_put))
		return -fail_put;
	provider_window_pass(PROVIDER_BEFORE_PUT);
	mutex_lock(&provider_bar.lock);
	list_for_each_entry(pin, &pins, node) {
		if (pin->table != table)
			continue;
		if (pin->va != va || pin->p2p_token != p2p_token || pin->va_space != va_space ||
		    pin->own_call != own_call)
			client_error("put that does not match its get");
		if (pin->callback && pin->tgid != current->tgid) {
			provider_counts.foreign_puts++;
			goto unlock;
		}
		list_del(&pin->node);
		if (!pin->callback)
			provider_block_put_locked(pin->block);
		table_kill(pin->table);
		kfree(pin);
		goto unlock;
	}
	provider_counts.late_puts++;
unlock:
	mutex_unlock(&provider_bar.lock);
	return 0;
}

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	return pin_put(p2p_token, va_space, virtual_address, page_table, false);
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	if (!table_kill(page_table))
		client_error("page table freed twice");
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_free_page_table);

#ifdef P2P_TEST_NULL_CALLBACK
const int nvidia_p2p_cap_persistent_pages = 1;
EXPORT_SYMBOL(nvidia_p2p_cap_persistent_pages);
#endif

#ifdef P2P_TEST_PERSISTENT_API
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags)
{
	struct pin want = { .va = virtual_address, .own_call = true };

	if (READ_ONCE(fail_persistent))
		return -fail_persistent;
	last_flags = flags;
	return pin_make(&want, length, page_table);
}
EXPORT_SYMBOL(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table,
				    u32 flags)
{
	return pin_put(0, 0, virtual_address, page_table, true);
}
EXPORT_SYMBOL(nvidia_p2p_put_pages_persistent);
#endif

/* The memory goes: every callback pin of it is taken back, inside the lock. */
void provider_p2p_revoke_locked(struct provider_block *block)
{
	struct pin *pin, *next;
	u64 start;

	lockdep_assert_held(&provider_bar.lock);
	list_for_each_entry_safe(pin, next, &pins, node) {
		if (pin->block != block || !pin->callback)
			continue;
		list_del(&pin->node);
		if (callback_ms)
			msleep(callback_ms);
		provider_window_in_callback(true);
		start = ktime_get_ns();
		pin->callback(pin->data);
		provider_counts.callback_ns = ktime_get_ns() - start;
		provider_window_in_callback(false);
		provider_counts.callbacks++;
		if (table_kill(pin->table))
			client_error("callback did not free its page table");
		kfree(pin);
	}
}

void provider_p2p_count_locked(struct provider_info *info)
{
	struct live_table *live;
	struct pin *pin;

	info->pins = provider_counts.maps;
	info->tables = 0;
	list_for_each_entry(pin, &pins, node)
		info->pins++;
	spin_lock(&tables_lock);
	list_for_each_entry(live, &tables, node)
		info->tables++;
	spin_unlock(&tables_lock);
}

/* No client is left. What it left behind (a failed put, by knob) goes with us. */
void provider_p2p_exit(void)
{
	struct pin *pin, *next;

	if (uncached)
		iounmap(uncached);
	list_for_each_entry_safe(pin, next, &pins, node) {
		table_kill(pin->table);
		kfree(pin);
	}
}
