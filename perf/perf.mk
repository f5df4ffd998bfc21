# SPDX-License-Identifier: MIT
#
# The tools: which there are and how they are built. Included by the top Makefile, which gives O,
# CC, CFLAGS, CPPFLAGS, LDFLAGS and the rule for $(O)/libgdrapi.so.2.6. A tool is one source file
# perf/NAME.c, built as $(O)/gdrcopy_NAME; a new one is a word in perf_names.

perf_names := copybw copylat

perf_common := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/common/*.c)))
perf_objs := $(perf_names:%=$(O)/perf/%.o)

# What `make` builds and `make install` installs.
PERF_TOOLS := $(perf_names:%=$(O)/gdrcopy_%)

$(perf_objs) $(perf_common): $(O)/perf/%.o: perf/%.c
	@mkdir -p $(@D)
	$(if $(V),,@echo '  CC      $@')
	$(if $(V),,@)$(CC) $(CPPFLAGS) -Iperf -D_GNU_SOURCE $(CFLAGS) -MMD -MP -c -o $@ $<

# Tools of the build tree find the library beside themselves; installed ones by the loader's path.
$(PERF_TOOLS): $(O)/gdrcopy_%: $(O)/perf/%.o $(perf_common) $(O)/libgdrapi.so.2.6
	$(if $(V),,@echo '  LD      $@')
	$(if $(V),,@)$(CC) $(CFLAGS) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN' -o $@ $^ -ldl -lm

-include $(perf_objs:.o=.d) $(perf_common:.o=.d)
