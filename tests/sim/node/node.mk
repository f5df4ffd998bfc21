# SPDX-License-Identifier: MIT
#
# The stand-in of /dev/gdrdrv: a library to preload. Included by sim.mk, whose variables it uses.
# Never built for a sanitizer: its functions run before a sanitizer's run time is set up.

NODE_SRC := node.c config.c interpose.c
NODE_LIB := $(SIM_OUT)/libgdrdrv_node.so
SIM_LIBS += $(NODE_LIB)

$(NODE_LIB) $(NODE_SRC:%.c=$(SIM_OUT)/node/%.o): \
	override CFLAGS := $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS))
$(NODE_LIB): override LDFLAGS := $(filter-out -fsanitize=%,$(LDFLAGS))

$(NODE_LIB): $(NODE_SRC:%.c=$(SIM_OUT)/node/%.o)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(SIM_LDFLAGS) -Wl,-soname,$(@F) -o $@ $^ -ldl
