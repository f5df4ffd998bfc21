# SPDX-License-Identifier: MIT
# The sources of the copies, and the flags of those that may use more than the baseline.
#
# In:  CC, O. Out: GDRI_COPY_SRCS (src/copy/...c), and CFLAGS_EXTRA for $(O)/<src>.o and
# $(O)/<src>.pic.o of the files that need it. The architecture is the compiler's.

# The loops, and what calls them, begin at line boundaries: where they lay by chance made 1 KiB writes
# of cached memory 20% faster or slower (AMD EPYC, 2026-11-21, dev/compare.c).
$(O)/src/calls/copies.o $(O)/src/calls/copies.pic.o $(O)/src/copy/%.o: override CFLAGS += -falign-functions=64

GDRI_COPY_MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))

GDRI_COPY_SRCS := $(addprefix src/copy/, \
	copy.c copyv.c words.c plan.c ref.c cpu.c)

# $(call gdri_copy_isa,file without .c,flags): one instruction set's file.
define gdri_copy_isa
GDRI_COPY_SRCS += src/copy/$(1).c
$(O)/src/copy/$(1).o $(O)/src/copy/$(1).pic.o: CFLAGS_EXTRA := $(2)
endef

ifeq ($(GDRI_COPY_MACHINE),x86_64)
GDRI_COPY_SRCS += src/copy/cpu_x86.c src/copy/sse2.c
$(eval $(call gdri_copy_isa,sse41,-msse4.1))
$(eval $(call gdri_copy_isa,avx2,-mavx2))
$(eval $(call gdri_copy_isa,avx512,-mavx512f))
endif
ifeq ($(GDRI_COPY_MACHINE),aarch64)
GDRI_COPY_SRCS += src/copy/cpu_arm64.c src/copy/neon.c
endif

# The files that run on every CPU of the architecture: on x86-64 no VEX or EVEX instruction may be in
# their objects (tests/unit/check_baseline_isa.sh).
GDRI_COPY_BASELINE_SRCS := $(filter-out \
	src/copy/avx2.c src/copy/avx512.c,$(GDRI_COPY_SRCS))

.PHONY: print-copy-baseline
print-copy-baseline:
	@echo $(GDRI_COPY_BASELINE_SRCS:%.c=$(O)/%.o) $(GDRI_COPY_BASELINE_SRCS:%.c=$(O)/%.pic.o)
