/* SPDX-License-Identifier: MIT */
/*
 * Subject: the modules through which RDMA adapters reach GPU memory, of which only one can be loaded.
 * Source: GPUDirect RDMA guide 12.7 and 10. barcopy needs none of them.
 */
#include "doctor/machine.h"

static void collect(struct machine *m)
{
	struct root_names names;

	m->peermem.nvidia_peermem = root_exists(m->root, "/sys/module/nvidia_peermem");
	m->peermem.nv_peer_mem = root_exists(m->root, "/sys/module/nv_peer_mem");
	if (!root_list(m->root, "/sys/class/infiniband", &names)) {
		m->peermem.rdma = names.count;
		root_names_free(&names);
	}
}

static void check_peermem(const struct machine *m, struct report *r)
{
	struct finding *f;

	if (m->peermem.nvidia_peermem && m->peermem.nv_peer_mem) {
		f = report_add(r, SEV_WARN, NULL, "nvidia-peermem and nv_peer_mem are both loaded");
		finding_means(f,
			      "they do the same for RDMA adapters, and only one may be loaded at "
			      "any time (guide 12.7)");
		finding_todo(f, "keep nvidia-peermem; as root: service nv_peer_mem stop; rmmod "
				"nv_peer_mem; then uninstall it (dpkg -P nvidia-peer-memory "
				"nvidia-peer-memory-dkms, or rpm -e nvidia_peer_memory)");
	} else if (m->peermem.nv_peer_mem) {
		f = report_add(r, SEV_NOTE, NULL, "nv_peer_mem is loaded");
		finding_means(f,
			      "deprecated since GPU driver R470; while it is loaded nvidia-peermem "
			      "cannot be (guide 10, 12.7)");
		finding_todo(f, "replace it by nvidia-peermem, which comes with the GPU driver");
	} else if (m->peermem.nvidia_peermem) {
		f = report_add(r, SEV_OK, NULL, "nvidia-peermem is loaded");
		finding_means(f, "RDMA adapters reach GPU memory through it; barcopy does not need "
				 "it, and neither is in the other's way");
	} else if (m->peermem.rdma && machine_has_gpu(m)) {
		f = report_add(
			r, SEV_NOTE, NULL,
			"there are RDMA adapters, and neither nvidia-peermem nor nv_peer_mem "
			"is loaded");
		finding_means(f,
			      "programs reach GPU memory from an adapter by dma-buf then, or not "
			      "at all; barcopy needs none of them");
		finding_todo(f, "if it is wanted, as root: modprobe nvidia-peermem");
	}
}

static const struct check checks[] = {
	{ "peermem", check_peermem },
	{ NULL, NULL },
};

const struct subject subject_peermem = { "peermem", "RDMA adapters", collect, checks };
