/* SPDX-License-Identifier: MIT */
/* Device nodes that refuse. It must not know which subject needs which. */
#include <errno.h>

#include "doctor/subjects.h"

bool node_refused(const struct machine *m, const struct probe_node *n, const char **means,
		  const char **todo)
{
	if (n->error == EPERM) {
		*means = "a device cgroup forbids it, not the mode";
		*todo = text(m->container[0]
				     ? "start the container with --device %s"
				     : "allow it to this service (systemd: DeviceAllow=%s rw)",
			     n->path);
	} else if (n->error == EACCES) {
		*means = text("this user (%d) may not use it", m->probe->euid);
		*todo = text("join the group %d (%s), or change the node's mode: see gdrdrv(4) for "
			     "/dev/gdrdrv, NVreg_DeviceFileMode of the GPU driver for its nodes",
			     n->gid, n->path);
	} else if (n->error == ENXIO || n->error == ENODEV || n->error == ENOTTY) {
		*means = n->error == ENOTTY
				 ? "it is not a device node"
				 : text("the number %d:%d belongs to no driver: the node is "
					"a leftover",
					n->major, n->minor);
		*todo = text("as root: rm %s, then nvidia-modprobe -u -c 0 and nvidia-smi",
			     n->path);
	} else {
		*means = "the driver refuses";
		*todo = "look for NVRM, Xid and gdrdrv in the kernel log";
	}
	return n->error;
}
