# SPDX-License-Identifier: MIT
# The tools: which there are and how they are linked. Included by the top Makefile, whose rule
# compiles. A tool is one source file perf/NAME.c, built as $(O)/gdrcopy_NAME; a new one is a word
# in perf_names. What measures and tries the library's inside, for its developers, is $(O)/NAME, without
# the prefix and not installed: a user would take the tool's own copies for the library's.

perf_names := apiperf copybw copylat doctor pplat sanity
dev_names := cachebench copybench litmus

perf_common := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/common/*.c)))

# A tool that is more than one file has the others in perf/NAME/.
$(O)/perf/sanity.o $(O)/perf/sanity/%.o: override CPPFLAGS += -Iperf
$(O)/gdrcopy_sanity: $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/sanity/*.c)))

$(O)/perf/pplat.o $(O)/perf/pplat/%.o: override CPPFLAGS += -Iperf
$(O)/gdrcopy_pplat: $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/pplat/*.c)))

$(O)/perf/doctor.o $(O)/perf/doctor/%.o: override CPPFLAGS += -Iperf
$(O)/gdrcopy_doctor: $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/doctor/*.c)))

# What `make install` installs; `make` builds these and the developers'.
PERF_TOOLS := $(perf_names:%=$(O)/gdrcopy_%)
DEV_TOOLS := $(dev_names:%=$(O)/%) $(O)/compare

# Where a tool finds the library: beside itself in the build tree; where it is installed in the prefix's
# lib, lib64 or what the system's loader has for $LIB (lib/x86_64-linux-gnu). Packages set this to nothing.
PERF_RPATH ?= -Wl,-rpath,'$$ORIGIN:$$ORIGIN/../lib:$$ORIGIN/../lib64:$$ORIGIN/../$$LIB'

# Rows of copies beside the library's, for the tools that compare and for the tests.
PERF_ROWS_SRCS := perf/rows/rows.c
ifeq ($(GDRI_COPY_MACHINE),x86_64)
PERF_ROWS_SRCS += perf/rows/baseline.c perf/rows/movdir64b.c
$(O)/perf/rows/baseline.o: CFLAGS_EXTRA := -mavx2
endif
ifeq ($(GDRI_COPY_MACHINE),aarch64)
PERF_ROWS_SRCS += perf/rows/ls64.c
$(O)/perf/rows/ls64.o: CFLAGS_EXTRA := -march=armv8.6-a+ls64
endif
PERF_ROWS_OBJS := $(PERF_ROWS_SRCS:%.c=$(O)/%.o)

# The tools that measure the copies row by row have them inside, besides the library.
GDRI_COPY_OBJS := $(GDRI_COPY_SRCS:%.c=$(O)/%.o) $(PERF_ROWS_OBJS)
$(O)/perf/copybench.o $(O)/perf/copybench/%.o: override CPPFLAGS += -Iperf
$(O)/copybench: $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/copybench/*.c))) $(GDRI_COPY_OBJS)
$(O)/perf/litmus.o $(O)/perf/litmus/%.o: override CPPFLAGS += -Iperf
$(O)/litmus: $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/litmus/*.c))) $(GDRI_COPY_OBJS)

.SECONDARY: $(perf_names:%=$(O)/perf/%.o) $(dev_names:%=$(O)/perf/%.o)

$(PERF_TOOLS): $(O)/gdrcopy_%: $(O)/perf/%.o $(perf_common) $(LIB) | $(LIB_LINKS)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(PERF_RPATH) -o $@ $^ -ldl

$(dev_names:%=$(O)/%): $(O)/%: $(O)/perf/%.o $(perf_common) $(LIB) | $(LIB_LINKS)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(PERF_RPATH) -o $@ $^ -ldl

# Two builds of the library beside each other (perf/compare.c).
.PHONY: compare
compare: $(O)/compare
$(O)/compare: $(patsubst %,$(O)/perf/%.o,compare common/sim common/timing common/exit)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -ldl
