# SPDX-License-Identifier: MIT
#
# The stand-in of /dev/gdrdrv: a library to preload. Included by sim.mk, whose variables it uses.

NODE_SRC := node.c config.c interpose.c
NODE_LIB := $(SIM_OUT)/libgdrdrv_node.so
SIM_LIBS += $(NODE_LIB)

$(NODE_LIB): $(NODE_SRC:%.c=$(SIM_OUT)/node/%.o)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(SIM_LDFLAGS) -Wl,-soname,$(@F) -o $@ $^ -ldl
