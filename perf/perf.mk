# SPDX-License-Identifier: MIT
# The tools: which there are and how they are linked. Included by the top Makefile, whose rule
# compiles. A tool is one source file perf/NAME.c, built as $(O)/gdrcopy_NAME; a new one is a word
# in perf_names. Programs for the library's developers are dev/'s.

perf_names := apiperf copybw copylat doctor pplat sanity

perf_common := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/common/*.c)))

# A tool that is more than one file has the others in perf/NAME/.
$(O)/perf/%.o: override CPPFLAGS += -Iperf
$(foreach t,doctor pplat sanity,\
	$(eval $(O)/gdrcopy_$(t): $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/$(t)/*.c)))))

# What `make install` installs; `make` builds these and dev/'s.
PERF_TOOLS := $(perf_names:%=$(O)/gdrcopy_%)

# Where a tool finds the library: beside itself in the build tree; where it is installed in the prefix's
# lib, lib64 or what the system's loader has for $LIB (lib/x86_64-linux-gnu). Packages set this to nothing.
PERF_RPATH ?= -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib:$$ORIGIN/../lib64:$$ORIGIN/../$$LIB'

.SECONDARY: $(perf_names:%=$(O)/perf/%.o)

$(PERF_TOOLS): $(O)/gdrcopy_%: $(O)/perf/%.o $(perf_common) $(LIB) | $(LIB_LINKS)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(PERF_RPATH) -o $@ $^ -ldl
