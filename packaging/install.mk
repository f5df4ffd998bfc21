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
	-e 's|@SONAME@|$(LIB_SONAME)|g' -e 's|@REAL@|$(LIB_REAL)|g' $(1)

# What pkg-config and CMake read names no absolute directory below the prefix: recipes install into a stage by prefix=
# and then move it.
plain_path = $(patsubst %/,%,$(abspath $(1)))
path_below = $(patsubst $(call plain_path,$(2))/%,%,$(filter $(call plain_path,$(2))/%,$(call plain_path,$(1))))
# $(call way_down,DIRECTORY,ROOT,NAME): NAME/ and the way to the directory, NAME being ROOT; outside ROOT the directory.
way_down = $(if $(path_below),$(3)/$(path_below),$(1))
# $(call way_up,DIRECTORY,ROOT,NAME): NAME/../.. as far as ROOT, NAME being the directory; outside ROOT that.
one_space := $(subst ,, )
way_up = $(if $(path_below),$(3)/$(subst $(one_space),/,$(patsubst %,..,$(subst /, ,$(path_below)))),$(2))
# /usr itself has that name: pkg-config leaves out /usr/include and not /usr/lib/pkgconfig/../../include, before which g++
# finds no <cstdlib> as CMake passes it on (-isystem).
pc_fill = $(call pack_fill,-e 's|@PREFIX@|$(if $(filter /usr,$(call plain_path,$(prefix))),/usr,$(call way_up,$(pkgconfigdir),$(prefix),$${pcfiledir}))|' \
	-e 's|@LIBDIR@|$(call way_down,$(libdir),$(prefix),$${prefix})|' \
	-e 's|@INCLUDEDIR@|$(call way_down,$(includedir),$(prefix),$${prefix})|')
cmake_fill = $(call pack_fill,-e 's|@PREFIX@|$(call way_up,$(cmakedir),$(prefix),$${_barcopy_here})|' \
	-e 's|@LIBDIR@|$(if $(call path_below,$(cmakedir),$(libdir)),$(call way_up,$(cmakedir),$(libdir),$${_barcopy_here}),$(call \
	way_down,$(libdir),$(prefix),$${_barcopy_prefix}))|' -e 's|@INCLUDEDIR@|$(call way_down,$(includedir),$(prefix),$${_barcopy_prefix})|')

# ---- make install ----

# Files into a directory, whose name it prints: $(call put,MODE,DIRECTORY,FILES)
define put
	$(call say,INSTALL,$(or $(4),$(DESTDIR)$(2)))
	$(Q)$(INSTALL) -d $(or $(4),$(DESTDIR)$(2)) && $(INSTALL) -m $(1) $(3) $(or $(4),$(DESTDIR)$(2))/

endef
# $(call take,DIRECTORY,FILES): removes them, by their last names. Both: a last argument is the whole path instead.
define take
	$(call say,REMOVE,$(or $(3),$(DESTDIR)$(1)))
	$(Q)rm -f $(addprefix $(or $(3),$(DESTDIR)$(1))/,$(notdir $(2)))

endef

.PHONY: install install-man uninstall lib_install exes_install
lib_install: lib
	$(call put,755,$(libdir),$(LIB))
	$(Q)$(INSTALL) -m 644 $(LIB_STATIC) $(DESTDIR)$(libdir)/
	$(Q)ln -sf $(LIB_REAL) $(DESTDIR)$(libdir)/$(LIB_SONAME)
	$(Q)ln -sf $(LIB_SONAME) $(DESTDIR)$(libdir)/libgdrapi.so
	$(call put,644,$(includedir),$(PUBLIC_HEADERS:%=include/%))

# GDRCopy's earlier names of its tools, of which it still has all but pplat.
PLAIN_NAMES := apiperf copybw copylat pplat sanity

exes_install: tools
	$(call put,755,,$(INSTALLED_TOOLS),$(DESTBIN))
	$(Q)for t in $(PLAIN_NAMES); do ln -sf gdrcopy_$$t $(DESTBIN)/$$t || exit 1; done

# The tools' pages are their --help; MAN_FROM is a build whose tools run here.
MAN_FROM ?= $(O)
MAN1_AWK := packaging/man/date.awk packaging/man/section1.awk
TOOL_PAGES := $(patsubst $(O)/%,$(O)/man/%.1,$(TOOLS))
all install-man: $(TOOL_PAGES)
$(TOOL_PAGES): $(O)/man/%.1: $(O)/% $(MAN1_AWK) CHANGELOG.md
	$(call say,MAN,$@)
	$(Q)mkdir -p $(@D) && rm -f $@
	$(Q)LD_LIBRARY_PATH=$(MAN_FROM) $(MAN_FROM)/$* --help >$@.help 2>/dev/null && \
		awk $(MAN1_AWK:%=-f %) CHANGELOG.md RS= $@.help >$@ || \
		{ rm -f $@; echo "$* does not run here: no manual page (MAN_FROM=)" >&2; }
	$(Q)rm -f $@.help

# Section 3 is made of the headers' comments.
MAN3_AWK := packaging/man/date.awk packaging/man/section3.awk
MAN3_FROM := CHANGELOG.md $(addprefix include/,gdrapi.h barcopy.h barcopy_queue.h)
MAN3 := $(addprefix $(O)/man/3/,$(shell awk -v list=1 $(MAN3_AWK:%=-f %) $(MAN3_FROM)))
all install-man uninstall: $(O)/man/3/made
$(O)/man/3/made: $(MAN3_AWK) $(MAN3_FROM)
	$(call say,MAN,$(@D))
	$(Q)rm -rf $(@D) && mkdir -p $(@D) && awk -v out=$(@D) $(MAN3_AWK:%=-f %) $(MAN3_FROM) && : >$@

# NAME.SECTION=PAGE: the other names of a page, which are in its NAME section.
MAN_PAGES := $(wildcard packaging/man/*.[1-9]) $(MAN3)
MAN_LINKS = $(foreach t,$(PLAIN_NAMES),$(t).1=gdrcopy_$(t).1) $(shell awk ' \
	FNR == 1 { page = FILENAME; sub(/.*\//, "", page); section = page; sub(/.*\./, "", section) } \
	$$1 == ".Sh" { named = $$2 == "NAME" } \
	named && $$1 == ".Nm" && $$2 "." section != page { print $$2 "." section "=" page }' $(MAN_PAGES) 2>/dev/null)

install-man:
	$(call say,INSTALL,$(DESTDIR)$(mandir))
	$(Q)$(INSTALL) -d $(addprefix $(DESTDIR)$(mandir)/man,1 $(sort $(patsubst .%,%,$(suffix $(MAN_PAGES)))))
	$(Q)for p in $(MAN_PAGES) $(TOOL_PAGES); do [ -e $$p ] || continue; \
		$(INSTALL) -m 644 $$p $(DESTDIR)$(mandir)/man$${p##*.}/ || exit 1; done
	$(Q)for l in $(MAN_LINKS); do \
		ln -sf $${l#*=} $(DESTDIR)$(mandir)/man$${l##*.}/$${l%=*} || exit 1; done

# The documents for users and the files that they link to, in the same directories, so that the links work; those to
# pages for developers are text.
DOC_TOP ?= README.md CHANGELOG.md SECURITY.md LICENSE
DOC_FILES := $(DOC_TOP) $(wildcard docs/*.md) $(wildcard docs/*.svg docs/*.html packaging/container/*)
DOC_UNLINK := -e 's/\[([^]]*)\]\((\.\.\/)*(docs\/)?(results\/|internals\/|gdrdrv\/|CONTRIBUTING\.md|MAINTAINERS\.md)[^)]*\)/\1/g' \
	-e 's/<a href="results\/[^"]*">([^<]*)<\/a>/\1/g'
# Their README where it does not take the place of the project's.
EXAMPLE_FILES := $(wildcard examples/*.[ch] examples/*.cpp examples/*.cu examples/*.py) $(if $(filter $(docdir),$(examplesdir)),,examples/README.md)

# Everything but the driver, which is built for one kernel or by DKMS, and the Python module.
DOC_DIRS := $(sort $(dir $(DOC_FILES)))
CMAKE_FILES := $(addprefix barcopy-config,.cmake -version.cmake)
install: lib_install exes_install install-man
	$(call say,INSTALL,$(DESTDIR)$(pkgconfigdir))
	$(Q)$(INSTALL) -d $(DESTDIR)$(pkgconfigdir) $(DESTDIR)$(cmakedir)
	$(Q)$(pc_fill) packaging/pkg-config/libgdrapi.pc.in >$(DESTDIR)$(pkgconfigdir)/libgdrapi.pc
	$(call say,INSTALL,$(DESTDIR)$(cmakedir))
	$(Q)for f in $(CMAKE_FILES); do $(cmake_fill) packaging/cmake/$$f.in >$(DESTDIR)$(cmakedir)/$$f || exit 1; done
	$(Q)chmod 644 $(DESTDIR)$(pkgconfigdir)/libgdrapi.pc $(DESTDIR)$(cmakedir)/*.cmake
	$(call put,644,$(completionsdir),packaging/bash-completion/gdrcopy)
	$(Q)for t in $(notdir $(TOOLS)); do ln -sf gdrcopy $(DESTDIR)$(completionsdir)/$$t || exit 1; done
	$(foreach d,$(DOC_DIRS),$(call put,644,$(patsubst %/,%,$(docdir)/$(d:./=)),$(foreach f,$(DOC_FILES),$(if $(filter $d,$(dir $f)),$f))))
	$(Q)for f in $(filter %.md %.html,$(DOC_FILES)); do \
		sed -E $(DOC_UNLINK) $$f >$(DESTDIR)$(docdir)/$$f || exit 1; done
	$(call put,644,$(examplesdir),$(EXAMPLE_FILES))

# Removes the installed files, and directories that are then empty.
uninstall: uninstall-python
	$(call take,$(libdir),$(LIB_REAL) $(LIB_SONAME) libgdrapi.so libgdrapi.a)
	$(call take,$(includedir),$(PUBLIC_HEADERS))
	$(call take,,$(TOOLS),$(DESTBIN))
	$(Q)for t in $(PLAIN_NAMES); do f=$(DESTBIN)/$$t; \
		[ "$$(readlink $$f)" != gdrcopy_$$t ] || rm -f $$f || exit 1; done
	$(call take,$(pkgconfigdir),libgdrapi.pc)
	$(call take,$(cmakedir),$(CMAKE_FILES))
	$(call take,$(completionsdir),gdrcopy $(TOOLS))
	$(call take,$(examplesdir),$(EXAMPLE_FILES))
	$(call say,REMOVE,$(DESTDIR)$(docdir))
	$(Q)rm -f $(addprefix $(DESTDIR)$(docdir)/,$(DOC_FILES))
	$(Q)for d in $(cmakedir) $(patsubst %/,%,$(dir $(cmakedir))) $(examplesdir); do rmdir $(DESTDIR)$$d 2>/dev/null || :; done
	$(Q)printf '%s\n' $(DOC_DIRS) packaging | sort -r | while read -r d; do rmdir $(DESTDIR)$(docdir)/$$d 2>/dev/null || :; done
	$(Q)rmdir $(DESTDIR)$(docdir) 2>/dev/null || :
	$(call say,REMOVE,$(DESTDIR)$(mandir))
	$(Q)for p in $(MAN_PAGES) $(TOOL_PAGES) $(MAN_LINKS); do p=$${p%=*}; \
		rm -f $(DESTDIR)$(mandir)/man$${p##*.}/$${p##*/}; done

# ---- driver and Python module ----

.PHONY: install-driver install-boot drv_install uninstall-driver install-python uninstall-python

# The files that load the module and set its node's mode.
install-boot:
	$(call put,644,$(modprobedir),packaging/modprobe/barcopy.conf)
	$(call put,644,$(udevdir)/rules.d,packaging/udev/70-gdrdrv.rules)
	$(call put,644,$(dracutdir),packaging/dracut/50-barcopy.conf)

# The driver's source for DKMS.
DRIVER_SRC := $(wildcard gdrdrv/Kbuild gdrdrv/Makefile gdrdrv/*.[ch])
DRIVER_SCRIPTS := $(wildcard gdrdrv/*.sh packaging/dkms/*.sh)

install-driver: install-boot
	$(call put,644,$(DRIVER_SRC_DIR),$(DRIVER_SRC))
	$(Q)$(INSTALL) -m 755 $(DRIVER_SCRIPTS) $(DESTDIR)$(DRIVER_SRC_DIR)/
	$(Q)$(pack_fill) packaging/dkms/dkms.conf.in >$(DESTDIR)$(DRIVER_SRC_DIR)/dkms.conf
	$(Q)chmod 644 $(DESTDIR)$(DRIVER_SRC_DIR)/dkms.conf

# The module itself, for the kernel that it was built for.
drv_install: driver install-boot
	$(Q)k=$$(modinfo -F vermagic $(O)/gdrdrv/gdrdrv.ko | cut -d' ' -f1) && d=/lib/modules/$$k/updates && \
		printf '  %-8s %s\n' INSTALL $(DESTDIR)$$d && $(INSTALL) -d $(DESTDIR)$$d && \
		$(INSTALL) -m 644 $(O)/gdrdrv/gdrdrv.ko $(DESTDIR)$$d/ && { [ -n '$(DESTDIR)' ] || depmod $$k; }

# Removes what install-driver, drv_install and DKMS installed. A loaded module stays loaded.
uninstall-driver:
	$(Q)[ -n '$(DESTDIR)' ] || ! command -v dkms >/dev/null || ! dkms status gdrdrv/$(VERSION) | grep -q . || \
		dkms remove gdrdrv/$(VERSION) --all
	$(call take,$(DRIVER_SRC_DIR),$(DRIVER_SRC) $(DRIVER_SCRIPTS) dkms.conf)
	$(Q)rmdir '$(DESTDIR)$(DRIVER_SRC_DIR)' 2>/dev/null || :
	$(call take,$(modprobedir),barcopy.conf)
	$(call take,$(udevdir)/rules.d,70-gdrdrv.rules)
	$(call take,$(dracutdir),50-barcopy.conf)
	$(Q)for ko in $(DESTDIR)/lib/modules/*/updates/gdrdrv.ko; do \
		[ -e $$ko ] || continue; \
		rm -f $$ko && { [ -n '$(DESTDIR)' ] || { k=$${ko#/lib/modules/} && depmod $${k%%/*}; }; } || exit 1; done

# Into Debian's directory of Python modules; elsewhere use pip install ./python. Because there is no
# RECORD, pip lists the module and does not uninstall it.
PYTHON_INSTALLER ?= make
PYTHON_INFO = $(pythondir)/barcopy-$(VERSION).dist-info

install-python:
	$(need_python)
	$(Q)mkdir -p $(O) && $(PYTHON) python/backend.py metadata >$(O)/METADATA && echo $(PYTHON_INSTALLER) >$(O)/INSTALLER
	$(call put,644,$(pythondir)/barcopy,$(wildcard python/barcopy/*.py) python/barcopy/py.typed)
	$(call put,644,$(PYTHON_INFO),$(O)/METADATA $(O)/INSTALLER)

# Not what a package or pip has put there.
uninstall-python:
	$(Q)[ "$$(cat $(DESTDIR)$(PYTHON_INFO)/INSTALLER 2>/dev/null)" != $(PYTHON_INSTALLER) ] || \
		rm -rf $(DESTDIR)$(pythondir)/barcopy $(DESTDIR)$(PYTHON_INFO)

# ---- names that recipes for GDRCopy use ----

.PHONY: exes config drv
exes: tools
drv: driver
config:
	@echo 'GDRAPI_ARCH=$(if $(filter aarch64,$(GDRI_COPY_MACHINE)),ARM64,X86)'
