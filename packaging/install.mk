# SPDX-License-Identifier: MIT
# Installation: `make install`, its parts, and the driver. Packages use the same targets.

mandir ?= $(prefix)/share/man
docdir ?= $(prefix)/share/doc/barcopy
examplesdir ?= $(docdir)/examples
completionsdir ?= $(prefix)/share/bash-completion/completions
pkgconfigdir ?= $(libdir)/pkgconfig
cmakedir ?= $(libdir)/cmake/barcopy
pythondir ?= $(prefix)/lib/python3/dist-packages
usrsrcdir ?= $(if $(filter /usr,$(prefix)),/usr/src,$(prefix)/src)
modprobedir ?= /usr/lib/modprobe.d
dracutdir ?= /usr/lib/dracut/dracut.conf.d
udevdir ?= /usr/lib/udev
$(call one_word,mandir docdir examplesdir completionsdir pkgconfigdir cmakedir pythondir usrsrcdir modprobedir \
	dracutdir udevdir)
DRIVER_SRC_DIR = $(usrsrcdir)/gdrdrv-$(VERSION)

# The interface level is the version without its last part.
PACK_LEVEL := $(basename $(VERSION))
pack_fill = sed -e 's|@VERSION@|$(VERSION)|g' -e 's|@LEVEL@|$(PACK_LEVEL)|g' \
	-e 's|@PREFIX@|$(prefix)|g' -e 's|@LIBDIR@|$(libdir)|g' \
	-e 's|@INCLUDEDIR@|$(includedir)|g' -e 's|@SONAME@|$(LIB_SONAME)|g' \
	-e 's|@REAL@|$(LIB_REAL)|g'

# ---- make install ----

.PHONY: install install-man uninstall lib_install exes_install
lib_install: lib
	$(INSTALL) -d $(DESTDIR)$(libdir) $(DESTDIR)$(includedir)
	$(INSTALL) -m 755 $(LIB) $(DESTDIR)$(libdir)/$(LIB_REAL)
	ln -sf $(LIB_REAL) $(DESTDIR)$(libdir)/$(LIB_SONAME)
	ln -sf $(LIB_SONAME) $(DESTDIR)$(libdir)/libgdrapi.so
	$(INSTALL) -m 644 $(LIB_STATIC) $(DESTDIR)$(libdir)/libgdrapi.a
	for h in $(PUBLIC_HEADERS); do \
		$(INSTALL) -m 644 include/$$h $(DESTDIR)$(includedir)/$$h || exit 1; done

# GDRCopy's earlier names of its tools, of which it still has all but pplat.
PLAIN_NAMES := apiperf copybw copylat pplat sanity

exes_install: tools
	$(INSTALL) -d $(DESTDIR)$(bindir)
	for t in $(notdir $(TOOLS)); do \
		$(INSTALL) -m 755 $(O)/installed/$$t $(DESTDIR)$(bindir)/$$t || exit 1; done
	for t in $(PLAIN_NAMES); do ln -sf gdrcopy_$$t $(DESTDIR)$(bindir)/$$t || exit 1; done

# The tools' pages are their --help, where python3 is installed; MAN_FROM is a build whose tools run here.
MAN_FROM ?= $(O)
TOOL_PAGES := $(if $(shell command -v $(PYTHON)),$(patsubst $(O)/%,$(O)/man/%.1,$(TOOLS)))
all install-man: $(TOOL_PAGES)
$(TOOL_PAGES): $(O)/man/%.1: $(O)/% packaging/man/from-help.py
	$(call say,MAN,$@)
	$(Q)mkdir -p $(@D)
	$(Q)LD_LIBRARY_PATH=$(MAN_FROM) $(PYTHON) -B packaging/man/from-help.py $(MAN_FROM)/$* >$@.part 2>/dev/null && \
		mv -f $@.part $@ || { rm -f $@.part; echo "$* does not run here: no manual page (MAN_FROM=)" >&2; }

# NAME.SECTION=PAGE: the other names of a page, which are in its NAME section.
MAN_PAGES := $(wildcard packaging/man/*.[1-9])
MAN_LINKS = $(foreach t,$(if $(TOOL_PAGES),$(PLAIN_NAMES)),$(t).1=gdrcopy_$(t).1) $(shell awk ' \
	FNR == 1 { page = FILENAME; sub(/.*\//, "", page); section = page; sub(/.*\./, "", section) } \
	$$1 == ".Sh" { named = $$2 == "NAME" } \
	named && $$1 == ".Nm" && $$2 "." section != page { print $$2 "." section "=" page }' $(MAN_PAGES))

install-man:
	$(INSTALL) -d $(addprefix $(DESTDIR)$(mandir)/man,1 $(sort $(patsubst .%,%,$(suffix $(MAN_PAGES)))))
	for p in $(MAN_PAGES) $(TOOL_PAGES); do [ -e $$p ] || continue; \
		$(INSTALL) -m 644 $$p $(DESTDIR)$(mandir)/man$${p##*.}/ || exit 1; done
	for l in $(MAN_LINKS); do \
		ln -sf $${l#*=} $(DESTDIR)$(mandir)/man$${l##*.}/$${l%=*} || exit 1; done

# The documents and the files that they link to, in the same directories, so that the links work.
DOC_TOP ?= README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE
DOC_FILES := $(DOC_TOP) $(wildcard docs/*.md docs/*.html docs/results/*.md docs/results/*.json packaging/container/*)
EXAMPLE_FILES := $(wildcard examples/*.[ch] examples/*.cu examples/*.py)

# Everything but the driver, which is built for one kernel or by DKMS, and the Python module.
install: lib_install exes_install install-man
	$(INSTALL) -d $(DESTDIR)$(pkgconfigdir) $(DESTDIR)$(cmakedir)
	$(pack_fill) packaging/pkg-config/libgdrapi.pc.in >$(DESTDIR)$(pkgconfigdir)/libgdrapi.pc
	for f in barcopy-config barcopy-config-version; do \
		$(pack_fill) packaging/cmake/$$f.cmake.in >$(DESTDIR)$(cmakedir)/$$f.cmake || \
			exit 1; done
	chmod 644 $(DESTDIR)$(pkgconfigdir)/libgdrapi.pc $(DESTDIR)$(cmakedir)/*.cmake
	$(INSTALL) -d $(DESTDIR)$(completionsdir)
	$(INSTALL) -m 644 packaging/bash-completion/gdrcopy $(DESTDIR)$(completionsdir)/gdrcopy
	for t in $(notdir $(TOOLS)); do \
		ln -sf gdrcopy $(DESTDIR)$(completionsdir)/$$t || exit 1; done
	for f in $(DOC_FILES); do \
		$(INSTALL) -d $(DESTDIR)$(docdir)/$$(dirname $$f) && \
		$(INSTALL) -m 644 $$f $(DESTDIR)$(docdir)/$$f || exit 1; done
	$(INSTALL) -d $(DESTDIR)$(examplesdir)
	$(INSTALL) -m 644 $(EXAMPLE_FILES) $(DESTDIR)$(examplesdir)/

# Removes the installed files, and directories that are then empty.
uninstall:
	rm -f $(addprefix $(DESTDIR)$(libdir)/,$(LIB_REAL) $(LIB_SONAME) libgdrapi.so libgdrapi.a)
	rm -f $(addprefix $(DESTDIR)$(includedir)/,$(PUBLIC_HEADERS))
	rm -f $(addprefix $(DESTDIR)$(bindir)/,$(notdir $(TOOLS)))
	for t in $(PLAIN_NAMES); do f=$(DESTDIR)$(bindir)/$$t; \
		[ "$$(readlink $$f)" != gdrcopy_$$t ] || rm -f $$f || exit 1; done
	rm -f $(DESTDIR)$(pkgconfigdir)/libgdrapi.pc
	rm -f $(addprefix $(DESTDIR)$(cmakedir)/barcopy-config,.cmake -version.cmake)
	rm -f $(addprefix $(DESTDIR)$(docdir)/,$(DOC_FILES))
	rm -f $(addprefix $(DESTDIR)$(examplesdir)/,$(notdir $(EXAMPLE_FILES)))
	for d in $(cmakedir) $(patsubst %/,%,$(dir $(cmakedir))) $(examplesdir) $(docdir)/docs/results \
		$(docdir)/docs $(docdir)/packaging/container $(docdir)/packaging $(docdir); do rmdir $(DESTDIR)$$d 2>/dev/null || :; done
	rm -f $(addprefix $(DESTDIR)$(completionsdir)/,gdrcopy $(notdir $(TOOLS)))
	for p in $(MAN_PAGES) $(TOOL_PAGES) $(MAN_LINKS); do p=$${p%=*}; \
		rm -f $(DESTDIR)$(mandir)/man$${p##*.}/$${p##*/}; done

# ---- driver and Python module ----

.PHONY: install-driver install-boot drv_install uninstall-driver install-python uninstall-python

# The files that load the module and set its node's mode.
install-boot:
	$(INSTALL) -d $(DESTDIR)$(modprobedir) $(DESTDIR)$(udevdir)/rules.d $(DESTDIR)$(dracutdir)
	$(INSTALL) -m 644 packaging/modprobe/barcopy.conf $(DESTDIR)$(modprobedir)/
	$(INSTALL) -m 644 packaging/udev/70-gdrdrv.rules $(DESTDIR)$(udevdir)/rules.d/
	$(INSTALL) -m 644 packaging/dracut/50-barcopy.conf $(DESTDIR)$(dracutdir)/

# The driver's source for DKMS.
DRIVER_SRC := $(wildcard gdrdrv/Kbuild gdrdrv/Makefile gdrdrv/*.[ch])
DRIVER_SCRIPTS := $(wildcard gdrdrv/*.sh packaging/dkms/*.sh)

install-driver: install-boot
	$(INSTALL) -d $(DESTDIR)$(DRIVER_SRC_DIR)
	for f in $(DRIVER_SRC); do $(INSTALL) -m 644 $$f $(DESTDIR)$(DRIVER_SRC_DIR)/ || exit 1; done
	for f in $(DRIVER_SCRIPTS); do $(INSTALL) -m 755 $$f $(DESTDIR)$(DRIVER_SRC_DIR)/ || exit 1; done
	$(pack_fill) packaging/dkms/dkms.conf.in >$(DESTDIR)$(DRIVER_SRC_DIR)/dkms.conf
	chmod 644 $(DESTDIR)$(DRIVER_SRC_DIR)/dkms.conf

# The module itself, for the kernel that it was built for.
drv_install: driver install-boot
	k=$$(modinfo -F vermagic $(O)/gdrdrv/gdrdrv.ko | cut -d' ' -f1) && \
		$(INSTALL) -d $(DESTDIR)/lib/modules/$$k/updates && \
		$(INSTALL) -m 644 $(O)/gdrdrv/gdrdrv.ko $(DESTDIR)/lib/modules/$$k/updates/ && \
		{ [ -n '$(DESTDIR)' ] || depmod $$k; }

# Removes what install-driver, drv_install and DKMS installed. A loaded module stays loaded.
uninstall-driver:
	[ -n '$(DESTDIR)' ] || ! command -v dkms >/dev/null || ! dkms status gdrdrv/$(VERSION) | grep -q . || \
		dkms remove gdrdrv/$(VERSION) --all
	for f in $(notdir $(DRIVER_SRC) $(DRIVER_SCRIPTS)) dkms.conf; do rm -f '$(DESTDIR)$(DRIVER_SRC_DIR)'/$$f; done
	rmdir '$(DESTDIR)$(DRIVER_SRC_DIR)' 2>/dev/null || :
	rm -f $(DESTDIR)$(modprobedir)/barcopy.conf $(DESTDIR)$(udevdir)/rules.d/70-gdrdrv.rules \
		$(DESTDIR)$(dracutdir)/50-barcopy.conf
	for ko in $(DESTDIR)/lib/modules/*/updates/gdrdrv.ko; do \
		[ -e $$ko ] || continue; \
		rm -f $$ko && { [ -n '$(DESTDIR)' ] || { k=$${ko#/lib/modules/} && depmod $${k%%/*}; }; } || exit 1; done

# Into Debian's directory of Python modules; elsewhere use pip install ./python. Because there is no
# RECORD, pip lists the module and does not uninstall it.
PYTHON_INSTALLER ?= make
PYTHON_INFO = $(DESTDIR)$(pythondir)/barcopy-$(VERSION).dist-info

install-python:
	$(INSTALL) -d $(DESTDIR)$(pythondir)/barcopy $(PYTHON_INFO)
	$(INSTALL) -m 644 python/barcopy/*.py python/barcopy/*.pyi python/barcopy/py.typed \
		$(DESTDIR)$(pythondir)/barcopy/
	$(PYTHON) python/backend.py metadata >$(PYTHON_INFO)/METADATA
	echo $(PYTHON_INSTALLER) >$(PYTHON_INFO)/INSTALLER
	chmod 644 $(PYTHON_INFO)/*

uninstall-python:
	rm -rf $(DESTDIR)$(pythondir)/barcopy $(PYTHON_INFO)

# ---- names that recipes for GDRCopy use ----

.PHONY: exes config drv
exes: tools
drv: driver
config:
	@echo 'GDRAPI_ARCH=$(if $(filter aarch64,$(GDRI_COPY_MACHINE)),ARM64,X86)'
