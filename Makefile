# SPDX-License-Identifier: MIT
# See `make help` for the targets. Non-recursive; everything that is built lies under $(O).

O ?= build
V ?= 0
CROSS_COMPILE ?=
ifeq ($(origin CC),default)
CC := $(CROSS_COMPILE)gcc
endif
ifeq ($(origin AR),default)
AR := $(CROSS_COMPILE)ar
endif
prefix ?= /usr/local
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
DESTDIR ?=
INSTALL ?= install
PYTHON ?= python3

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

WARNINGS := -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wpointer-arith -Werror
CFLAGS ?= -O2 -g
override CPPFLAGS += -Iinclude -Isrc -D_GNU_SOURCE= -DBARCOPY_VERSION='"$(VERSION)"'
override CFLAGS += -std=gnu11 $(WARNINGS) -fvisibility=hidden -fno-strict-aliasing -pthread
# -fno-strict-aliasing: the copies look at callers' memory as words, whatever it was declared as.

# USDT probes: SDT=1 with, SDT=0 without, unset: where the system has <sys/sdt.h> (src/base/probes.h).
SDT ?=
ifneq ($(SDT),)
override CPPFLAGS += -DGDRI_SDT=$(SDT)
endif

ifneq ($(SANITIZE),)
override CFLAGS += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all
override LDFLAGS += -fsanitize=$(SANITIZE)
# A sanitizer's run-time library comes first; -z defs would miss its symbols in a shared library.
LIB_LDFLAGS :=
else
LIB_LDFLAGS := -Wl,-z,defs
endif

all: lib tools

# ---- the library -------------------------------------------------------------------------------

GDRI_COPY_SRCS :=
include src/copy/copy.mk

LIB_SRCS := $(addprefix src/, \
	$(addprefix base/, env.c error.c fork.c lent.c log.c process.c slots.c thread.c) \
	$(addprefix cuda/, load.c memory.c export.c alloc.c engine.c got.c watch.c nvml.c) \
	$(addprefix backend/, backends.c probe.c gdrdrv.c gdrdrv_node.c gdrdrv_dmabuf.c dmabuf.c rm.c \
		rm_client.c rm_objects.c rm_map.c rm_trial.c host.c) \
	$(addprefix core/, ctx.c handle.c mem.c offload.c pages.c range.c region.c revoke.c summary.c tags.c tally.c) \
	$(addprefix cache/, cache.c evict.c lru.c miss.c pool.c) \
	$(addprefix calls/, cache.c copies.c gdrapi.c memory.c stats.c)) $(GDRI_COPY_SRCS)

PUBLIC_HEADERS := gdrapi.h barcopy.h

LIB := $(O)/$(LIB_REAL)
LIB_LINKS := $(O)/$(LIB_SONAME) $(O)/libgdrapi.so
LIB_STATIC := $(O)/libgdrapi.a

.PHONY: all lib
lib: $(LIB) $(LIB_LINKS) $(LIB_STATIC)

$(O)/%.pic.o: %.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(CFLAGS_EXTRA) -fPIC -MMD -MP -c -o $@ $<

$(O)/%.o: %.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(CFLAGS_EXTRA) -MMD -MP -c -o $@ $<

# What includes probes.h is built anew when <sys/sdt.h> has come or gone, which no dependency file records.
SDT_SEEN := $(O)/sdt-$(if $(wildcard /usr/include/sys/sdt.h /usr/include/*/sys/sdt.h),yes,no)
$(SDT_SEEN):
	$(Q)mkdir -p $(@D) && rm -f $(O)/sdt-* && : >$@
$(foreach f,$(patsubst %.c,$(O)/%,$(shell grep -l '"base/probes.h"' $(LIB_SRCS))),$(f).o $(f).pic.o): $(SDT_SEEN)

$(LIB): $(LIB_SRCS:%.c=$(O)/%.pic.o) src/libgdrapi.map
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,$(LIB_SONAME) -Wl,--version-script=src/libgdrapi.map \
		-Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now $(LIB_LDFLAGS) $(LDFLAGS) -o $@ \
		$(filter %.o,$^) -ldl

$(LIB_LINKS): $(LIB)
	$(Q)ln -sf $(LIB_REAL) $@

$(LIB_STATIC): $(LIB_SRCS:%.c=$(O)/%.o)
	$(call say,AR,$@)
	$(Q)rm -f $@
	$(Q)$(AR) rcsD $@ $^

# ---- tools, stand-ins, driver, tests: each a fragment beside what it builds -----------------------

PERF_TOOLS :=
DEV_TOOLS :=
SIM_LIBS :=
include $(wildcard perf/perf.mk tests/sim/sim.mk tests/tests.mk tests/kernel/kernel.mk \
	examples/examples.mk packaging/packaging.mk docs/page/page.mk)

.PHONY: tools sim
tools: $(PERF_TOOLS) $(DEV_TOOLS)
sim: $(SIM_LIBS)

# ---- the two commands of the README, and what they need -------------------------------------------

.PHONY: demo deps
demo:
	@scripts/deps.sh install demo || :
	@mkdir -p $(O)
	@$(MAKE) --no-print-directory V=$(V) O=$(O) all sim >$(O)/demo-build.log 2>&1 || \
		{ cat $(O)/demo-build.log; exit 1; }
	@perf/demo.sh $(O) $(O)/sim

deps:
	@scripts/deps.sh install demo
	@tests/run.sh $(O) deps

# ---- installation ------------------------------------------------------------------------------

.PHONY: install uninstall
install: all
	$(INSTALL) -d $(DESTDIR)$(libdir) $(DESTDIR)$(includedir) $(DESTDIR)$(bindir)
	$(INSTALL) -m 755 $(LIB) $(DESTDIR)$(libdir)/$(LIB_REAL)
	ln -sf $(LIB_REAL) $(DESTDIR)$(libdir)/$(LIB_SONAME)
	ln -sf $(LIB_SONAME) $(DESTDIR)$(libdir)/libgdrapi.so
	$(INSTALL) -m 644 $(LIB_STATIC) $(DESTDIR)$(libdir)/libgdrapi.a
	for h in $(PUBLIC_HEADERS); do \
		$(INSTALL) -m 644 include/$$h $(DESTDIR)$(includedir)/$$h || exit 1; done
	for t in $(notdir $(PERF_TOOLS)); do \
		$(INSTALL) -m 755 $(O)/$$t $(DESTDIR)$(bindir)/$$t || exit 1; done

uninstall:
	rm -f $(addprefix $(DESTDIR)$(libdir)/,$(LIB_REAL) $(LIB_SONAME) libgdrapi.so libgdrapi.a)
	rm -f $(addprefix $(DESTDIR)$(includedir)/,$(PUBLIC_HEADERS))
	rm -f $(addprefix $(DESTDIR)$(bindir)/,$(notdir $(PERF_TOOLS)))

.PHONY: clean help
clean:
	rm -rf $(O)

help:
	@echo 'make              library and tools, into $$(O) (default: build)'
	@echo 'make demo         copybw and copylat: on the GPU if one is usable, else on the stand-in'
	@echo "make check        the tests; TESTS='PATTERN...' takes some, by name"
	@echo 'make check-full   that, what repeats it in another way, and what takes long'
	@echo 'make check-fresh  demo and check in minimal roots of Debian 12 and 13 (as root)'
	@echo 'make compare      $$(O)/compare: two builds of the library beside each other'
	@echo 'make examples     the programs of examples/, into $$(O)/examples'
	@echo 'make docs         docs/index.html, the page with pictures, from README, results and source'
	@echo 'make deps         installs what demo and check need (as root), or prints how to'
	@echo 'make install      DESTDIR= prefix= libdir= bindir= includedir='
	@echo 'make driver       the kernel driver: KDIR= SOURCE=p2p|dmabuf|both NVIDIA_SRC= FLAVOR=open|proprietary'
	@echo 'make check-kernel the driver in an emulated machine (check-kernel-full: every kernel)'
	@echo 'make deb, make rpm  packages into $$(O)/deb and $$(O)/rpm (DEB_ARCH=arm64: cross-built); make dist'
	@echo 'make check-arm64  the unit tests, cross-built, under user-mode emulation'
	@echo 'make check-packages builds, installs and removes them in a root of its own (as root)'
	@echo 'make refresh-abi    after a new symbol; make refresh-pages after a changed --help;'
	@echo '                    make refresh-reports after a changed report of gdrcopy_doctor'
	@echo 'make clean'
	@echo
	@echo 'O=dir  CC=clang  CROSS_COMPILE=aarch64-linux-gnu-  SANITIZE=address,undefined|thread'
	@echo 'V=1 shows the commands'

# Those of this build alone: other builds lie in directories of their own below $(O).
-include $(shell find $(wildcard $(addprefix $(O)/,src tests perf sim examples)) /dev/null \
	-type f -name '*.d' 2>/dev/null)
