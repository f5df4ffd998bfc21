/* SPDX-License-Identifier: MIT */
/*
 * Subject: the kernel module gdrdrv, its node, what is pinned through it. Ours and installed ones of
 * another origin write the same "params"; the list of pins is ours alone. It must not know backends.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/machine.h"

#define PROC "/proc/driver/gdrdrv/"

/* ---- facts ----------------------------------------------------------------------------------- */

/* The text behind "Name:" in a file of such lines; "" if there is none. */
static void value_of(const char *text, const char *name, char *value, size_t size)
{
	const char *at = strstr(text, name);

	value[0] = '\0';
	if (!at || (at != text && at[-1] != '\n'))
		return;
	at += strlen(name);
	at += strspn(at, " \t");
	snprintf(value, size, "%.*s", (int)strcspn(at, "\n"), at);
}

static void read_params(struct machine *m)
{
	struct gdrdrv_facts *d = &m->gdrdrv;
	char text[1024], yes[8];

	d->persistent = -1;
	if (root_text(m->root, PROC "params", text, sizeof(text)))
		return;
	value_of(text, "Version:", d->version, sizeof(d->version));
	value_of(text, "Built for NVIDIA driver flavor:", d->flavour, sizeof(d->flavour));
	value_of(text, "Use persistent mapping:", yes, sizeof(yes));
	if (yes[0])
		d->persistent = !strcmp(yes, "yes");
}

/* The driver's number among the character devices. */
static void read_major(struct machine *m)
{
	char text[8192], *line, *save = NULL, name[32];
	int major;

	m->gdrdrv.major = -1;
	if (root_text(m->root, "/proc/devices", text, sizeof(text)))
		return;
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (!strncmp(line, "Block", 5))
			return;
		if (sscanf(line, " %d %31s", &major, name) == 2 && !strcmp(name, "gdrdrv"))
			m->gdrdrv.major = major;
	}
}

/* "# tgid uid handle va bytes page_size ranges mapping state", then a line for each pin */
static void read_pins(struct machine *m)
{
	struct gdrdrv_facts *d = &m->gdrdrv;
	char text[65536], *line, *save = NULL, path[64];
	long long count;

	d->refcount_error = -root_number(m->root, PROC "nv_get_pages_refcount", &count);
	d->refcount = d->refcount_error ? -1 : (int)count;

	d->pins_error = -root_text(m->root, PROC "pins", text, sizeof(text));
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		struct pin pin = { 0 };

		if (sscanf(line, "%ld %*u %*s %*s %lld", &pin.pid, &pin.bytes) != 2 ||
		    pin.pid < 1 || pin.pid > 1 << 22 || pin.bytes < 1)
			continue; /* the heading, or not of our driver */

		snprintf(path, sizeof(path), "/proc/%ld", pin.pid);
		pin.alive = root_exists(m->root, path);
		if (d->pins < MAX_PINS)
			d->pin[d->pins] = pin;
		d->pins++;
	}
}

/* "updates/dkms/gdrdrv.ko.xz: kernel/..." in a list that may be large. */
static void find_installed(struct machine *m)
{
	enum { MOST = 4 << 20 };
	char path[160], *text;
	ssize_t n;

	if (!m->probe->release[0])
		return;
	text = malloc(MOST);
	if (!text)
		return;
	snprintf(path, sizeof(path), "/lib/modules/%s/modules.dep", m->probe->release);
	n = root_read(m->root, path, text, MOST);
	m->gdrdrv.installed = n > 0 && memmem(text, (size_t)n, "/gdrdrv.ko", 10);
	free(text);
}

static void collect(struct machine *m)
{
	char text[128];

	m->gdrdrv.loaded =
		root_exists(m->root, "/sys/module/gdrdrv") || root_exists(m->root, PROC "params");
	read_params(m);
	read_major(m);
	read_pins(m);
	if (!m->gdrdrv.loaded)
		find_installed(m);
	if (!root_text(m->root, "/sys/module/module/parameters/sig_enforce", text, sizeof(text)) &&
	    text[0] == 'Y')
		m->gdrdrv.signed_only = true;
	if (!root_text(m->root, "/sys/kernel/security/lockdown", text, sizeof(text)) &&
	    (strstr(text, "[integrity]") || strstr(text, "[confidentiality]")))
		m->gdrdrv.signed_only = true;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool other_backend_works(const struct machine *m)
{
	for (int i = 0; i < m->units; i++)
		if (unit_serves(&m->unit[i], "dmabuf") || unit_serves(&m->unit[i], "rm"))
			return true;
	return false;
}

static void not_loaded(const struct machine *m, struct report *r)
{
	struct finding *f;

	f = report_add(r, SEV_NOTE, NULL, "the kernel module gdrdrv is not loaded%s",
		       m->gdrdrv.installed ? ", but installed for this kernel" : "");
	finding_means(f, "the gdrdrv backend cannot serve%s",
		      other_backend_works(m) ? "; others do, so it may not be needed" : "");
	if (m->container.is)
		finding_todo(f,
			     "if it is wanted: load it on the host, and start the container with "
			     "--device /dev/gdrdrv");
	else if (m->gdrdrv.installed)
		finding_todo(f, "if it is wanted, as root: modprobe gdrdrv");
	else
		finding_todo(f,
			     "if it is wanted: install the package barcopy-dkms (docs/install.md)");
	if (m->gdrdrv.signed_only) {
		f = report_add(r, SEV_NOTE, NULL, "this kernel loads signed modules only");
		finding_means(f, "a module that is built here must be signed with a key that the "
				 "firmware knows, or it is refused (\"Key was rejected by "
				 "service\")");
		finding_todo(f, "docs/install.md, \"Secure Boot\"; the backends dmabuf and rm "
				"need no module");
	}
}

static void check_module(const struct machine *m, struct report *r)
{
	const struct gdrdrv_facts *d = &m->gdrdrv;
	int major = 0;
	struct finding *f;

	if (!d->loaded) {
		if (machine_has_gpu(m) && !m->tegra.is)
			not_loaded(m, r);
		return;
	}
	f = report_add(r, SEV_OK, NULL, "the kernel module gdrdrv is loaded%s%s%s%s%s",
		       d->version[0] ? ", level " : "", d->version,
		       d->flavour[0] ? ", built for the " : "",
		       !strcmp(d->flavour, "opensource") ? "open" : d->flavour,
		       d->flavour[0] ? " GPU driver" : "");
	if (!machine_has_gpu(m))
		finding_means(f, "there is no GPU for it to serve");
	if (sscanf(d->version, "%d", &major) == 1 && major < 2) {
		f = report_add(r, SEV_FAIL, NULL, "gdrdrv of level %s is too old", d->version);
		finding_means(f, "the library takes level 2.0 and newer");
		finding_todo(f, "install a newer one (docs/install.md)");
	}
	if (d->persistent == 1) {
		f = report_add(r, SEV_OK, NULL, "its pins are persistent");
		finding_means(f, "a mapping outlives the free of its memory");
	} else if (d->persistent == 0) {
		f = report_add(r, SEV_NOTE, NULL, "its pins are not persistent");
		finding_means(f, "when GPU memory is freed its mapping is revoked, and a copy ends "
				 "in SIGBUS; gdr_get_callback_flag() tells");
		finding_todo(f, "if that is not wanted: use_persistent_mapping=1, gdrdrv(4)");
	}
}

static void check_node(const struct machine *m, struct report *r)
{
	const struct probe_node *n = probes_node(m->probe, "/dev/gdrdrv");
	const struct gdrdrv_facts *d = &m->gdrdrv;
	struct finding *f;

	if (!m->probed || (!d->loaded && !(n && n->exists)))
		return;
	if (!n || !n->exists) {
		f = report_add(r, m->container.is ? SEV_WARN : SEV_FAIL, NULL,
			       "/dev/gdrdrv is missing, though the module is loaded");
		finding_means(f, "no program can use the gdrdrv backend");
		if (m->container.is)
			finding_todo(f, "start the container with --device /dev/gdrdrv");
		else if (d->major >= 0)
			finding_todo(f,
				     "as root: mknod -m 666 /dev/gdrdrv c %d 0 (a module of "
				     "another origin; ours makes its node)",
				     d->major);
		else
			finding_todo(f, "as root: modprobe -r gdrdrv, then modprobe gdrdrv");
		return;
	}
	if (!n->error) {
		report_add(r, SEV_OK, NULL, "/dev/gdrdrv: mode %04o, owner %d:%d, opens", n->mode,
			   n->uid, n->gid);
		return;
	}
	f = report_add(r, SEV_FAIL, NULL,
		       "/dev/gdrdrv: mode %04o, owner %d:%d, cannot be opened: %s", n->mode, n->uid,
		       n->gid, strerror(n->error));
	if (n->error == EPERM) {
		finding_means(f, "the mode is not what forbids it: a device cgroup does");
		finding_todo(f, "start the container with --device /dev/gdrdrv");
	} else if (n->error == EACCES) {
		finding_means(f, "this user (%d) may not use it", m->probe->euid);
		finding_todo(f,
			     "join the group %d, or change the mode by a udev rule "
			     "(docs/install.md, \"Start-up and permissions\")",
			     n->gid);
	} else if (d->major >= 0 && d->major != n->major) {
		finding_means(f,
			      "its number is %d:%d, the driver's is %d: it was made by hand for "
			      "an earlier load of the module",
			      n->major, n->minor, d->major);
		finding_todo(f, "as root: rm /dev/gdrdrv; mknod -m 666 /dev/gdrdrv c %d 0",
			     d->major);
	} else {
		finding_means(f, d->loaded ? "the driver refuses"
					   : "the module is not loaded; the node was left behind");
		finding_todo(f, d->loaded ? "look into the kernel's log for gdrdrv"
					  : "as root: modprobe gdrdrv");
	}
}

static void check_pins(const struct machine *m, struct report *r)
{
	const struct gdrdrv_facts *d = &m->gdrdrv;
	int listed = d->pins < MAX_PINS ? d->pins : MAX_PINS;
	struct finding *f;

	if (!d->loaded)
		return;
	if (d->refcount == 0 || (d->refcount < 0 && !d->pins_error && !d->pins)) {
		report_add(r, SEV_OK, NULL, "nothing is pinned through gdrdrv now");
		return;
	}
	if (d->refcount < 0 && d->pins_error) {
		if (d->refcount_error != EACCES && d->pins_error != EACCES)
			return; /* not shown here, or not by this driver */
		f = report_add(r, SEV_UNKNOWN, NULL, "what is pinned through gdrdrv");
		if (!m->container.is)
			finding_todo(f, "run this as root to see it");
		return;
	}
	for (int i = 0; i < listed; i++) {
		if (d->pin[i].alive) {
			report_add(r, SEV_NOTE, NULL, "process %ld has %s pinned", d->pin[i].pid,
				   bytes_text(d->pin[i].bytes));
			continue;
		}
		f = report_add(r, SEV_WARN, NULL, "%s pinned for process %ld, which is not there",
			       bytes_text(d->pin[i].bytes), d->pin[i].pid);
		finding_means(f,
			      "another process still holds the descriptor (a forked child, or one "
			      "to which it was sent)%s; the GPU memory stays in use",
			      m->container.is ? ", or the process is outside this container" : "");
		finding_todo(f, "fuser -v /dev/gdrdrv names who has it open; ending that process "
				"frees the memory");
	}
	if (d->pins > listed)
		report_add(r, SEV_NOTE, NULL, "and %d more pins", d->pins - listed);
	if (d->refcount > d->pins && !d->pins_error) {
		f = report_add(r, SEV_WARN, NULL, "the GPU driver counts %d pin%s, the list has %d",
			       d->refcount, d->refcount == 1 ? "" : "s", d->pins);
		finding_means(f,
			      "pins without a descriptor wait for the GPU driver's callback: they "
			      "end at the latest with the GPU context of their owner; until then "
			      "gdrdrv cannot be unloaded");
	} else if (d->pins_error) {
		f = report_add(r, SEV_NOTE, NULL, "%d pin%s through gdrdrv", d->refcount,
			       d->refcount == 1 ? "" : "s");
		finding_means(f, "whose, this module or user cannot tell: %s",
			      strerror(d->pins_error));
	}
}

static const struct check checks[] = {
	{ "module", check_module },
	{ "node", check_node },
	{ "pins", check_pins },
	{ NULL, NULL },
};

const struct subject subject_gdrdrv = { "gdrdrv", "Kernel module gdrdrv", collect, checks };
