# SPDX-License-Identifier: MIT
# Programs that measure the library's inside, for its developers: $(O)/NAME, not installed. One source
# file perf/NAME.c; others of the same program lie in perf/NAME/. Built on perf/bench and
# tools/common. Included after tools/tools.mk, and before tests/tests.mk, which has litmus.

dev_names := copybench

DEV_IMPLS_OBJS := $(O)/perf/impls/impls.o

# The tools that measure the copies impl by impl have them inside, besides the library.
GDRI_COPY_OBJS := $(GDRI_COPY_SRCS:%.c=$(O)/%.o) $(DEV_IMPLS_OBJS)
$(O)/copybench: $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/copybench/*.c))) $(GDRI_COPY_OBJS)

DEV_TOOLS := $(dev_names:%=$(O)/%) $(O)/compare

.SECONDARY: $(dev_names:%=$(O)/perf/%.o)
$(dev_names:%=$(O)/%): $(O)/%: $(O)/perf/%.o $(perf_bench) $(tools_common) $(LIB) | $(LIB_LINKS)
	$(call say,LD,$@)
	$(Q)$(tool_link) -Wl,-rpath,'$$ORIGIN' -o $@ $^ -ldl

# Two builds of the library in one process (perf/compare.c).
compare: $(O)/compare
$(O)/compare: $(patsubst %,$(O)/%.o,perf/compare perf/bench/timing tools/common/exit tools/common/progress)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -ldl
