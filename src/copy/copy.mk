# SPDX-License-Identifier: MIT
# The sources of the copies. In: CC, O. Out: GDRI_COPY_SRCS, and the compiler's architecture.

# The loops, and what calls them, begin at line boundaries: where they lay by chance made 1 KiB
# writes of cached memory 20% faster or slower (AMD EPYC, 2026-11-21, perf/compare.c).
$(O)/src/calls/copies.o $(O)/src/calls/single.o $(O)/src/copy/%.o: override CFLAGS += -falign-functions=64

GDRI_COPY_MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
GDRI_COPY_SRCS := $(addprefix src/copy/, copy.c copyv.c cpu.c moves.c plan.c words.c)

.PHONY: print-copy-baseline
print-copy-baseline:
	@echo $(GDRI_COPY_SRCS:%.c=$(O)/%.o)
