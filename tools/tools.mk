# SPDX-License-Identifier: MIT
# The tools: which there are and how they are linked. The top Makefile's rule compiles. A tool is one source
# file, tools/NAME.c or perf/NAME.c, built as $(O)/gdrcopy_NAME; a new one here is a word in tool_names.
# tools/common is what they share.

tool_names := doctor sanity
tools_common := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tools/common/*.c)))

$(O)/tools/%.o: override CPPFLAGS += -Itools
$(tool_names:%=$(O)/gdrcopy_%): $(O)/gdrcopy_%: $(O)/tools/%.o

# A tool that is more than one file has the others in a directory of its name.
$(foreach t,$(tool_names) $(perf_names),$(eval $(O)/gdrcopy_$(t): \
	$(patsubst %.c,$(O)/%.o,$(sort $(wildcard tools/$(t)/*.c perf/$(t)/*.c)))))

# What `make install` installs; `make` builds these and those of perf/dev.mk.
TOOLS := $(patsubst %,$(O)/gdrcopy_%,$(sort $(tool_names) $(perf_names)))

# Where an installed tool finds the library: in the prefix's lib, lib64 or what the system's loader has for $LIB
# (lib/x86_64-linux-gnu). Packages set this to nothing. A tool of the build tree finds it in its own directory. Installed,
# that would be in a directory of programs, or wherever somebody copies the tool.
TOOLS_RPATH ?= -Wl,-rpath,'$$ORIGIN/../lib:$$ORIGIN/../lib64:$$ORIGIN/../$$LIB'
INSTALLED_TOOLS := $(TOOLS:$(O)/%=$(O)/installed/%)
tool_link = $(CC) $(CFLAGS) $(HARDENING_LDFLAGS) $(LDFLAGS)

.SECONDARY: $(tool_names:%=$(O)/tools/%.o) $(perf_names:%=$(O)/perf/%.o)

$(TOOLS): $(tools_common) $(LIB) | $(LIB_LINKS)
	$(call say,LD,$@)
	$(Q)mkdir -p $(O)/installed
	$(Q)$(tool_link) -Wl,-rpath,'$$ORIGIN' -o $@ $^ -ldl
	$(Q)$(tool_link) $(TOOLS_RPATH) -o $(O)/installed/$(@F) $^ -ldl
