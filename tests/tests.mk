# SPDX-License-Identifier: MIT
# The tests. A unit test is tests/unit/test_NAME.c: a program of its own, linked with the static
# library (so that it can look inside), run against the stand-ins. A GPU test is
# tests/gpu/test_NAME.c: it uses the public interface only and exits 77 without a GPU.

TEST_CPPFLAGS := -I. -Itests -Itools -Iperf -Isim
CHECK_LIBS ?= $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)

# The calls of the library that tests/common/wrap.c can count and make fail.
TEST_WRAPPED := mmap munmap mprotect madvise lseek fcntl open __open_2 read fopen ioctl close malloc calloc \
	realloc aligned_alloc pthread_atfork dlopen dlerror dlsym syscall clock_gettime sched_yield nanosleep
TEST_WRAP := $(TEST_WRAPPED:%=-Wl,--wrap=%)

UNIT_TESTS := $(patsubst tests/unit/%.c,$(O)/tests/%,$(wildcard tests/unit/test_*.c))
# Those that know instructions of one architecture: tests/unit/MACHINE/test_NAME.c, and helpers.
MACHINE_DIR := tests/unit/$(if $(filter aarch64,$(GDRI_COPY_MACHINE)),arm64,x86)
MACHINE_TESTS := $(patsubst $(MACHINE_DIR)/%.c,$(O)/tests/%,$(wildcard $(MACHINE_DIR)/test_*.c))
MACHINE_COMMON := $(patsubst %.c,$(O)/%.o,\
	$(filter-out $(MACHINE_DIR)/test_%,$(wildcard $(MACHINE_DIR)/*.c)))
ATTACK_TESTS := $(patsubst tests/attack/attack_%.c,$(O)/tests/test_attack_%,\
	$(wildcard tests/attack/attack_*.c))
ATTACK_COMMON := $(O)/tests/attack/life.o $(O)/tests/model/fault.o
GPU_TESTS := $(patsubst tests/gpu/%.c,$(O)/tests/gpu_%,$(wildcard tests/gpu/test_*.c))
TEST_COMMON := $(patsubst %.c,$(O)/%.o,$(wildcard tests/common/*.c))

$(O)/tests/%.o: override CPPFLAGS += $(TEST_CPPFLAGS)
# A row of a table leaves out the members that are 0.
$(O)/tests/%.o: override CFLAGS += -Wno-missing-field-initializers
# Without optimization a test compiles in a third of the time. Those of queues hold the header's code, and a GPU's
# memory makes the others long.
$(O)/tests/%.o: override CFLAGS += $(if $(findstring queue,$(@F))$(filter $(O)/tests/gpu/% $(O)/tests/litmus%,$@),,-O0 -U_FORTIFY_SOURCE)
# For join_views() of queue_memory.h.
$(O)/tests/unit/test_queue_explorer.o $(O)/tests/unit/test_queue_ports.o: override CFLAGS += -O3

$(UNIT_TESTS): $(O)/tests/%: $(O)/tests/unit/%.o $(TEST_COMMON) $(DEV_IMPLS_OBJS) $(LIB_STATIC)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(TEST_WRAP) -o $@ $^ $(CHECK_LIBS) -ldl

# A second copy of the library is loaded into it.
$(O)/tests/test_watch_others: | $(LIB_LINKS)

$(MACHINE_TESTS): $(O)/tests/%: $(O)/$(MACHINE_DIR)/%.o $(MACHINE_COMMON) $(TEST_COMMON) \
		$(DEV_IMPLS_OBJS) $(LIB_STATIC)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(TEST_WRAP) -o $@ $^ $(CHECK_LIBS) -ldl

# An attack is a unit test of everything at once: tests/attack/attack_NAME.c.
$(ATTACK_TESTS): $(O)/tests/test_attack_%: $(O)/tests/attack/attack_%.o $(ATTACK_COMMON) \
		$(TEST_COMMON) $(LIB_STATIC)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(TEST_WRAP) -o $@ $^ $(CHECK_LIBS) -ldl

# The model of the library (tests/model/model.h): one program.
MODEL_TEST := $(O)/tests/test_model
MODEL_OBJS := $(patsubst %.c,$(O)/%.o,$(wildcard tests/model/*.c))

$(MODEL_TEST): $(MODEL_OBJS) $(TEST_COMMON) $(LIB_STATIC)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(TEST_WRAP) -o $@ $^ $(CHECK_LIBS) -ldl

# Repeats a seed on every kind of machine: `make model SEED=7`; STEPS= its length.
SEED ?= 1
.PHONY: model
model: $(MODEL_TEST) sim
	$(Q)$(call on_standins,test_model,$(out),GDRCOPY_TEST_SEED=$(SEED) $(if $(STEPS),MODEL_STEPS=$(STEPS)))

# The order of copies against a running kernel, with the impls inside, and the library: $(O)/litmus.
DEV_TOOLS += $(O)/litmus
$(O)/litmus: $(O)/tests/litmus.o $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tests/litmus/*.c))) $(GDRI_COPY_OBJS) \
		$(perf_bench) $(tools_common) $(LIB) | $(LIB_LINKS)
	$(call say,LD,$@)
	$(Q)$(tool_link) -Wl,-rpath,'$$ORIGIN' -o $@ $^ -ldl

# gdrcopy_doctor, all but its main file.
DOCTOR_TEST := $(O)/tests/test_doctor
DOCTOR_COMMON := $(patsubst %.c,$(O)/%.o,$(wildcard tools/doctor/*.c tools/common/*.c)) \
	$(O)/tests/common/unit.o $(O)/tests/common/again.o

$(DOCTOR_TEST): $(O)/tests/doctor/test_doctor.o $(DOCTOR_COMMON) $(LIB) | $(LIB_LINKS)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(CHECK_LIBS) -ldl -Wl,-rpath,'$$ORIGIN/..'

# What the tools use to reach CUDA serves the GPU tests too.
GPU_TEST_COMMON := $(patsubst %.c,$(O)/%.o,tests/gpu/gpu_test.c \
	$(addprefix tests/common/, pass_fd.c preload.c again.c) \
	$(addprefix tools/common/, cuda.c exit.c progress.c))

$(addprefix $(O)/tests/gpu_test_,ports queue): $(QUEUE_PTX)
$(GPU_TESTS): $(O)/tests/gpu_%: $(O)/tests/gpu/%.o $(GPU_TEST_COMMON) $(LIB) | $(LIB_LINKS)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -ldl -Wl,-rpath,'$$ORIGIN/..'

# Every test program of this build.
TEST_PROGRAMS := $(UNIT_TESTS) $(MACHINE_TESTS) $(ATTACK_TESTS) $(MODEL_TEST) $(DOCTOR_TEST) $(GPU_TESTS)
.PHONY: build-tests
build-tests: $(TEST_PROGRAMS) lib tools sim

include tests/check.mk

# After a change of what the tools print or call. The difference is to be read before it is committed.
#   tests/doctor: machines.txt, changed.txt   the doctor's reports of described machines, and of changed ones
#                 probes.txt                  what its probes find
#   tests/tools:  texts.txt, progress.txt     what the tools say; on a terminal meanwhile
#                 calls.txt, faults.txt       gdrcopy_sanity's calls of the library; the reasons of its failures
.PHONY: refresh-reports
refresh-reports: $(DOCTOR_TEST) lib sim tools
	@tests/doctor/machines.py $(O) refresh
	@tests/tools/test_doctor.sh $(O) $(O)/sim refresh
	@tests/tools/test_calls.sh $(O) $(O)/sim refresh
	@tests/tools/test_sanity.sh $(O) $(O)/sim refresh
	@tests/tools/test_progress.sh $(O) $(O)/sim refresh
	@tests/tools/test_tools.sh $(O) $(O)/sim refresh
