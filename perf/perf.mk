# SPDX-License-Identifier: MIT
# The benchmarks among the tools: a new one is a file perf/NAME.c and a word in perf_names. What they share
# is in perf/bench. Included before tools/tools.mk, which links them; programs for the library's developers are in dev.mk.

perf_names := apiperf copybw copylat pplat
perf_bench := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard perf/bench/*.c)))

$(O)/perf/%.o: override CPPFLAGS += -Itools -Iperf
$(perf_names:%=$(O)/gdrcopy_%): $(O)/gdrcopy_%: $(O)/perf/%.o $(perf_bench)

# The kernels that a test of queues loads too. The assembler reads kernels.ptx, so that -MMD does not name it.
QUEUE_PTX := $(O)/perf/queue/ptx.o
$(QUEUE_PTX): perf/queue/kernels.ptx
$(QUEUE_PTX): override CFLAGS += -fno-lto -Wa,-Iperf
$(O)/gdrcopy_pplat: $(QUEUE_PTX)
