# SPDX-License-Identifier: MIT
# Programs that measure and test the library's inside, for its developers: $(O)/NAME, not installed.
# One source file dev/NAME.c; others of the same program lie in dev/NAME/. Built on perf/bench
# and tools/common. Included after tools/tools.mk.

dev_names := cachebench copybench litmus

DEV_IMPLS_OBJS := $(O)/dev/impls/impls.o

$(O)/dev/%.o: override CPPFLAGS += -Itools -Iperf -Idev

# The tools that measure the copies impl by impl have them inside, besides the library.
GDRI_COPY_OBJS := $(GDRI_COPY_SRCS:%.c=$(O)/%.o) $(DEV_IMPLS_OBJS)
$(O)/copybench: $(patsubst %.c,$(O)/%.o,$(sort $(wildcard dev/copybench/*.c))) $(GDRI_COPY_OBJS)
$(O)/litmus: $(patsubst %.c,$(O)/%.o,$(sort $(wildcard dev/litmus/*.c))) $(GDRI_COPY_OBJS)

DEV_TOOLS := $(dev_names:%=$(O)/%) $(O)/compare

.SECONDARY: $(dev_names:%=$(O)/dev/%.o)
$(dev_names:%=$(O)/%): $(O)/%: $(O)/dev/%.o $(perf_bench) $(tools_common) $(LIB) | $(LIB_LINKS)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(TOOLS_RPATH) -o $@ $^ -ldl

# Two builds of the library beside each other (dev/compare.c).
compare: $(O)/compare
$(O)/compare: $(patsubst %,$(O)/%.o,dev/compare perf/bench/timing tools/common/exit)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -ldl
