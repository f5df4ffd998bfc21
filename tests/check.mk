# SPDX-License-Identifier: MIT
# The test commands. make is the scheduler: a test is a target that runs tests/job, which keeps its log and
# result below $(RESULTS); tests/report adds them up.
#
#   check        the command of the README: three minutes on two cores
#   check-ci     what a CI run adds: 30 minutes
#   check-full   all the rest; check-ci's part is in it
# TESTS='PATTERN...' runs the tests whose name (below) has one of these.

RESULTS := $(abspath $(O))/results
JOB = $(needs_plain_path)tests/job $(RESULTS)
JOB_LONG = $(needs_plain_path)tests/job -l 14400 $(RESULTS)
out := $(abspath $(O))

# A test program on the stand-ins: $(call program,NAME,DIRECTORY OF THE BUILD,ENVIRONMENT AND EMULATOR)
on_standins = env LD_LIBRARY_PATH=$(2)/sim GDRSIM_DIR=$(2)/sim $(3) $(2)/tests/$(1)
sanitizers := ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
	TSAN_OPTIONS='halt_on_error=1 second_deadlock_stack=1'

# ---- which tests are in which command --------------------------------------------------------------

PROGRAMS := $(notdir $(TEST_PROGRAMS))
# They step through the compiler's own code, instruction by instruction: no sanitizer's.
NATIVE_PROGRAMS := $(notdir $(MACHINE_TESTS)) gpu_test_alloc
# Natively in check, under ASan in check-ci: the programs that are dearest there, and those that take the tools' objects.
LATE_PROGRAMS := test_attack_faults test_cache_bound test_copy_engine test_queue test_queue_explorer \
	test_queue_ports gpu_test_ports $(notdir $(DOCTOR_TEST)) test_model
# Another thread than the first.
THREAD_SOURCES = $(shell grep -lwE 'pthread_create|unit_start|unit_threads' tests/unit/*.c tests/attack/*.c tests/gpu/*.c)
THREAD_PROGRAMS = $(filter $(PROGRAMS),$(basename $(patsubst tests/unit/%,%,$(patsubst tests/gpu/%,gpu_%,\
	$(patsubst tests/attack/%,test_%,$(THREAD_SOURCES))))))
# What differs by architecture: the copies, and a page's size.
ARM64_PROGRAMS := test_copy_diff test_copy_calls test_copy_cpu test_copy_words test_copy_fences test_copy_watch \
	test_backends test_queue test_range test_rm test_rm_fork
# check-full: all but what tests/arm64/not-run gives a reason for, and what knows x86's instructions.
ARM64_ALL = $(ARM64_PROGRAMS) $(filter-out $(ARM64_PROGRAMS) $(notdir $(MACHINE_TESTS)) \
	$(shell sed -n 's/^\([a-z_]*test_[a-z_]*\)\t.*/\1/p' tests/arm64/not-run),$(PROGRAMS))

CHECK_SCRIPTS := $(addprefix build/,baseline_isa examples test_build_dir test_find_nvidia test_report test_src_layers \
	test_header test_library test_stats) tools/test_calls tools/test_copy_tools \
	tools/test_doctor tools/test_inherited tools/test_progress tools/test_sanity tools/test_tools contract/run explore/seeds
PYTHON_SCRIPTS := build/python build/test_docs
CI_SCRIPTS := explore/fresh model/fresh fuzz/run build/test_fences build/test_install build/test_wheel packages/static
FULL_SCRIPTS := packages/run

# Of the steps in $(1) those that TESTS asks for; all, where a pattern has a wildcard, which tests/job knows.
wanted = $(strip $(if $(filter-out $(foreach c,* ? [,$(if $(findstring $c,$(TESTS)),$(TESTS))),$(TESTS)),$(foreach s,$(1), \
	$(if $(strip $(foreach p,$(TESTS),$(findstring $p,$(basename $s)))),$s)),$(1)))
# What a build makes: $(call goals,DIRECTORY OF THE BUILD,ITS STEPS)
goals = sim $(patsubst %.program,$(1)/tests/%,$(notdir $(call wanted,$(2))))

# ---- check -----------------------------------------------------------------------------------------

.PHONY: check check-ci check-full check-clients check-fresh check-kernel test tests
# Without the results of earlier runs, unless ADD is set.
begin = @$(needs_plain_path)mkdir -p $(RESULTS) $(if $(ADD),,&& find $(RESULTS) -name '*.result' | \
	while read -r f; do rm -f "$$f" "$${f%.result}.log"; done)
# Tests run programs and load libraries that they build in TMPDIR; some systems forbid that there (noexec).
may_run = t=$$(mktemp) && echo '\#!/bin/sh' >$$t && chmod +x $$t && { $$t 2>/dev/null || \
	{ mkdir -p $(out)/tmp && export TMPDIR=$(out)/tmp; }; }; rm -f $$t;
parallel = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
# $(call run,GOALS): $(steps) is how many lines they print, where that is known.
run = +@$(may_run) unset CFLAGS CPPFLAGS LDFLAGS; . tests/common/progress.sh && progress -s -n '$(steps)' -r $(RESULTS) 'make $@' $(out)/$@.log \
	$(MAKE) --no-print-directory -k $(parallel) $(1) || :
check: steps = $(words native.build $(if $(TESTS),,clang.syntax) $(if $(call wanted,$(ASAN_STEPS)),asan.build) \
	$(call wanted,$(ASAN_STEPS) $(NATIVE_STEPS) $(CHECK_STEPS)))
report = @tests/report $(RESULTS) $@

check:
	@tests/deps.sh check
	$(begin)
	$(call run,asan.programs native.programs $(call wanted,$(CHECK_STEPS)) clang.syntax NATIVE_GOALS='$(CHECK_GOALS)')
	@export O=$(out); gdrdrv/tests/run.sh stamped; case $$? in \
		1) $(JOB_LONG) kernel/6.1 gdrdrv/tests/run.sh quick_6.1 ;; \
		2) echo 'The driver was not booted: make check-kernel' ;; esac
	$(report)

test tests: check

check-ci:
	@tests/deps.sh ci
	$(begin)
	$(call run,ci.tests ASAN_PROGRAMS='$(LATE_PROGRAMS)')
	$(report)

check-full:
	@tests/deps.sh full
	$(begin)
	$(call run,ci.tests full.tests ARM64_FULL=1 ASAN_PROGRAMS='$(LATE_PROGRAMS)')
	$(report)

# A name with a dot is a step of these commands, and no file.
ci.tests: kernel/6.1.kernel kernel/6.12.kernel kernel/arm64.kernel asan.programs tsan.programs arm64.programs long.programs \
	$(CI_SCRIPTS:%=%.script)
full.tests: kernel/full.kernel valgrind.programs $(FULL_SCRIPTS:%=%.script) coverage.script mutants.script planted.script \
	fresh.script herd.script

# Both commands of the README in minimal roots of Debian 12 and 13, from the last commit. As root.
check-fresh:
	@$(needs_plain_path)tests/check-fresh.sh --dir $(out)/fresh

# UCX, Open MPI, NCCL and others with the library that is installed in PREFIX=, on a machine with GPUs.
check-clients:
	@tests/clients/run.sh '$(PREFIX)'

# The driver in an emulated machine, its quick tier; gdrdrv/tests/run.sh has more.
check-kernel:
	@$(needs_plain_path)mkdir -p $(out) && export O=$(out) && . tests/common/progress.sh && \
		progress -s 'make $@' $(out)/$@.log gdrdrv/tests/run.sh quick

# ---- programs --------------------------------------------------------------------------------------

ASAN_PROGRAMS := $(filter-out $(LATE_PROGRAMS) $(filter-out gpu_%,$(NATIVE_PROGRAMS)),$(PROGRAMS))
ASAN_STEPS := $(ASAN_PROGRAMS:%=asan/%.program)
NATIVE_STEPS := $(patsubst %,native/%.program,$(NATIVE_PROGRAMS) $(LATE_PROGRAMS))
TSAN_STEPS = $(THREAD_PROGRAMS:%=tsan/%.program)
LONG_STEPS := $(PROGRAMS:%=long/%.program)
# Valgrind gets all cases of a program in one process: not of these, which need one for each.
VALGRIND_STEPS := $(patsubst %,valgrind/%.program,$(filter-out test_gdrdrv test_mem test_model,$(PROGRAMS)))
CHECK_STEPS := $(patsubst %,%.script,$(CHECK_SCRIPTS) $(PYTHON_SCRIPTS))
SCRIPT_STEPS := $(CHECK_STEPS) $(patsubst %,%.script,$(CI_SCRIPTS) $(FULL_SCRIPTS) mutants)

# The names of the tests of check. docs/internals/changes.md has parts of them.
.PHONY: print-tests
print-tests:
	@printf '%s\n' $(basename $(ASAN_STEPS) $(NATIVE_STEPS) $(CHECK_STEPS))

# A script may use any of the programs and tools; those of check use few, and the rest has no native step there.
NATIVE_GOALS = $(if $(call wanted,$(SCRIPT_STEPS)),build-tests $(out)/tests/explore,$(call goals,$(out),$(NATIVE_STEPS) \
	$(LONG_STEPS) $(VALGRIND_STEPS)))
CHECK_GOALS = $(call goals,$(out),$(NATIVE_STEPS)) $(if $(call wanted,$(CHECK_STEPS)),lib tools \
	$(addprefix $(out)/tests/,explore test_doctor))
native.build:
	+@$(JOB_LONG) native/build $(MAKE) -k V=1 O=$(out) WERROR=-Werror $(NATIVE_GOALS)
asan.build:
	+@$(JOB_LONG) asan/build $(MAKE) -k V=1 O=$(out)/asan WERROR=-Werror \
		SANITIZE=address,undefined CFLAGS='-O1 -g1' $(call goals,$(out)/asan,$(ASAN_STEPS))
tsan.build:
	+@$(JOB_LONG) tsan/build $(MAKE) -k V=1 O=$(out)/tsan SANITIZE=thread CFLAGS='-O1 -g1' lib sim \
		$(patsubst %.program,$(out)/tsan/tests/%,$(notdir $(call wanted,$(TSAN_STEPS))))

asan.programs: $(call wanted,$(ASAN_STEPS))
native.programs: $(call wanted,$(NATIVE_STEPS))
tsan.programs: $(call wanted,$(TSAN_STEPS))
long.programs: $(call wanted,$(LONG_STEPS))
valgrind.programs: $(call wanted,$(VALGRIND_STEPS))

native/%.program: native.build
	@$(JOB) native/$* $(call on_standins,$*,$(out),GDRCOPY_TEST_QUICK=1)
long/%.program: native.build
	@$(JOB) long/$* $(call on_standins,$*,$(out),)
# One of the builds meets a driver that lets a dma-buf be mapped, which one test needs.
asan/gpu_test_alloc.program: mappable := GDRSIM_DMABUF_MMAP=1 GDRSIM_DRIVER_VERSION=13030
asan/%.program: asan.build
	@$(JOB) asan/$* $(call on_standins,$*,$(out)/asan,$(sanitizers) GDRCOPY_TEST_QUICK=1 $(mappable))
tsan/%.program: tsan.build
	@$(JOB) tsan/$* $(call on_standins,$*,$(out)/tsan,$(sanitizers) GDRCOPY_TEST_QUICK=1 setarch -R)
# Its cases leave memory and a running kernel behind, which the next one would see.
valgrind/test_queue.program: one_process :=
valgrind/%.program: one_process := CK_FORK=no
valgrind/%.program: native.build
	@tests/job -l 1200 -n valgrind $(RESULTS) valgrind/$* $(call on_standins,$*,$(out),GDRCOPY_TEST_QUICK=1 $(one_process) \
		valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite \
		--suppressions=tests/valgrind.supp)
arm64.programs:
	+@tests/arm64/run.sh $(RESULTS) $(out)/arm64 $(if $(ARM64_FULL),$(ARM64_ALL),$(ARM64_PROGRAMS))

# ---- scripts: tests/DIR/NAME.sh BUILD_DIR SIM_DIR -----------------------------------------------------

$(PYTHON_SCRIPTS:%=%.script) build/test_fences.script: job_needs := -n python3
# A script calls make by itself, with a build directory of its own.
alone = @unset MAKEFLAGS MFLAGS MAKELEVEL;
%.script: native.build
	$(alone) tests/job -l 3600 $(job_needs) $(RESULTS) $* bash tests/$*.sh $(out) $(out)/sim
# It builds there too, if TESTS leaves out the program.
model/fresh.script: asan.build
coverage.script:
	$(alone) $(JOB_LONG) coverage tests/coverage.sh $(out)/coverage
# An hour and a quarter on two cores.
mutants.script: native.build
	$(alone) tests/job -l 14400 -n python3 $(RESULTS) mutants tests/mutants/mutants.py -o $(out)
planted.script: native.build
	$(alone) tests/job -l 3600 -n python3 $(RESULTS) explore/planted tests/explore/planted.py $(out)
herd.script:
	$(alone) tests/job -n gcc $(RESULTS) herd tests/litmus/herd.sh
fresh.script:
	$(alone) $(JOB_LONG) fresh tests/check-fresh.sh --dir $(out)/fresh
kernel/full.kernel:
	$(alone) O=$(out) $(JOB_LONG) kernel/full gdrdrv/tests/run.sh matrix
kernel/%.kernel:
	$(alone) O=$(out) $(JOB_LONG) kernel/$* gdrdrv/tests/run.sh quick_$*
# Another compiler's warnings, without code.
CLANG = clang -fsyntax-only -std=gnu11 $(WARNINGS) -Werror $(filter-out -DBARCOPY_VERSION=%,$(CPPFLAGS)) \
	-DBARCOPY_VERSION='""' -Itools -Iperf $(if $(filter x86_64,$(GDRI_COPY_MACHINE)),-mavx512f)
CLANG_SRCS := $(LIB_SRCS) $(wildcard tools/*.c tools/*/*.c perf/*.c perf/*/*.c tests/litmus.c tests/litmus/*.c tests/rm-abi/*.c)
clang.syntax: export CLANG_NOW = for f in $(CLANG_SRCS); do $(CLANG) $$f || exit; done; echo "1 passed, 0 failed"
clang.syntax:
	@tests/job -n clang $(RESULTS) clang/syntax sh -c "$$CLANG_NOW"
