# SPDX-License-Identifier: MIT
# The driver, for the project's Makefile to include: gdrdrv.ko for KDIR=, SOURCE= and NVIDIA_SRC= (see
# gdrdrv/Makefile). tests/kernel/run.sh runs it in an emulated machine.

.PHONY: driver
driver:
	+$(MAKE) -C gdrdrv O=$(abspath $(O))/gdrdrv \
		$(foreach v,KDIR NVIDIA_SRC,$(if $($(v)),$(v)="$(abspath $($(v)))")) \
		$(foreach v,SOURCE FLAVOR ARCH CROSS_COMPILE V W,$(if $($(v)),$(v)="$($(v))"))
