/* SPDX-License-Identifier: MIT */
/*
 * Subject: the kernel module gdrdrv and its node. The modules of barcopy and of NVIDIA have the
 * same name in /proc/devices and write the same "params". They differ in the list of pins, which
 * only barcopy's has, and in the node: a script makes that of NVIDIA's, with the number in
 * /proc/devices; the kernel makes that of barcopy's, a misc device with the number in /proc/misc,
 * and a script may make another as for NVIDIA's.
 */
#include <string.h>

#include "common/exit.h"
#include "doctor/doctor.h"

#define PROC "/proc/driver/gdrdrv/"

#define MISC_MAJOR 10 /* linux/major.h */

static void read_params(struct machine *m)
{
	char lines[1024], yes[8] = "";
	const char *at;

	/* each release has it (MODULE_VERSION); params begins with NVIDIA's 2.5 */
	root_text(m->root, "/sys/module/gdrdrv/version", lines, sizeof(lines));
	sscanf(lines, "%15s", m->gdrdrv.version);
	root_text(m->root, PROC "params", lines, sizeof(lines));
	at = strstr(lines, "Version:");
	if (at && !m->gdrdrv.version[0])
		sscanf(at, "Version: %15s", m->gdrdrv.version);
	at = strstr(lines, "Use persistent mapping:");
	if (at)
		sscanf(at, "Use persistent mapping: %7s", yes);
	m->gdrdrv.revocable = !strcmp(yes, "no");
}

/* The driver's number in a list of character devices; -1: none. Returns whether it could be read. */
static bool read_number(const struct machine *m, const char *path, int *number)
{
	char lines[8192], *line, *save = NULL, name[32];
	bool known = !root_text(m->root, path, lines, sizeof(lines));
	int n;

	*number = -1;
	for (line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (!strncmp(line, "Block", 5))
			break;
		if (sscanf(line, " %d %31s", &n, name) == 2 && !strcmp(name, "gdrdrv"))
			*number = n;
	}
	return known;
}

static void read_numbers(struct machine *m)
{
	bool devices = read_number(m, "/proc/devices", &m->gdrdrv.major);
	bool misc = read_number(m, "/proc/misc", &m->gdrdrv.misc);

	m->gdrdrv.numbers_known = devices && misc;
}

static void collect(struct machine *m)
{
	char word[128];

	m->gdrdrv.loaded =
		root_exists(m->root, "/sys/module/gdrdrv") || root_exists(m->root, PROC "params");
	read_params(m);
	read_numbers(m);
	m->gdrdrv.from_barcopy = root_exists(m->root, PROC "pins");
	root_number(m->root, PROC "nv_get_pages_refcount", &m->gdrdrv.pins);
	m->gdrdrv.init_script = root_exists(m->root, "/etc/init.d/gdrdrv");
	/* Secure Boot puts the kernel into lockdown */
	root_text(m->root, "/sys/module/module/parameters/sig_enforce", word, sizeof(word));
	m->gdrdrv.signed_only = word[0] == 'Y';
	root_text(m->root, "/sys/kernel/security/lockdown", word, sizeof(word));
	m->gdrdrv.signed_only |= strstr(word, "[integrity]") || strstr(word, "[confidentiality]");
}

static void not_loaded(const struct machine *m, struct report *r)
{
	finding(r, SEV_NOTE, NULL,
		"only the gdrdrv backend needs it, which maps cudaMalloc memory, and that of "
		"cuMemCreate made for GPUDirect RDMA",
		m->container[0]
			? text("to use it: load it on the host and %s", give_node(m, "/dev/gdrdrv"))
			: "to use it, as root: modprobe gdrdrv; if there is no such module, "
			  "install the package barcopy-dkms first: see gdrdrv(4)",
		"the kernel module gdrdrv is not loaded");
	if (m->gdrdrv.signed_only)
		finding(r, SEV_NOTE, NULL,
			"an unsigned gdrdrv is refused (\"Key was rejected by service\")",
			"have the firmware accept the key that DKMS signs with: mokutil --import "
			"/var/lib/dkms/mok.pub (Ubuntu: /var/lib/shim-signed/mok/MOK.der), then "
			"restart; or use rm, which needs no module",
			"this kernel loads signed modules only (Secure Boot or lockdown)");
}

static void check_module(const struct machine *m, struct report *r)
{
	const char *version = m->gdrdrv.version;
	bool old = version[0] == '1' && version[1] == '.';

	finding(r, old ? SEV_FAIL : SEV_OK, NULL,
		old ? "libgdrapi needs version 2.0 or newer"
		: m->gdrdrv.revocable
			? "freeing GPU memory revokes its mapping, and later accesses "
			  "raise SIGBUS: see use_persistent_mapping in gdrdrv(4)"
			: NULL,
		old ? "install a newer one, such as the package barcopy-dkms" : NULL,
		"%s gdrdrv is loaded, version %s",
		m->gdrdrv.from_barcopy ? "barcopy's" : "NVIDIA's",
		version[0] ? version : "unknown");
}

static bool leads_to_driver(const struct machine *m, const struct probe_node *n)
{
	return (n->major == MISC_MAJOR && n->minor == m->gdrdrv.misc) ||
	       (n->major == m->gdrdrv.major && !n->minor);
}

static const char *numbers(const struct machine *m)
{
	const char *misc =
		m->gdrdrv.misc < 0 ? "" : text("%d:%d (/proc/misc)", MISC_MAJOR, m->gdrdrv.misc);

	if (m->gdrdrv.major < 0)
		return misc;
	return text("%s%s%d:0 (/proc/devices)", misc, *misc ? " and " : "", m->gdrdrv.major);
}

/* A node that exists, of a module that is loaded. */
static void check_opens(const struct machine *m, struct report *r, const struct probe_node *n,
			const char *remake)
{
	bool stale = m->gdrdrv.numbers_known && !leads_to_driver(m, n);
	const char *means = NULL, *todo = NULL;

	if (stale) {
		means = text("the node is stale: the driver's is %s; this one was made by hand for "
			     "an earlier load of the module",
			     numbers(m));
		todo = m->container[0] ? "restart the container" : remake;
	} else if (n->error) {
		means = node_advice(m, n).means;
		todo = node_advice(m, n).todo;
	}
	finding(r, means ? SEV_FAIL : SEV_OK, NULL, means, todo,
		"/dev/gdrdrv (%d:%d, mode %04o, owner %d:%d) %s%s", n->major, n->minor, n->mode,
		n->uid, n->gid, n->error ? "cannot be opened: " : "opens",
		n->error ? strerror(n->error) : "");
}

static void check_node(const struct machine *m, struct report *r, const struct probe_node *n)
{
	bool is_misc = m->gdrdrv.misc >= 0;
	/* Not by loading the module again: pins, also those by free callbacks that ended, keep it. */
	const char *remake =
		text("as root: rm -f /dev/gdrdrv; mknod -m 666 /dev/gdrdrv c %d %d",
		     is_misc ? MISC_MAJOR : m->gdrdrv.major, is_misc ? m->gdrdrv.misc : 0);

	if (m->gdrdrv.loaded && m->gdrdrv.numbers_known && m->gdrdrv.major < 0 &&
	    m->gdrdrv.misc < 0)
		finding(r, SEV_FAIL, NULL, "it has no device that a node could lead to",
			"as root: modprobe -r gdrdrv; modprobe gdrdrv; then see the kernel log",
			"the loaded module is listed neither in /proc/devices nor in /proc/misc");
	else if (!n || !n->exists)
		finding(r, m->container[0] ? SEV_WARN : SEV_FAIL, NULL,
			"no program can use the gdrdrv backend",
			m->container[0] ? give_node(m, "/dev/gdrdrv")
			: is_misc || m->gdrdrv.major >= 0
				? remake
				: "as root: modprobe -r gdrdrv; modprobe gdrdrv",
			"/dev/gdrdrv is missing, though the module is loaded");
	else if (!m->gdrdrv.loaded)
		finding(r, SEV_WARN, NULL,
			"the node is a leftover of an earlier load, made by hand",
			"as root: rm /dev/gdrdrv",
			"/dev/gdrdrv exists, but the module is not loaded");
	else
		check_opens(m, r, n, remake);
}

static void check(const struct machine *m, struct report *r)
{
	const struct probe_node *n = probes_node(m->probe, "/dev/gdrdrv");
	bool works = false, wanted = false;

	for (const struct unit *u = m->unit; u < m->unit + m->units; u++) {
		works |= unit_works(u, "gdrdrv", NULL);
		wanted |= !u->probe || unit_takes_gdrdrv(u);
	}
	if (m->gdrdrv.loaded)
		check_module(m, r);
	else if (wanted && !m->tegra[0] && !m->wsl && !works)
		not_loaded(m, r);
	/* after a successful trial, files that contradict it are only hidden here */
	if (!works && (m->gdrdrv.loaded || (n && n->exists)))
		check_node(m, r, n);
	if (m->gdrdrv.init_script && (m->gdrdrv.from_barcopy || !m->gdrdrv.loaded))
		finding(r, SEV_WARN, NULL,
			"it makes the node by hand at start-up, where barcopy's module has the "
			"kernel make it, and can replace it by a stale one",
			"as root: apt purge gdrdrv-dkms, if NVIDIA's module is no longer used",
			"/etc/init.d/gdrdrv of NVIDIA's package is left behind");
	if (m->gdrdrv.pins > 0)
		finding(r, SEV_NOTE, NULL,
			"the module cannot be unloaded until they are unpinned; fuser -v "
			"/dev/gdrdrv shows the "
			"processes",
			NULL, "%lld range%s pinned through gdrdrv now", m->gdrdrv.pins,
			plural((unsigned long long)m->gdrdrv.pins));
}

const struct subject subject_gdrdrv = { "gdrdrv", "Kernel module gdrdrv", collect, check };
