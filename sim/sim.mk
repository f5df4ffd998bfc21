# SPDX-License-Identifier: MIT
#
# The stand-ins: libcuda.so.1 and libnvidia-ml.so.1, and the kernel drivers' nodes (node/), in
# $(O)/sim. Included by the main Makefile, which sets O, CC, CFLAGS and LDFLAGS; defines SIM_LIBS.

SIM_DIR := $(dir $(lastword $(MAKEFILE_LIST)))
SIM_OUT := $(O)/sim

SIM_SRC_common := fault.c machine.c rules.c
SIM_SRC_cuda := state.c device.c context.c va.c object.c table.c block.c memory.c host.c vmm.c share.c \
	dmabuf.c mmap_hook.c pointer.c copy.c stream.c event.c capture.c kernel.c kernels.c warp.c queue.c names.c \
	pins.c rmclient.c escape.c import_slots.c

SIM_SRC_nvml := nvml.c

SIM_LIBS := $(addprefix $(SIM_OUT)/,libcuda.so.1 libnvidia-ml.so.1)

SIM_CFLAGS := -std=c11 -fPIC -fvisibility=hidden -pthread -I$(SIM_DIR)../src -I$(SIM_DIR)../include \
	-I$(SIM_DIR)../perf -I$(SIM_DIR)
# They keep threads, hooks and thread-local data: once loaded they stay.
SIM_LDFLAGS = -shared -pthread -Wl,-z,nodelete $(if $(findstring -fsanitize=,$(LDFLAGS)),,-Wl$(,)-z$(,)defs)
, := ,

sim_objs = $(patsubst %.c,$(SIM_OUT)/%.o,$(SIM_SRC_common) $(1))

$(SIM_OUT)/%.o: $(SIM_DIR)%.c $(FLAGS_SEEN)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(call compile,$(SIM_CFLAGS))

# dl_iterate_phdr() and ELF: what the library itself uses.
$(SIM_OUT)/import_slots.o: $(SIM_DIR)../src/cuda/import_slots.c $(FLAGS_SEEN)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(call compile,$(SIM_CFLAGS))

$(SIM_OUT)/libcuda.so.1: $(call sim_objs,$(SIM_SRC_cuda))
$(SIM_OUT)/libnvidia-ml.so.1: $(call sim_objs,$(SIM_SRC_nvml))

$(SIM_LIBS):
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(SIM_LDFLAGS) -Wl,-soname,$(@F) -o $@ $^ -ldl

# libcuda once more, as it may be linked: the slot of its import of ioctl is writable for ever above
# (lazy), read-only once loaded in now/ (RELRO), of another relocation type in noplt/, and there is
# none in direct/, which looks ioctl up itself.
SIM_VARIANTS := $(patsubst %,$(SIM_OUT)/%/libcuda.so.1,now noplt direct)
SIM_LIBS += $(SIM_VARIANTS)

$(SIM_OUT)/libcuda.so.1: override LDFLAGS += -Wl,-z,lazy
$(SIM_VARIANTS): override LDFLAGS += -Wl,-z,relro,-z,now
$(SIM_OUT)/now/libcuda.so.1: $(call sim_objs,$(SIM_SRC_cuda))
$(SIM_OUT)/noplt/libcuda.so.1 $(SIM_OUT)/direct/libcuda.so.1: $(SIM_OUT)/%/libcuda.so.1: \
	$(call sim_objs,$(filter-out escape.c,$(SIM_SRC_cuda))) $(SIM_OUT)/%/escape.o
$(SIM_OUT)/noplt/escape.o: override CFLAGS += -fno-plt
$(SIM_OUT)/direct/escape.o: override CPPFLAGS += -DSIM_ESCAPE_DIRECT
$(SIM_OUT)/noplt/escape.o $(SIM_OUT)/direct/escape.o: $(SIM_DIR)escape.c $(FLAGS_SEEN)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(call compile,$(SIM_CFLAGS))

# With the other library, so that such a directory can stand for the whole.
$(SIM_VARIANTS):
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(SIM_LDFLAGS) -Wl,-soname,$(@F) -o $@ $^ -ldl
	$(Q)ln -sf ../libnvidia-ml.so.1 $(@D)/

include $(SIM_DIR)node/node.mk

.PHONY: sim
sim: $(SIM_LIBS)

-include $(wildcard $(SIM_OUT)/*.d $(SIM_OUT)/*/*.d)
