# SPDX-License-Identifier: MIT
# Packages: deb, rpm, dist, check-packages; and the parts of an installation beyond the library and
# the tools: install-devel, install-man, install-completion, install-python, install-driver. Included by the main
# Makefile; including it twice does no harm.
ifndef PACKAGING_MK
PACKAGING_MK := 1

mandir ?= $(prefix)/share/man
completionsdir ?= $(prefix)/share/bash-completion/completions
pkgconfigdir ?= $(libdir)/pkgconfig
cmakedir ?= $(libdir)/cmake/barcopy
pythondir ?= $(prefix)/lib/python3/dist-packages
usrsrcdir ?= $(if $(filter /usr,$(prefix)),/usr/src,$(prefix)/src)
modulesloaddir ?= /usr/lib/modules-load.d
modprobedir ?= /usr/lib/modprobe.d
udevdir ?= /usr/lib/udev
DRIVER_SRC_DIR = $(usrsrcdir)/gdrdrv-$(VERSION)

# The interface level is the version without its last part.
PACK_LEVEL := $(basename $(VERSION))
pack_fill = sed -e 's|@VERSION@|$(VERSION)|g' -e 's|@LEVEL@|$(PACK_LEVEL)|g' \
	-e 's|@PREFIX@|$(prefix)|g' -e 's|@LIBDIR@|$(libdir)|g' \
	-e 's|@INCLUDEDIR@|$(includedir)|g' -e 's|@SONAME@|$(LIB_SONAME)|g' \
	-e 's|@REAL@|$(LIB_REAL)|g'

# ---- parts of an installation -------------------------------------------------------------------

.PHONY: install-devel install-man install-completion install-driver install-python install-parts \
	uninstall-parts

# pkg-config and CMake.
install-devel:
	$(INSTALL) -d $(DESTDIR)$(pkgconfigdir) $(DESTDIR)$(cmakedir)
	$(pack_fill) packaging/pkg-config/libgdrapi.pc.in >$(DESTDIR)$(pkgconfigdir)/libgdrapi.pc
	for f in barcopy-config barcopy-config-version; do \
		$(pack_fill) packaging/cmake/$$f.cmake.in >$(DESTDIR)$(cmakedir)/$$f.cmake || \
			exit 1; done
	chmod 644 $(DESTDIR)$(pkgconfigdir)/libgdrapi.pc $(DESTDIR)$(cmakedir)/*.cmake

# Pages, and the names under which a page is found too (man/links: NAME PAGE).
install-man:
	for s in 1 3 4 7; do \
		$(INSTALL) -d $(DESTDIR)$(mandir)/man$$s || exit 1; \
		for p in packaging/man/*.$$s; do \
			[ -e $$p ] || continue; \
			$(INSTALL) -m 644 $$p $(DESTDIR)$(mandir)/man$$s/ || exit 1; done; done
	while read -r name page; do \
		case $$name in ''|'#'*) continue ;; esac; \
		ln -sf $$page $(DESTDIR)$(mandir)/man$${page##*.}/$$name || exit 1; \
	done <packaging/man/links

install-completion:
	$(INSTALL) -d $(DESTDIR)$(completionsdir)
	$(INSTALL) -m 644 packaging/bash-completion/gdrcopy $(DESTDIR)$(completionsdir)/gdrcopy
	for t in $(notdir $(PERF_TOOLS)); do \
		ln -sf gdrcopy $(DESTDIR)$(completionsdir)/$$t || exit 1; done

# The Python module, where Debian's python3 looks for it; elsewhere pip install ./python knows.
install-python:
	$(INSTALL) -d $(DESTDIR)$(pythondir)/barcopy
	$(INSTALL) -m 644 python/barcopy/*.py $(DESTDIR)$(pythondir)/barcopy/

# The driver's source for DKMS, and what loads the module and sets its node's mode.
install-driver:
	$(INSTALL) -d $(DESTDIR)$(DRIVER_SRC_DIR) $(DESTDIR)$(modulesloaddir) \
		$(DESTDIR)$(modprobedir) $(DESTDIR)$(udevdir)/rules.d
	for f in gdrdrv/Kbuild gdrdrv/Makefile gdrdrv/*.[ch] ; do \
		$(INSTALL) -m 644 $$f $(DESTDIR)$(DRIVER_SRC_DIR)/ || exit 1; done
	for f in gdrdrv/*.sh packaging/dkms/*.sh; do \
		$(INSTALL) -m 755 $$f $(DESTDIR)$(DRIVER_SRC_DIR)/ || exit 1; done
	$(pack_fill) packaging/dkms/dkms.conf.in >$(DESTDIR)$(DRIVER_SRC_DIR)/dkms.conf
	chmod 644 $(DESTDIR)$(DRIVER_SRC_DIR)/dkms.conf
	$(INSTALL) -m 644 packaging/modules-load/barcopy.conf $(DESTDIR)$(modulesloaddir)/
	$(INSTALL) -m 644 packaging/modprobe/barcopy.conf $(DESTDIR)$(modprobedir)/
	$(INSTALL) -m 644 packaging/udev/70-gdrdrv.rules $(DESTDIR)$(udevdir)/rules.d/

# `make install` is for developers as much as for users: it brings all but the driver and the Python
# module, which is pip's.
install-parts: install-devel install-man install-completion

uninstall-parts:
	rm -f $(DESTDIR)$(pkgconfigdir)/libgdrapi.pc
	rm -rf $(DESTDIR)$(cmakedir)
	rm -f $(addprefix $(DESTDIR)$(completionsdir)/,gdrcopy $(notdir $(PERF_TOOLS)))
	for p in packaging/man/*.[1-9]; do \
		rm -f $(DESTDIR)$(mandir)/man$${p##*.}/$${p##*/}; done
	while read -r name page; do \
		case $$name in ''|'#'*) continue ;; esac; \
		rm -f $(DESTDIR)$(mandir)/man$${page##*.}/$$name; done <packaging/man/links

# ---- packages -------------------------------------------------------------------------------------

PACK_MAKE = $(MAKE) -f Makefile -f packaging/packaging.mk
PACK_ENV = VERSION='$(VERSION)' O='$(O)'

.PHONY: dist deb deb-module rpm check-packages check-packages-static
dist:
	@$(PACK_ENV) packaging/dist.sh

# Source and binary packages of this machine's architecture; DEB_ARCH=arm64 cross-builds.
deb:
	@$(PACK_ENV) DEB_ARCH='$(DEB_ARCH)' DEB_VERSION='$(DEB_VERSION)' packaging/deb.sh

# The module for given kernels, without DKMS: KDIR= SOURCE= NVIDIA_SRC= FLAVOR= SIGN=
deb-module:
	@$(PACK_ENV) KDIR='$(KDIR)' SOURCE='$(SOURCE)' NVIDIA_SRC='$(NVIDIA_SRC)' FLAVOR='$(FLAVOR)' SIGN='$(SIGN)' packaging/module.sh

rpm:
	@$(PACK_ENV) packaging/rpm.sh

# A root of its own, every package in it, the clients, the module, removal, upgrade. Needs root.
check-packages:
	@scripts/deps.sh install packages/run || :
	@tests/packages/run.sh '$(O)'

# What needs no root and no packages built: versions, pages, symbols, lint, completion.
check-packages-static: all
	@tests/packages/static.sh '$(O)'

# ---- what is stored and must follow the code --------------------------------------------------------

.PHONY: refresh-pages refresh-abi
# The tools' manual pages, from their --help.
refresh-pages: all
	@for t in $(notdir $(PERF_TOOLS)); do \
		extra=packaging/man/extra/$$t; \
		packaging/man/from-help.py $(O)/$$t $$([ -e $$extra ] && echo $$extra) \
			>packaging/man/$$t.1 || exit 1; done

# The dump that abidiff compares with, and the Debian symbols file: after an addition, never to hide
# a change of something published.
refresh-abi: lib
	@tests/packages/abi.sh refresh '$(O)' '$(VERSION)'

endif
