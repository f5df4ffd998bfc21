# SPDX-License-Identifier: MIT
# The target "driver": gdrdrv.ko for KDIR= and NVIDIA_SRC= (gdrdrv/Makefile).

.PHONY: driver
driver:
	+$(needs_plain_path)$(MAKE) -C gdrdrv O=$(abspath $(O))/gdrdrv \
		$(foreach v,KDIR NVIDIA_SRC,$(if $($(v)),$(v)="$(abspath $($(v)))")) \
		$(foreach v,FLAVOR ARCH CROSS_COMPILE V W,$(if $($(v)),$(v)="$($(v))"))
