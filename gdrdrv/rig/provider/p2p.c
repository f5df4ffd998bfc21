// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * nvidia_p2p_* of the stand-in provider, written after NVIDIA's open GPU kernel modules 595.45.04:
 * kernel-open/nvidia/nv-p2p.c (page tables), src/nvidia/.../bus/p2p.c and third_party_p2p.c (what
 * the resource manager knows of them). As there:
 *
 * - one lock, the resource manager's API lock, is held over each step that reads pins, and over a
 *   free with all of its callbacks; a get takes the lock twice, for the pages and to register the
 *   callback (or, persistent, to find the GPU first), and drops it in between;
 * - a get allocates arrays for the number of pages that the caller asks for, before it checks the
 *   address;
 * - the key of a pin is the address of its page table. Tables are reused at once, the last freed
 *   first, so the next pin may have the same key;
 * - without a token the pin is searched only in contexts that admit the calling process: its own,
 *   and those whose process lent them (NV503C_CTRL_CMD_REGISTER_PID, unprivileged), until its own
 *   client ends. A put that finds no pin (late, in another process, or after that end)
 *   returns 0 and does nothing. A late put that finds another pin with the key releases that pin,
 *   whose callback then never comes;
 * - a token is a number of its context, counted from 1, and valid in any process. A put with a
 *   token frees the table even if there is no pin;
 * - a callback pin's table is freed after the callback; nvidia_p2p_free_page_table() does nothing;
 * - persistent pins keep the pages after the free, until the put, which any process may do.
 *
 * The nv-p2p.h of the build decides which calls exist. P2P_EXPORT is how the GPU driver of that
 * branch and flavour exports them. Module parameters make calls fail or
 * misbehave. Wrong use by the client is an error in the log and in the counters.
 */
#define pr_fmt(fmt) "provider: " fmt

#include <linux/delay.h>
#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>

#include "nv-p2p.h"
#include "provider.h"

KNOB(fail_get, 0, "errno of every get; what no status maps to becomes EIO");
KNOB(fail_persistent, 0, "errno of every persistent get");
KNOB(fail_put, 0, "errno of every put, which then does nothing");
KNOB(callback_ms, 0, "delay before each callback");
KNOB(table_version, 0, "version of the page table, 0 for the header's");
KNOB(page_kib, 0, "page size of the table: 0 (64), 4, 64, 128; another value is sent as it is");
KNOB(cacheable, 0, "set the flag CPU_CACHEABLE");
KNOB(coherent, 0, "tables begin with 64 KiB of the host's own memory, as all pages are on Grace");
KNOB(short_table, 0, "entries left out");
KNOB(map_uncached, 0, "hold an uncached mapping of the first page of what is pinned next");
KNOB(last_flags, 0, "flags of the last persistent get");

/* The table that the client gets: nv_p2p_mem_info_t. */
struct mem_info {
	struct list_head node; /* of infos or spare */
	struct nvidia_p2p_page_table table;
	bool out; /* infos_lock: handed out, in infos */
	bool released; /* the client has called free_page_table, or a put of it has returned 0 */
};

/* The resource manager's record of a pin: CLI_THIRD_PARTY_P2P_MAPPING_INFO. */
struct pin {
	struct list_head node;
	struct provider_block *block;
	struct provider_file *context; /* NULL: persistent, of no process */
	struct nvidia_p2p_page_table *key;
	void (*callback)(void *data); /* NULL: persistent, or not registered yet */
	void *data;
	u64 va;
};

static LIST_HEAD(pins); /* provider_bar.lock */
static LIST_HEAD(infos); /* infos_lock: handed out */
static LIST_HEAD(spare); /* infos_lock: the last one freed first */
static DEFINE_SPINLOCK(infos_lock);
static void __iomem *uncached;
static unsigned long ram; /* for coherent */
static u8 uuid[16] = "stand-in GPU";

#define client_error(fmt, ...)                             \
	do {                                               \
		provider_counts.errors++;                  \
		pr_err("ERROR: " fmt "\n", ##__VA_ARGS__); \
	} while (0)

/* nvidia_status_mappings[]: a status that is not in it becomes EIO. */
static int status_errno(int err)
{
	bool known = err == ENOMEM || err == EINVAL || err == ENOTSUPP || err == EBUSY ||
		     err == ENODEV;

	return known ? -err : -EIO;
}

static struct mem_info *info_new(void)
{
	struct mem_info *info;

	spin_lock(&infos_lock);
	info = list_first_entry_or_null(&spare, struct mem_info, node);
	if (info)
		list_del(&info->node);
	spin_unlock(&infos_lock);
	if (!info)
		info = kmalloc(sizeof(*info), GFP_KERNEL);
	if (info)
		*info = (struct mem_info){};
	return info;
}

static void info_keep(struct mem_info *info, struct list_head *list)
{
	spin_lock(&infos_lock);
	list_add(&info->node, list);
	info->out = list == &infos;
	spin_unlock(&infos_lock);
}

/* Memory of a table is never returned to the kernel before the exit: spare keeps it. */
static bool info_is_out(const struct mem_info *info)
{
	return READ_ONCE(info->out);
}

/* nv_p2p_free_page_table(). Pointers in the table stay: a second call reads freed memory. */
static void table_free(struct nvidia_p2p_page_table *table)
{
	struct mem_info *info = container_of(table, struct mem_info, table);
	struct nvidia_p2p_page *pages = READ_ONCE(table->pages[0]);

	if (!info_is_out(info)) {
		client_error("page table freed twice");
		return;
	}
	spin_lock(&infos_lock);
	list_del(&info->node);
	spin_unlock(&infos_lock);
	kvfree(pages);
	kvfree(table->pages);
	info_keep(info, &spare);
}

static u32 table_page_size(u32 *type)
{
	int kib = READ_ONCE(page_kib) ?: 64;

	*type = kib == 4     ? NVIDIA_P2P_PAGE_SIZE_4KB
		: kib == 64  ? NVIDIA_P2P_PAGE_SIZE_64KB
		: kib == 128 ? NVIDIA_P2P_PAGE_SIZE_128KB
			     : kib;
	return kib == 4 || kib == 128 ? kib << 10 : 64 << 10;
}

/* The pages of [@va, @va + @len) of @block into a table that has been handed out. */
static int table_fill(struct nvidia_p2p_page_table *table, struct provider_block *block, u64 va,
		      u64 len)
{
	struct mem_info *info = container_of(table, struct mem_info, table);
	struct nvidia_p2p_page *page;
	u32 size, i;
	u64 off;

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
		return -ENOMEM;
	}
	for (i = 0; i < table->entries; i++, off += size) {
		table->pages[i] = &page[i];
		page[i].physical_address =
			provider_bar.phys + off % PROVIDER_PAGE_SIZE +
			block->pages[off / PROVIDER_PAGE_SIZE] * PROVIDER_PAGE_SIZE;
	}
	if (coherent && !ram)
		ram = __get_free_pages(GFP_KERNEL | __GFP_ZERO, get_order(PROVIDER_PAGE_SIZE));
	if (coherent && ram)
		page[0].physical_address = virt_to_phys((void *)ram);
	table->entries -= min_t(u32, short_table, table->entries);
#ifdef P2P_TEST_TABLE_FLAGS
	table->flags = cacheable ? NVIDIA_P2P_PAGE_TABLE_FLAGS_CPU_CACHEABLE : 0;
#endif
	info_keep(info, &infos);
	return 0;
}

/* Makes or removes an uncached mapping of the page at @phys, as map_uncached asks. */
static void hold_uncached(phys_addr_t phys)
{
	lockdep_assert_held(&provider_bar.lock);
	if (uncached && !map_uncached) {
		iounmap(uncached);
		uncached = NULL;
	}
	if (map_uncached && !uncached)
		uncached = ioremap(phys, PAGE_SIZE);
}

static struct provider_file *context_of_token_locked(u64 p2p_token)
{
	struct provider_file *file;

	list_for_each_entry(file, &provider_bar.files, node)
		if (file->p2p_token == p2p_token)
			return file;
	return NULL;
}

/* thirdpartyp2pIsValidClientPid(): whether the context admits the calling process. */
static bool is_admitted_locked(const struct provider_file *context)
{
	int i;

	for (i = 0; i < PROVIDER_CLIENTS; i++)
		if (context->clients[i].client && context->clients[i].tgid == current->tgid)
			return true;
	return false;
}

/* CliAddThirdPartyP2PClientPid() */
int provider_lend(struct provider_file *file, u64 client)
{
	struct provider_file *other;
	int ret = -EINVAL, i;

	mutex_lock(&provider_bar.lock);
	other = context_of_token_locked(client);
	if (!other)
		goto unlock;
	for (i = 0; i < PROVIDER_CLIENTS; i++)
		if (file->clients[i].client && file->clients[i].tgid == other->tgid) {
			ret = file->clients[i].client == client ? 0 : -EBUSY;
			goto unlock;
		}
	ret = -ENOSPC;
	for (i = 0; i < PROVIDER_CLIENTS && ret; i++)
		if (!file->clients[i].client) {
			file->clients[i].tgid = other->tgid;
			file->clients[i].client = client;
			ret = 0;
		}
unlock:
	mutex_unlock(&provider_bar.lock);
	return ret;
}

/*
 * CliUnregisterFromThirdPartyP2P(): no context admits the client any more, also where it has pins.
 */
void provider_client_ends_locked(const struct provider_file *client)
{
	struct provider_file *file;
	int i;

	lockdep_assert_held(&provider_bar.lock);
	list_for_each_entry(file, &provider_bar.files, node)
		for (i = 0; i < PROVIDER_CLIENTS; i++)
			if (file->clients[i].client == client->p2p_token)
				file->clients[i].client = 0;
}

/*
 * Returns the block that a get names, or the errno of its status. With a token nothing else is
 * checked.
 */
static struct provider_block *block_of_get_locked(u64 p2p_token, u32 va_space, u64 va, u64 len)
{
	struct provider_block *block = provider_block_find_locked(va, len);
	struct provider_file *context;

	if (p2p_token) {
		context = context_of_token_locked(p2p_token);
		if (!context)
			return ERR_PTR(-EINVAL);
		if (!va_space)
			return ERR_PTR(-EIO); /* NV_ERR_INVALID_STATE */
		if (!block || block->owner != context)
			return ERR_PTR(-EINVAL);
	} else if (!block || !is_admitted_locked(block->owner)) {
		return ERR_PTR(-EINVAL);
	}
	return va_space && va_space != block->owner->va_space ? ERR_PTR(-EINVAL) : block;
}

/* Pins with this key: of a context, of the calling process, or (persistent) of none. */
static struct pin *pin_of_key_locked(const struct nvidia_p2p_page_table *key, bool persistent,
				     const struct provider_file *context)
{
	struct pin *pin;

	lockdep_assert_held(&provider_bar.lock);
	list_for_each_entry(pin, &pins, node) {
		if (pin->key != key || persistent != !pin->context)
			continue;
		if (persistent || pin->context == context ||
		    (!context && is_admitted_locked(pin->context)))
			return pin;
	}
	return NULL;
}

/* Whether a pin that the calling process cannot find has the key. Counted for the tests. */
static bool pin_is_foreign_locked(const struct nvidia_p2p_page_table *key)
{
	struct pin *pin;

	list_for_each_entry(pin, &pins, node)
		if (pin->key == key)
			return true;
	return false;
}

static void pin_unlink_locked(struct pin *pin)
{
	list_del(&pin->node);
	if (!pin->context)
		provider_block_put_locked(pin->block);
	kfree(pin);
}

/* rm_p2p_get_pages(), rm_p2p_get_pages_persistent(). */
static int pin_make(u64 p2p_token, u32 va_space, u64 va, u64 len, bool persistent,
		    struct nvidia_p2p_page_table *table)
{
	struct pin *pin = kzalloc(sizeof(*pin), GFP_KERNEL);
	int ret;

	if (!pin)
		return -ENOMEM;
	mutex_lock(&provider_bar.lock);
	pin->block = block_of_get_locked(p2p_token, va_space, va, len);
	ret = PTR_ERR_OR_ZERO(pin->block);
	if (!ret)
		ret = table_fill(table, pin->block, va, len);
	if (ret) {
		mutex_unlock(&provider_bar.lock);
		kfree(pin);
		return ret;
	}
	pin->key = table;
	pin->va = va;
	if (persistent)
		pin->block->refs++;
	else
		pin->context = pin->block->owner;
	hold_uncached(table->pages[0]->physical_address);
	list_add(&pin->node, &pins);
	mutex_unlock(&provider_bar.lock);
	return 0;
}

/* rm_p2p_register_callback(). The memory may have been freed after the pages were pinned. */
static int pin_register(u64 p2p_token, struct nvidia_p2p_page_table *table,
			void (*callback)(void *data), void *data)
{
	struct provider_file *context;
	struct pin *pin = NULL;

	mutex_lock(&provider_bar.lock);
	context = context_of_token_locked(p2p_token);
	if (context || !p2p_token)
		pin = pin_of_key_locked(table, false, context);
	if (pin) {
		pin->data = data;
		pin->callback = callback;
	}
	mutex_unlock(&provider_bar.lock);
	return pin ? 0 : -EINVAL;
}

/* The three arrays of nv_p2p_get_pages(), for the length that the caller asks for. */
static int arrays_make(u64 len, void *arrays[3])
{
	u64 n = len / PROVIDER_PAGE_SIZE;

	provider_counts.gets++;
	provider_counts.largest_get = max_t(u64, provider_counts.largest_get, len);
	arrays[0] = vmalloc(n * sizeof(u64));
	arrays[1] = arrays[0] ? vmalloc(n * sizeof(u32)) : NULL;
	arrays[2] = arrays[1] ? vmalloc(n * sizeof(u32)) : NULL;
	return arrays[2] ? 0 : -ENOMEM;
}

/* nv_p2p_get_pages() */
static int get_pages(u64 p2p_token, u32 va_space, u64 va, u64 len,
		     struct nvidia_p2p_page_table **table, void (*callback)(void *data), void *data,
		     bool persistent)
{
	void *arrays[3] = {};
	struct mem_info *info;
	int ret;

	if (!len || (va | len) & (PROVIDER_PAGE_SIZE - 1))
		return -EINVAL;
	info = info_new();
	if (!info)
		return -ENOMEM;
	*table = &info->table;
	ret = arrays_make(len, arrays);
	if (!ret && READ_ONCE(fail_get))
		ret = status_errno(fail_get);
	if (!ret && persistent) {
		/* rm_p2p_get_gpu_info(): a step of its own. */
		mutex_lock(&provider_bar.lock);
		ret = PTR_ERR_OR_ZERO(block_of_get_locked(0, 0, va, len));
		mutex_unlock(&provider_bar.lock);
	}
	if (!ret)
		ret = pin_make(p2p_token, va_space, va, len, persistent, *table);
	if (ret) {
		info_keep(info, &spare);
	} else if (callback) {
		ret = pin_register(p2p_token, *table, callback, data);
		if (ret)
			table_free(*table); /* the pin leaks: no put can find it */
	}
	vfree(arrays[0]);
	vfree(arrays[1]);
	vfree(arrays[2]);
	if (ret)
		*table = NULL;
	else
		provider_window_pass(PROVIDER_AFTER_GET);
	return ret;
}

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	if (!free_callback) {
#if defined(P2P_TEST_NULL_CALLBACK) && !defined(P2P_TEST_PERSISTENT_API)
		if (READ_ONCE(fail_persistent))
			return status_errno(fail_persistent);
#else
		return -EINVAL;
#endif
	}
	return get_pages(p2p_token, va_space, virtual_address, length, page_table, free_callback,
			 data, !free_callback);
}
P2P_EXPORT(nvidia_p2p_get_pages);

/* Releases the pin that has this key now, whichever get made it. */
static void pin_take_locked(struct pin *pin, u64 va)
{
	if (pin->va != va)
		client_error("put of 0x%llx took the pin of 0x%llx", va, pin->va);
	pin_unlink_locked(pin);
}

static int put_failed(void)
{
	provider_window_pass(PROVIDER_BEFORE_PUT);
	return READ_ONCE(fail_put) ? status_errno(fail_put) : 0;
}

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	struct provider_file *context;
	int ret = put_failed();
	bool found = false;
	struct pin *pin;

	if (ret)
		return ret;
	mutex_lock(&provider_bar.lock);
	context = context_of_token_locked(p2p_token);
	pin = pin_of_key_locked(page_table, false, context);
#if defined(P2P_TEST_NULL_CALLBACK) && !defined(P2P_TEST_PERSISTENT_API)
	if (!pin)
		pin = pin_of_key_locked(page_table, true, NULL);
#endif
	if (pin) {
		found = true;
		pin_take_locked(pin, virtual_address);
	} else if (pin_is_foreign_locked(page_table)) {
		provider_counts.foreign_puts++;
		container_of(page_table, struct mem_info, table)->released = true;
	} else {
		provider_counts.late_puts++;
	}
	mutex_unlock(&provider_bar.lock);
	/* thirdpartyp2pDelMappingInfoByKey() returns NV_OK for a missing key. */
	if (found || context)
		table_free(page_table);
	return 0;
}
P2P_EXPORT(nvidia_p2p_put_pages);

/* The documented part of a callback; the table is freed after it. */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	struct mem_info *info = container_of(page_table, struct mem_info, table);

	if (!info_is_out(info) || info->released)
		client_error("page table freed twice");
	info->released = true;
	return 0;
}
P2P_EXPORT(nvidia_p2p_free_page_table);

#ifdef P2P_TEST_NULL_CALLBACK
const int nvidia_p2p_cap_persistent_pages = 1;
P2P_EXPORT(nvidia_p2p_cap_persistent_pages);
#endif

#ifdef P2P_TEST_PERSISTENT_API
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags)
{
	last_flags = flags;
	if (READ_ONCE(fail_persistent)) {
		provider_counts.gets++;
		return status_errno(fail_persistent);
	}
	return get_pages(0, 0, virtual_address, length, page_table, NULL, NULL, true);
}
P2P_EXPORT(nvidia_p2p_get_pages_persistent);

/* The calling process does not matter: any may put a persistent pin. */
int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table,
				    u32 flags)
{
	int ret = put_failed();
	struct pin *pin;

	if (ret)
		return ret;
	mutex_lock(&provider_bar.lock);
	pin = pin_of_key_locked(page_table, true, NULL);
	if (pin)
		pin_take_locked(pin, virtual_address);
	else
		client_error("persistent put of another kind of pin");
	mutex_unlock(&provider_bar.lock);
	table_free(page_table);
	return 0;
}
P2P_EXPORT(nvidia_p2p_put_pages_persistent);
#endif

/* CliDelThirdPartyP2PVidmemInfo(): revokes every callback pin, under the lock. */
void provider_p2p_revoke_locked(struct provider_block *block)
{
	struct pin *pin, *next;
	struct mem_info *info;
	u64 start;

	lockdep_assert_held(&provider_bar.lock);
	list_for_each_entry_safe(pin, next, &pins, node) {
		if (pin->block != block || !pin->context)
			continue;
		if (pin->callback) {
			if (callback_ms)
				msleep(callback_ms);
			provider_window_in_callback(true);
			start = ktime_get_ns();
			pin->callback(pin->data);
			provider_counts.callback_ns = ktime_get_ns() - start;
			provider_window_in_callback(false);
			provider_counts.callbacks++;
			info = container_of(pin->key, struct mem_info, table);
			if (!info->released)
				client_error("callback did not free its page table");
			table_free(pin->key);
		}
		pin_unlink_locked(pin);
	}
}

void provider_p2p_count_locked(struct provider_info *out)
{
	struct mem_info *info;
	struct pin *pin;

	out->pins = 0;
	out->tables = 0;
	list_for_each_entry(pin, &pins, node)
		out->pins++;
	spin_lock(&infos_lock);
	list_for_each_entry(info, &infos, node)
		out->tables++;
	spin_unlock(&infos_lock);
}

/* No client is left. Frees the pins that it left behind (puts that failed by a knob). */
void provider_p2p_exit(void)
{
	struct mem_info *info, *next_info;
	struct pin *pin, *next;

	if (uncached)
		iounmap(uncached);
	if (ram)
		free_pages(ram, get_order(PROVIDER_PAGE_SIZE));
	list_for_each_entry_safe(pin, next, &pins, node) {
		table_free(pin->key);
		list_del(&pin->node);
		kfree(pin);
	}
	list_for_each_entry_safe(info, next_info, &spare, node) {
		list_del(&info->node);
		kfree(info);
	}
}
