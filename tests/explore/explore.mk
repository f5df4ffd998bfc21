# SPDX-License-Identifier: MIT
# The deterministic scheduler (explore.h): $(O)/tests/explore, whose objects of src/ are compiled with
# -fsanitize=thread for the calls that this puts before each access. gcc alone has those that are expected. Without
# _FORTIFY_SOURCE, which Ubuntu's gcc defines by itself: race.c sees memset(), not __memset_chk().

explore_dir := $(O)/explore
# __SANITIZE_THREAD__ would make each access of mapped memory acquire or release, which hides races.
explore_lib_cflags := -O1 -g -U_FORTIFY_SOURCE -fno-pie -fno-omit-frame-pointer -fsanitize=thread -U__SANITIZE_THREAD__
explore_lib := $(patsubst %.c,$(explore_dir)/%.o,$(LIB_SRCS))
explore_own := $(patsubst %.c,$(explore_dir)/%.o,$(sort $(wildcard tests/explore/*.c)) tests/common/standin.c)

$(explore_dir)/src/%.o: src/%.c $(FLAGS_SEEN)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)gcc $(CPPFLAGS) $(filter-out -O% -g $(HARDENING),$(CFLAGS)) $(CFLAGS_EXTRA) $(explore_lib_cflags) -Wno-maybe-uninitialized -MMD -MP -c -o $@ $<

$(explore_dir)/tests/%.o: tests/%.c $(FLAGS_SEEN)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)gcc $(CPPFLAGS) $(TEST_CPPFLAGS) $(filter-out -O% -g $(HARDENING),$(CFLAGS)) -O1 -g -U_FORTIFY_SOURCE -fno-pie -fno-omit-frame-pointer -fvisibility=default \
		-Wno-missing-field-initializers -MMD -MP -c -o $@ $<

$(O)/tests/explore: $(explore_lib) $(explore_own)
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)gcc -no-pie -rdynamic -pthread -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset -o $@ $^ -ldl

on_explore = LD_LIBRARY_PATH=$(O)/sim LD_PRELOAD=$(abspath $(O)/sim/libnvidia_node.so) GDRSIM_NODE=absent

# Repeats a seed: `make explore SCENARIO=room SEED=7`; COUNT= further ones, REDUCE=1: its fewest switches.
SCENARIO ?= all
SEED ?= 1
COUNT ?= $(if $(REDUCE),,1)
.PHONY: explore
explore: $(O)/tests/explore $(SIM_LIBS)
	$(Q)$(on_explore) $(O)/tests/explore $(if $(REDUCE),--reduce) $(SCENARIO) $(SEED) $(COUNT)

-include $(explore_lib:.o=.d) $(explore_own:.o=.d)
