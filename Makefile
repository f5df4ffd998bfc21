# SPDX-License-Identifier: MIT
# See `make help` and `make help-all` for the targets. Non-recursive; everything that is built lies under $(O).

O ?= build
V ?= 0
CROSS_COMPILE ?=
ifeq ($(origin CC),default)
CC := $(CROSS_COMPILE)gcc
endif
ifeq ($(origin AR),default)
AR := $(CROSS_COMPILE)ar
endif
# In capitals as well, which make would ignore, and install below /usr/local.
prefix ?= $(if $(filter command,$(origin PREFIX)),$(PREFIX),/usr/local)
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
DESTDIR ?=
INSTALL ?= install
PYTHON ?= python3
# By the names that recipes for GDRCopy set.
DESTBIN ?= $(DESTDIR)$(bindir)
KDIR ?= $(if $(KVER),/lib/modules/$(KVER)/build)
NVIDIA_SRC ?= $(NVIDIA_SRC_DIR)

# To make a space ends a name: half of such a path would be built, or removed. And without a name O is /.
one_word = $(foreach v,$(1),$(if $(word 2,$($(v))),$(error $(v)=$($(v)): no path here may have a space)))
$(call one_word,O DESTDIR prefix bindir libdir includedir DESTBIN)
$(if $(strip $(O)),,$(error O=: a build needs a directory))
# In the recipe of a target that removes files or uses $(abspath): make expands the whole recipe before it runs
# the first line.
needs_plain_path = $(if $(word 2,$(CURDIR))$(strip $(foreach c,& ; | < > ( ) ' " ` * ? [ \ $$,$(findstring $c,$(CURDIR)))),$(error \
	make $@ works in no directory whose path has a space or a special character of the shell ($(CURDIR))))

need_python = @command -v $(PYTHON) >/dev/null || { echo 'make $@: no $(PYTHON) here (package python3): nothing was done' >&2; exit 1; }

VERSION := 2.6.0
LIB_REAL := libgdrapi.so.2.6
LIB_SONAME := libgdrapi.so.2

ifneq ($(V),1)
Q := @
say = @printf '  %-8s %s\n' '$(1)' '$(2)'
else
Q :=
say = @:
endif

WARNINGS := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wpointer-arith
WERROR ?=
CFLAGS ?= -O2 -g
override CPPFLAGS += -Iinclude -Isrc -U_GNU_SOURCE -D_GNU_SOURCE= -DBARCOPY_VERSION='"$(VERSION)"'
override CFLAGS += -std=gnu11 $(WARNINGS) $(WERROR) -fvisibility=hidden -fno-strict-aliasing -pthread
# -fno-strict-aliasing: the copies look at callers' memory as words, whatever it was declared as.

# Hardened as packages are, except where CFLAGS or CPPFLAGS name these options themselves. _FORTIFY_SOURCE needs an
# optimizing compiler, and a sanitizer does not know the functions that it calls.
ifeq ($(SANITIZE),)
HARDENING := $(if $(findstring stack-protector,$(CFLAGS)),,-fstack-protector-strong) \
	$(if $(filter-out -O0,$(lastword $(filter -O%,$(CFLAGS)))),$(if $(findstring _FORTIFY_SOURCE,$(CFLAGS) $(CPPFLAGS)),,\
	-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
override CFLAGS += $(HARDENING)
else
# Ubuntu's gcc fortifies by itself, and the tests do not count __read_chk() as a call of read().
override CPPFLAGS += -U_FORTIFY_SOURCE
endif
HARDENING_LDFLAGS := -Wl,-z,relro -Wl,-z,now

# The rm backend (SECURITY.md): RM_BACKEND=0 leaves it out. Its tests need it.
RM_BACKEND ?= 1
override CPPFLAGS += -DGDRI_RM=$(RM_BACKEND)

ifneq ($(SANITIZE),)
override CFLAGS += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all
override LDFLAGS += -fsanitize=$(SANITIZE)
# A sanitizer's run-time library comes first; -z defs would miss its symbols in a shared library.
LIB_LDFLAGS :=
else
LIB_LDFLAGS := -Wl,-z,defs
endif

# The driver too, where the command line says what to build it for, as recipes for GDRCopy do: all of theirs has it.
all: lib tools $(if $(filter command,$(foreach v,KDIR KVER NVIDIA_SRC NVIDIA_SRC_DIR,$(origin $(v)))),driver)

# What a program that failed has left half done is no result.
.DELETE_ON_ERROR:

# ---- the library -------------------------------------------------------------------------------

GDRI_COPY_SRCS :=
include src/copy/copy.mk

LIB_SRCS := $(addprefix src/, \
	$(addprefix base/, counters.c error.c inside.c process.c slots.c struct_size.c) \
	$(addprefix cuda/, load.c device.c memory.c alloc.c engine.c) \
	$(addprefix backend/, backends.c mapping.c trial.c gdrdrv.c dmabuf.c rm.c rm_client.c host.c) \
	$(addprefix core/, ctx.c handle.c mem.c offload.c parts.c region.c) \
	$(addprefix cache/, cache.c entry.c evict.c miss.c pages.c) \
	$(addprefix calls/, copies.c gdrapi.c ports.c queues.c registry.c shared.c single.c stats.c vectors.c) \
	$(addprefix queue/, port.c queue.c ring.c)) $(GDRI_COPY_SRCS)

LIB_SRCS += $(if $(filter 1,$(RM_BACKEND)),src/backend/rm_range.c \
	$(addprefix src/cuda/, import_slots.c watch.c))

# Shared library and archive are of the same objects.
LIB_CFLAGS := -fPIC

PUBLIC_HEADERS := gdrapi.h barcopy.h barcopy_queue.h barcopy_queue.cuh gdrconfig.h

LIB := $(O)/$(LIB_REAL)
LIB_LINKS := $(O)/$(LIB_SONAME) $(O)/libgdrapi.so
LIB_STATIC := $(O)/libgdrapi.a

.PHONY: all lib
lib: $(LIB) $(LIB_LINKS) $(LIB_STATIC)

# Built anew with other flags, another compiler or other sources: $(O)/flags holds them, and changes only when
# they do; -Werror makes no other object. `make install` by itself takes what was built, whoever calls it.
FLAGS_SEEN := $(O)/flags
ifneq ($(if $(and $(MAKECMDGOALS),$(wildcard $(FLAGS_SEEN))),$(filter-out install install-% %_install uninstall uninstall-%,$(MAKECMDGOALS)),all),)
export FLAGS_NOW := $(CC) $(sort $(CPPFLAGS)) / $(sort $(filter-out -Werror,$(CFLAGS))) / $(sort $(LDFLAGS)) / $(LIB_CFLAGS) / $(LIB_SRCS)
$(FLAGS_SEEN): FORCE
	$(Q)mkdir -p $(@D) && printf '%s\n' "$$FLAGS_NOW" | cmp -s - $@ || printf '%s\n' "$$FLAGS_NOW" >$@
endif
.PHONY: FORCE

# Whole or not at all: killed with its make, a compiler leaves an empty object that is newer than its source. The
# dependencies name the object below $(O): another make may give the directory another name, as make check does.
compile = $(CC) $(CPPFLAGS) $(CFLAGS) $(1) -MMD -MP -MF $@.d.part -MT '$(@:$(O)/%=$$(O)/%)' -c -o $@.part $< && \
	mv -f $@.d.part $(@:.o=.d) && mv -f $@.part $@

$(O)/src/%.o: override CFLAGS += $(LIB_CFLAGS)
$(O)/%.o: %.c $(FLAGS_SEEN)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(call compile,$(CFLAGS_EXTRA))

LIB_OBJS := $(LIB_SRCS:%.c=$(O)/%.o)
$(LIB): $(LIB_OBJS) src/libgdrapi.map
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,$(LIB_SONAME) -Wl,--version-script=src/libgdrapi.map \
		-Wl,-z,nodelete $(HARDENING_LDFLAGS) $(LIB_LDFLAGS) $(LDFLAGS) -o $@.part \
		$(filter %.o,$^) -ldl && mv -f $@.part $@

$(LIB_LINKS): $(LIB)
	$(Q)ln -sf $(LIB_REAL) $@

$(LIB_STATIC): $(LIB_OBJS)
	$(call say,AR,$@)
	$(Q)rm -f $@
	$(Q)$(AR) rcsD $@ $^

# ---- tools, stand-ins, driver, tests: each a fragment in the directory that it builds -----------------------

TOOLS :=
DEV_TOOLS :=
SIM_LIBS :=
include $(wildcard perf/perf.mk tools/tools.mk perf/dev.mk sim/sim.mk tests/tests.mk tests/explore/explore.mk gdrdrv/tests/kernel.mk \
	examples/examples.mk packaging/install.mk packaging/packaging.mk docs/page/page.mk)

.PHONY: tools sim
tools: $(TOOLS) $(DEV_TOOLS)
sim: $(SIM_LIBS)

# ---- the README's first command; tests/check.mk has the second -------------------------------------------

.PHONY: demo
demo:
	@tests/deps.sh demo || :
	@mkdir -p $(O)
	@. tests/common/progress.sh && progress 'make $@' $(O)/demo-build.log \
		$(MAKE) --no-print-directory V=$(V) O=$(O) all sim || { cat $(O)/demo-build.log; exit 1; }
	@perf/demo.sh $(O) $(O)/sim

# A directory that this Makefile has built in, and that holds nothing of the source.
SOURCE_DIRS := .ci .github docs examples gdrdrv include packaging perf python sim src tests tools
.PHONY: clean help
clean:
	$(needs_plain_path)
	$(if $(filter $(abspath $(O))/%,$(CURDIR)/ $(SOURCE_DIRS:%=$(CURDIR)/%/)),$(error O=$(O) holds source: not removed))
	@[ ! -e '$(O)' ] || [ -e '$(O)/flags' ] || { echo "make: O=$(O) holds no build: not removed" >&2; exit 1; }
	rm -rf '$(O)'

# What a user needs, then what users call, 25 at most; the pages of docs/ name the others.
.PHONY: help-all
help:
	@echo '  make                  the library and the tools, into $$(O) (default: build)'
	@echo '  make demo             latency of copies: on the GPU if one is usable, else on the stand-in'
	@echo "  make check            the tests, in three minutes; TESTS='PATTERN...' takes some, by name"
	@echo '  make install          library, headers, tools, pkg-config, CMake, manual pages, completion, docs:'
	@echo '                        DESTDIR= prefix= libdir= bindir= includedir= mandir= docdir='
	@echo '  make uninstall        removes them, and the Python module (with the same variables)'
	@echo '  make help-all         the other targets and variables'

help-all: help
	@echo 'Build'
	@echo '  make lib tools        one of the two'
	@echo '  make examples         the programs of examples/, into $$(O)/examples'
	@echo '  make driver           the kernel driver: KDIR= NVIDIA_SRC='
	@echo '                        FLAVOR=open|proprietary'
	@echo '  make clean            removes $$(O)'
	@echo 'Install'
	@echo '  make lib_install exes_install  parts of make install'
	@echo '  make drv_install      the kernel driver, for one kernel (variables as for make driver)'
	@echo '  make install-driver   its source for DKMS, udev rules and modprobe settings'
	@echo '  make uninstall-driver  removes what these two installed'
	@echo '  make install-python   the Python module where the system looks for it (else: pip)'
	@echo 'Package'
	@echo '  make deb rpm          into $$(O)/deb, $$(O)/rpm; DEB_ARCH=arm64 cross-builds'
	@echo '  make wheel            Python wheels with the library inside: WHEEL_ARCH="x86_64 aarch64"'
	@echo '  make dist             the source tarball and its checksum, of the last commit'
	@echo 'Test'
	@echo '  make check-ci         what a CI run adds: other builds, the driver, packages (30 minutes)'
	@echo '  make check-full       all the rest (hours)'
	@echo '  make check-kernel     the driver in an emulated machine, its quick tier'
	@echo '  make check-packages   builds, installs and removes them in a root of its own (as root)'
	@echo
	@echo 'O=dir  CC=clang  CROSS_COMPILE=aarch64-linux-gnu-  SANITIZE=address,undefined|thread'
	@echo 'WERROR=-Werror  V=1 shows the commands'

# Those of this build alone: other builds lie in directories of their own below $(O).
-include $(shell find $(wildcard $(addprefix $(O)/,src tests tools perf sim examples)) /dev/null \
	-type f -name '*.d' 2>/dev/null)
