# SPDX-License-Identifier: MIT
# The driver's targets, for the project's Makefile to include. Needs O (build directory), V.
#
#   driver              gdrdrv.ko for KDIR=, SOURCE= and NVIDIA_SRC= (see gdrdrv/Makefile)
#   check-kernel        the driver in an emulated machine, quick tier
#   check-kernel-full   every kernel, generation and flavour; the checking kernel; coverage

# run.sh exits with 77 when it cannot run and nothing had failed: counted as skipped, not as failed.

kernel-mk-dir := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))

.PHONY: driver check-kernel check-kernel-full

driver:
	+$(MAKE) -C $(kernel-mk-dir)/../../gdrdrv O=$(abspath $(O))/gdrdrv \
		$(foreach v,KDIR NVIDIA_SRC,$(if $($(v)),$(v)="$(abspath $($(v)))")) \
		$(foreach v,SOURCE FLAVOR ARCH CROSS_COMPILE V W,$(if $($(v)),$(v)="$($(v))"))

# Without a package the rest runs all the same, and run.sh says what was not run.
check-kernel:
	@scripts/deps.sh install kernel/6.1 kernel/6.12 kernel/arm64 || :
	@O=$(abspath $(O)) $(kernel-mk-dir)/run.sh quick || [ $$? = 77 ]

check-kernel-full:
	@scripts/deps.sh install kernel-full || :
	@O=$(abspath $(O)) $(kernel-mk-dir)/run.sh full || [ $$? = 77 ]
