/* SPDX-License-Identifier: MIT */
/*
 * Subject: the kernel module gdrdrv and its node. barcopy's and NVIDIA's write the same "params" and
 * are listed in /proc/devices by the same name; the node of barcopy's is made by the kernel, that of
 * NVIDIA's by a script, and the list of pins is barcopy's alone. It must not know backends.
 */
#include <string.h>

#include "doctor/subjects.h"

#define PROC "/proc/driver/gdrdrv/"

static void read_params(struct machine *m)
{
	char lines[1024], yes[8] = "";
	const char *at;

	root_text(m->root, PROC "params", lines, sizeof(lines));
	at = strstr(lines, "Version:");
	if (at)
		sscanf(at, "Version: %15s", m->gdrdrv.version);
	at = strstr(lines, "Use persistent mapping:");
	if (at)
		sscanf(at, "Use persistent mapping: %7s", yes);
	m->gdrdrv.revocable = !strcmp(yes, "no");
}

/* The driver's number among the character devices. */
static void read_major(struct machine *m)
{
	char lines[8192], *line, *save = NULL, name[32];
	int major;

	m->gdrdrv.major = -1;
	m->gdrdrv.devices_known = !root_text(m->root, "/proc/devices", lines, sizeof(lines));
	for (line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (!strncmp(line, "Block", 5))
			return;
		if (sscanf(line, " %d %31s", &major, name) == 2 && !strcmp(name, "gdrdrv"))
			m->gdrdrv.major = major;
	}
}

static void collect(struct machine *m)
{
	char word[128];

	m->gdrdrv.loaded =
		root_exists(m->root, "/sys/module/gdrdrv") || root_exists(m->root, PROC "params");
	read_params(m);
	read_major(m);
	m->gdrdrv.ours = root_exists(m->root, PROC "pins");
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
	report_add(r, SEV_NOTE, NULL, "the kernel module gdrdrv is not loaded",
		   "only the gdrdrv backend needs it, which serves every kind of GPU memory",
		   m->container[0]
			   ? "to use it: load it on the host and start the container with "
			     "--device /dev/gdrdrv"
			   : "to use it, as root: modprobe gdrdrv; if there is no such module, "
			     "install the package barcopy-dkms first: see gdrdrv(4)");
	if (m->gdrdrv.signed_only)
		report_add(
			r, SEV_NOTE, NULL,
			"this kernel loads signed modules only (Secure Boot or lockdown)",
			"an unsigned gdrdrv is refused (\"Key was rejected by service\")",
			"have the firmware accept the key that DKMS signs with: mokutil --import "
			"/var/lib/dkms/mok.pub (Ubuntu: /var/lib/shim-signed/mok/MOK.der), then "
			"restart; or use rm, which needs no module");
}

static void check_module(const struct machine *m, struct report *r)
{
	bool old = m->gdrdrv.version[0] == '1' && m->gdrdrv.version[1] == '.';

	report_add(r, old ? SEV_FAIL : SEV_OK, NULL,
		   text("%s gdrdrv is loaded, version %s",
			m->gdrdrv.ours ? "barcopy's" : "NVIDIA's",
			m->gdrdrv.version[0] ? m->gdrdrv.version : "unknown"),
		   old ? "libgdrapi needs version 2.0 or newer"
		   : m->gdrdrv.revocable
			   ? "freeing GPU memory revokes its mapping, and later accesses "
			     "raise SIGBUS: see use_persistent_mapping in gdrdrv(4)"
			   : NULL,
		   old ? "install a newer one, such as the package barcopy-dkms" : NULL);
}

static void check_node(const struct machine *m, struct report *r)
{
	const struct probe_node *n = probes_node(m->probe, "/dev/gdrdrv");
	const char *found, *means = NULL, *todo = NULL;

	if (m->gdrdrv.loaded && m->gdrdrv.devices_known && m->gdrdrv.major < 0) {
		report_add(r, SEV_FAIL, NULL, "the loaded module is not listed in /proc/devices",
			   "it has no device that a node could lead to",
			   "as root: modprobe -r gdrdrv; modprobe gdrdrv; then see the kernel log");
		return;
	}
	todo = m->gdrdrv.ours ? "as root: rm -f /dev/gdrdrv; modprobe -r gdrdrv; modprobe gdrdrv, "
				"which has the kernel make the node"
			      : text("as root: rm -f /dev/gdrdrv; mknod -m 666 /dev/gdrdrv c %d 0",
				     m->gdrdrv.major);
	if (!n || !n->exists) {
		report_add(r, m->container[0] ? SEV_WARN : SEV_FAIL, NULL,
			   "/dev/gdrdrv is missing, though the module is loaded",
			   "no program can use the gdrdrv backend",
			   m->container[0]	  ? "start the container with --device /dev/gdrdrv"
			   : m->gdrdrv.major >= 0 ? todo
						  : "as root: modprobe -r gdrdrv; modprobe gdrdrv");
		return;
	}
	found = text("/dev/gdrdrv (%d:%d, mode %04o, owner %d:%d) %s%s", n->major, n->minor,
		     n->mode, n->uid, n->gid, n->error ? "cannot be opened: " : "opens",
		     n->error ? strerror(n->error) : "");
	if (!m->gdrdrv.loaded)
		report_add(r, SEV_WARN, NULL, "/dev/gdrdrv exists, but the module is not loaded",
			   "the node is a leftover of an earlier load, made by hand",
			   "as root: rm /dev/gdrdrv");
	else if (m->gdrdrv.devices_known && n->major != m->gdrdrv.major)
		report_add(
			r, SEV_FAIL, NULL, found,
			text("the node is stale: the driver's major number is %d (/proc/devices); "
			     "the node was made by hand for an earlier load of the module",
			     m->gdrdrv.major),
			m->container[0] ? "restart the container" : todo);
	else if (node_refused(m, n, &means, &todo))
		report_add(r, SEV_FAIL, NULL, found, means, todo);
	else
		report_add(r, SEV_OK, NULL, found, NULL, NULL);
}

static void check(const struct machine *m, struct report *r)
{
	const struct probe_node *n = probes_node(m->probe, "/dev/gdrdrv");
	bool works = false;

	for (const struct unit *u = m->unit; u < m->unit + m->units; u++)
		works |= unit_works(u, "gdrdrv", NULL);
	if (m->gdrdrv.loaded)
		check_module(m, r);
	else if (m->units && !m->tegra[0] && !m->wsl && !works)
		not_loaded(m, r);
	/* where a trial worked, files that say otherwise are hidden here */
	if (m->probed && !works && (m->gdrdrv.loaded || (n && n->exists)))
		check_node(m, r);
	if (m->gdrdrv.init_script && (m->gdrdrv.ours || !m->gdrdrv.loaded))
		report_add(r, SEV_WARN, NULL,
			   "/etc/init.d/gdrdrv of NVIDIA's package is left behind",
			   "it makes the node by hand at start-up, where barcopy's module has the "
			   "kernel make it, and can replace it by a stale one",
			   "as root: apt purge gdrdrv-dkms, if NVIDIA's module is no longer used");
	if (m->gdrdrv.pins > 0)
		report_add(
			r, SEV_NOTE, NULL,
			text("%lld range%s pinned through gdrdrv now", m->gdrdrv.pins,
			     m->gdrdrv.pins == 1 ? "" : "s"),
			"the module cannot be unloaded meanwhile; fuser -v /dev/gdrdrv shows the "
			"processes",
			NULL);
}

const struct subject subject_gdrdrv = { "gdrdrv", "Kernel module gdrdrv", collect, check };
