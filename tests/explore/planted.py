#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Faults that the scheduler's scenarios must find: plants each in a copy of the tree.

planted.py BUILD [NAME...]   each fault's scenario has to fail at a seed from 1 to SEEDS.
A text that the tree has not exactly once is an error: the fault has to be written anew.
planted.py --stale             looks for these texts alone, and builds nothing.

No scenario finds this, which stands in no list below: a miss that does not ask for invalidations at work
(insert_locked() of miss.c): a program sees it only if it gets memory while it frees it. Nor this: an
invalidation works off no list of another registration cache (work_off_all() of entry.c); 3000 seeds of `elsewhere` pass.
Nor this: gdri_rm_client_ends() of rm_client.c reads `wrong` of a GPU that has users; 3000 seeds of `verdict` pass.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SEEDS = 3000
ENTRY, EVICT, TRIAL = "src/cache/entry.c", "src/cache/evict.c", "src/backend/trial.c"

# name: (scenario, [(file, text, its replacement)...])
FAULTS = {
    # A call short of space gives up, or never does.
    "attempts-without-bound": ("never", [(EVICT, "++attempts->failed >= MOST_ATTEMPTS", "++attempts->failed < 0")]),
    "others-evictions-unseen": ("short", [(EVICT, "return attempts->unpinned != before || v.waited;", "return v.evicted;")]),
    "unpins-not-counted": ("returned", [(ENTRY, "atomic_fetch_add(&cache->ctx->unpinned, 1);", ";")]),
    "ended-handles-not-counted": ("returned", [("src/core/handle.c", "atomic_fetch_add(&ctx->unpinned, 1);", ";")]),
    "unmaps-not-counted": ("returned", [("src/calls/gdrapi.c", "atomic_fetch_add(&hd->ctx->unpinned, 1);", ";")]),
    "ended-queues-not-counted": ("ended", [("src/queue/ring.c", "atomic_fetch_add(&ctx->unpinned, 1);", ";")]),
    "ended-ranges-not-unpinned": ("drained", [(EVICT, "gdri_slots_each(&gdri_ranges, wait_for_unpins, &v);", ";")]),
    "space-before-it-is-unpinned": ("short", [(EVICT, """	/* What other threads are unpinning is space too. */
	gdri_cache_unlock_and_wait(cache);
""", "	gdri_cache_unlock(cache);\n")]),
    "lost-without-lock": ("lost", [(ENTRY, """	pthread_mutex_lock(&cache->lost_lock);
	if (!cache->lost.rc)""", "	if (!cache->lost.rc)"), (ENTRY, """	atomic_store(&cache->any_lost, true);
	pthread_mutex_unlock(&cache->lost_lock);
""", "	atomic_store_explicit(&cache->any_lost, true, memory_order_relaxed);\n")]),
    "lost-forgotten": ("lost", [("src/cache/miss.c", " ?: gdri_cache_lost(cache);", ";"), (
        "src/cache/cache.c", "	rc = gdri_cache_lost(cache);\n", "	rc = 0;\n")]),
    # Memory that is freed stays mapped, or another thread's is unmapped.
    "trim-without-wait": ("trim", [(EVICT, """SIZE_MAX);
	gdri_cache_unlock_and_wait(cache);
""", "SIZE_MAX);\n	gdri_cache_unlock(cache);\n")]),
    "evictions-without-wait": ("limit", [("src/cache/miss.c", "	if (full)\n", "	if (0 && full)\n")]),
    "evictions-by-count-without-wait": ("limit", [("src/cache/miss.c", """ ||
			       cache->count >= cache->options.max_regions)""", ")")]),
    "found-before-the-mark": ("joined", [("src/cache/miss.c", "GDRI_CACHE_LIVE | GDRI_CACHE_FULL | 1", "GDRI_CACHE_LIVE | 1")]),
    "look-at-the-released": ("leftover", [("src/cache/cache.c", "if (e == TAILQ_FIRST(&cache->regions))\n", "if (e->listed)\n")]),
    "mark-not-looked-at": ("joined", [("src/cache/miss.c", "if (atomic_load(&cache->pinning_hit))", "if (0)")]),
    "mark-behind-the-table": ("joined", [(ENTRY, """	if (addr < atomic_load(&cache->pinning_high) && end > atomic_load(&cache->pinning_low))
		atomic_store(&cache->pinning_hit, true);
	for (; (e""", "	for (; (e"), (ENTRY, """		any |= e != former && doom(e, addr, end);
	return any;
""", """		any |= e != former && doom(e, addr, end);
	if (addr < atomic_load(&cache->pinning_high) && end > atomic_load(&cache->pinning_low))
		atomic_store(&cache->pinning_hit, true);
	return any;
""")]),
    "fixed-map-over-others": ("place", [(
        "src/backend/rm_range.c", "if (several && piece == MAP_FAILED)", "if (0)")]),
    # An entry is used again during a put that reads it.
    "name-retired-late": ("reuse", [
        (ENTRY, """	/* Here, not when it is freed, without the lock: last_user_left() looks at the name first. */
	gdri_slot_retire(&e->slot);
""", ""),
        (ENTRY, "	gdri_slots_free(&gdri_entries, &e->slot);", "	gdri_slot_retire(&e->slot);\n	gdri_slots_free(&gdri_entries, &e->slot);")]),
    # A lock that stays held, and a handle that has become another one.
    "loser-keeps-the-lock": ("close", [("src/core/ctx.c", """			return 0;
		pthread_mutex_unlock(&ctx->lock);
	}
	return gdri_slots_fail""", """			return 0;
	}
	return gdri_slots_fail""")]),
    "handle-of-another": ("table", [("src/core/handle.c", "if (gdri_slot_is(&handle->slot, h.h) && (!ctx", "if ((!ctx")]),
    # A child of fork() finds a lock held.
    "fork-without-locks": ("fork", [("src/base/process.c", "pthread_atfork(gdri_fork_hold, gdri_fork_release, in_child)",
                                     "pthread_atfork(NULL, NULL, in_child)")]),
    "fork-during-open": ("fork", [("src/cuda/watch.c", """	gdri_fork_hold(); /* as in search() */
	err = gdri_import_slots_locked_out(&slots);
	gdri_fork_release();
""", "	err = gdri_import_slots_locked_out(&slots);\n")]),
    "search-during-fork": ("verdict", [("src/cuda/watch.c", """		gdri_fork_hold();
		any = gdri_import_slots_find(gdri_cuda_library, "ioctl", &found);
		gdri_fork_release();
""", "		any = gdri_import_slots_find(gdri_cuda_library, \"ioctl\", &found);\n")]),
    "slot-written-during-fork": ("fork", [("src/cuda/watch.c", """	gdri_fork_hold();
	done = gdri_import_slot_write(&slots, slot, expected, value, false);
	gdri_fork_release();
""", "	done = gdri_import_slot_write(&slots, slot, expected, value, false);\n")]),
    # An entry, its name or its slot has become another one's.
    "put-without-the-name": ("reuse", [(EVICT, "gdri_slot_is(&e->slot, name) && e->cache == cache", "e->cache == cache")]),
    "hit-without-a-look": ("hit", [("src/cache/cache.h", """	if (e->cache == cache && gdri_entry_covers(e, addr, size) &&
	    gdri_entry_serves(cache, e, addr, size) &&
	    ((gdri_cache_is_notified(cache) && gdri_entry_has(e, addr, size)) ||
""", """	if ((gdri_cache_is_notified(cache) ||
""")]),
    "room-of-another-context": ("others", [(EVICT, " && cache->g == v->g", "")]),
    "cache-listed-without-lock": ("caches", [("src/cache/cache.c", """	LIST_INSERT_HEAD(&ctx->caches, cache, link);
	pthread_mutex_unlock(&ctx->lock);
""", """	pthread_mutex_unlock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->caches, cache, link);
""")]),
    "hit-of-another-piece": ("piece", [("src/cache/cache.h", """	if (e->cache == cache && gdri_entry_covers(e, addr, size) &&
""", """	if (e->cache == cache &&
""")]),
    "user-without-acquire": ("fresh", [("src/cache/cache.h", """							memory_order_acquire,
""", """							memory_order_relaxed,
""")]),
    "end-during-invalidations": ("next", [("src/cache/cache.c", """	while (atomic_load(&cache->invalidating))
		sched_yield();
	/* Regions""", "	/* Regions")]),
    "free-list-without-lock": ("table", [("src/base/slots.c", """	pthread_mutex_lock(&table->lock);
	slot->next_free = table->first_free;
	table->first_free = slot->index + 1;
	pthread_mutex_unlock(&table->lock);
""", """	slot->next_free = table->first_free;
	table->first_free = slot->index + 1;
""")]),
    "slots-made-without-lock": ("table", [("src/base/slots.c", """	pthread_mutex_lock(&table->lock);
	if (!table->count) {""", "	if (!table->count) {"), ("src/base/slots.c", """		table->first_free = slot->next_free;
	}
	pthread_mutex_unlock(&table->lock);
""", """		table->first_free = slot->next_free;
	}
""")]),
    "descriptor-opened-without-lock": ("fork", [("src/base/process.c", """	gdri_fork_hold();
	do
		fd""", """	do
		fd"""), ("src/base/process.c", """		fd = -1;
	}
	gdri_fork_release();
	errno""", """		fd = -1;
	}
	errno""")]),
    "descriptor-owned-without-lock": ("fork", [("src/base/process.c", """	gdri_fork_hold();
	rc = own_locked(fd);
	gdri_fork_release();
""", "	rc = own_locked(fd);\n")]),
    "tag-without-lock": ("verdict", [("src/base/process.c", """	gdri_fork_hold();
	rc = page ? 0 : make_page_locked();""", "	rc = page ? 0 : make_page_locked();"), ("src/base/process.c", """, ++last_tag, memory_order_relaxed);
	gdri_fork_release();""", ", ++last_tag, memory_order_relaxed);")]),
    "pages-given-without-lock": ("queue", [("src/cuda/alloc.c", """	pthread_mutex_lock(&idle_lock);
	while (*link && (*link)->size < p->size)
		link = &(*link)->next;
	p->next = *link;
	*link = p;
	pthread_mutex_unlock(&idle_lock);
""", """	while (*link && (*link)->size < p->size)
		link = &(*link)->next;
	p->next = *link;
	*link = p;
""")]),
    "pages-taken-without-lock": ("queues", [("src/cuda/alloc.c", """	int registered;

	pthread_mutex_lock(&idle_lock);
""", "	int registered;\n\n"), ("src/cuda/alloc.c", """			link = &p->next;
	}
	pthread_mutex_unlock(&idle_lock);
	return p;
""", """			link = &p->next;
	}
	return p;
""")]),
    # What is to end stays, or ends during a call that uses it.
    "call-on-an-ended-cache": ("next", [("src/calls/registry.c", """	if (rc || gdri_slot_is(&cache->slot, (uintptr_t)c))
		return rc;
""", """	if (rc || c)
		return rc;
""")]),
    "hit-of-an-ended-cache": ("next", [("src/calls/registry.c", "!gdri_slot_is(&cache->slot, (uintptr_t)c), 0", "0, 0")]),
    "closed-context-is-used": ("close", [(
        "src/core/ctx.c", "		if (gdri_slot_is(&ctx->slot, (uintptr_t)g))\n			return 0;", "		return 0;")]),
    "stale-name-keeps-the-lock": ("close", [("src/core/ctx.c", """			return 0;
		pthread_mutex_unlock(&ctx->lock);
""", "			return 0;\n")]),
    "doomed-are-left": ("doom", [(ENTRY, "} while (atomic_load(&cache->doomed) && !pthread_mutex_trylock(&cache->lock));",
                                  "} while (0);")]),
    "doomed-looked-at-before-the-unlock": ("doom", [(
        ENTRY, "atomic_thread_fence(memory_order_seq_cst);\n	while", "while")]),
    "released-looked-at-before-the-unlock": ("doom", [(ENTRY, """		pthread_mutex_unlock(&cache->ending);
		atomic_thread_fence(memory_order_seq_cst);
""", "		pthread_mutex_unlock(&cache->ending);\n")]),
    "covers-looked-at-without-lock": ("covered", [("src/cache/miss.c", """	gdri_cache_lock(cache);
	/* All regions:""", "	/* All regions:"), ("src/cache/miss.c", """			break;
	}
	gdri_cache_unlock(cache);
	return e;""", """			break;
	}
	gdri_cache_lock(cache);
	gdri_cache_unlock(cache);
	return e;""")]),
    "ranges-are-left": ("ranged", [(ENTRY, "	gdri_slots_each(&gdri_ranges, work_off, NULL);\n", "")]),
    "unpin-under-the-lock": ("hook", [(ENTRY, """		atomic_fetch_add(&cache->leaving, gdri_entry_bytes(e));
		push(&cache->released, e);
	} else {
		free_entry(e);
	}
""", """		unpin(cache, e);
	}
	free_entry(e);
""")]),
    "close-without-wait": ("memory", [("src/core/ctx.c", """	while ((*ctx)->calls)
		pthread_cond_wait(&(*ctx)->idle, &(*ctx)->lock);
""", "")]),
    "attempts-stepped-over": ("never", [(EVICT, "++attempts->failed >= MOST_ATTEMPTS", "++attempts->failed == MOST_ATTEMPTS")]),
    "ring-listed-without-lock": ("queue", [("src/queue/ring.c", """	pthread_mutex_lock(&ctx->lock);
	LIST_INSERT_HEAD(&ctx->rings, r, link);
	pthread_mutex_unlock(&ctx->lock);
""", "	LIST_INSERT_HEAD(&ctx->rings, r, link);\n")]),
    "handle-off-list-without-lock": ("abandon", [("src/queue/ring.c", """	pthread_mutex_lock(&r->ctx->lock);
	LIST_REMOVE(handle, link);
	pthread_mutex_unlock(&r->ctx->lock);
""", "	LIST_REMOVE(handle, link);\n")]),
    "ring-off-list-without-lock": ("port", [("src/queue/ring.c", """	pthread_mutex_lock(&r->ctx->lock);
	LIST_REMOVE(r, link);
	pthread_mutex_unlock(&r->ctx->lock);
""", "	LIST_REMOVE(r, link);\n")]),
    "first-open-beside-the-last-close": ("opens", [("src/cuda/alloc.c", """	pthread_mutex_lock(&holds_lock);
	if (!--holds) {
""", """	pthread_mutex_lock(&holds_lock);
	pthread_mutex_unlock(&holds_lock);
	if (!--holds) {
		pthread_mutex_lock(&holds_lock);
		pthread_mutex_unlock(&holds_lock);
"""), ("src/cuda/alloc.c", """		gdri_cuda_free_idle();
	}
	pthread_mutex_unlock(&holds_lock);
""", """		gdri_cuda_free_idle();
	}
""")]),
    "word-of-two-copies": ("engine", [("src/cuda/engine.c", """		if (!(atomic_fetch_or_explicit(&n->taken, word, memory_order_acquire) & word))
""", """		atomic_fetch_or(&n->taken, word);
		if (true)
""")]),
    # The verdict of a trial, and what rm shares.
    "verdict-without-lock": ("verdict", [(TRIAL, "	pthread_mutex_lock(&lock);\n", "	(void)lock;\n"),
                                         (TRIAL, "	pthread_mutex_unlock(&lock);\n", "")]),
    "verdict-for-ever": ("verdict", [(TRIAL, "!rc || attempt.wrong || attempt.lasting ? 0 : now + SECOND;", "0;")]),
    "trial-at-each-pin": ("verdict", [(TRIAL, "(!trial->again_ns || now < trial->again_ns)", "!trial->again_ns")]),
    "policy-without-lock": ("verdict", [("src/backend/rm.c", "	pthread_mutex_lock(&policy_lock);\n", ""),
                                        ("src/backend/rm.c", "	pthread_mutex_unlock(&policy_lock);\n", "	(void)policy_lock;\n")]),
    "client-ends-without-lock": ("client", [("src/backend/rm_client.c", "	if (ends)\n		session_close(&own);\n	pthread_mutex_unlock(&lock);\n",
                                             "	pthread_mutex_unlock(&lock);\n	if (ends)\n		session_close(&own);\n")]),
    "slots-without-order": ("verdict", [("src/cuda/watch.c", "&searched, true, memory_order_release", "&searched, true, memory_order_relaxed")]),
    "users-without-lock": ("room", [("src/backend/rm_client.c", """	pthread_mutex_lock(&lock);
	users--;
	pthread_mutex_unlock(&lock);
""", "	users--;\n")]),
    "descriptors-without-lock": ("stale", [("src/base/process.c", """	gdri_fork_hold();
	rc = own_locked(fd);
	gdri_fork_release();
""", "	rc = own_locked(fd);\n")]),
}


def plant(tree, build, name):
    """None if the fault is found; else what happened instead."""
    scenario, edits = FAULTS[name]
    saved = {}
    for path, text, other in edits:
        full = os.path.join(tree, path)
        with open(full, encoding="utf-8") as f:
            now = f.read()
        saved.setdefault(full, now)
        if now.count(text) != 1:
            return f"{path} has its text {now.count(text)} times"
        with open(full, "w", encoding="utf-8") as f:
            f.write(now.replace(text, other))
    try:
        made = subprocess.run(["make", "-s", f"O={build}", f"{build}/tests/explore"], cwd=tree, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if made.returncode:
            return f"does not compile:\n{made.stdout}"
        env = dict(os.environ, LD_LIBRARY_PATH=f"{build}/sim", LD_PRELOAD=f"{build}/sim/libnvidia_node.so",
                   GDRSIM_NODE="absent", EXPLORE_QUIET="1")
        ran = subprocess.run([f"{build}/tests/explore", scenario, "1", str(SEEDS)], env=env, text=True, check=False,
                             errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if ran.returncode != 1:
            return f"{SEEDS} schedules of {scenario} pass"
        why = re.search(r"^FAILED (.*)$", ran.stdout, re.M)
        print(f"# {name}: {why.group(1) if why else ran.stdout[-200:]}")
        return None
    finally:
        for full, text in saved.items():
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)


def stale():
    bad = [f"{name}: {path} has the text {n} times" for name, (_, edits) in FAULTS.items() for path, old, _ in edits
           for n in [open(path, encoding="utf-8").read().count(old)] if n != 1]
    print("\n".join(bad), end="\n" if bad else "")
    return bool(bad)


def main():
    if sys.argv[1:] == ["--stale"]:
        return stale()
    build, names = os.path.abspath(sys.argv[1]), sys.argv[2:] or list(FAULTS)
    failed = 0
    with tempfile.TemporaryDirectory(dir=build) as tmp:
        tree, mine = os.path.join(tmp, "tree"), os.path.join(tmp, "build")
        os.mkdir(tree)
        for entry in os.listdir("."):
            if entry in ("Makefile", "CHANGELOG.md") or (os.path.isdir(entry) and entry not in (".git", "build")):
                (shutil.copytree if os.path.isdir(entry) else shutil.copy)(entry, os.path.join(tree, entry))
        subprocess.run(["make", "-s", f"O={mine}", "sim", f"{mine}/tests/explore"], cwd=tree, check=True,
                       stdout=subprocess.DEVNULL)
        for name in names:
            why = plant(tree, mine, name)
            failed += why is not None
            print(f"{'not ok' if why else 'ok'} - {name}{': ' + why if why else ''}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
