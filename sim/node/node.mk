# SPDX-License-Identifier: MIT
#
# The stand-ins of /dev/gdrdrv (node/) and of nvidia.ko (rm/): one library to preload, whose two
# names select the nodes. Included by sim.mk, whose variables it uses. Never built for a sanitizer:
# its functions run before a sanitizer's run time is set up.

NODE_SRC := $(addprefix node/,node.c config.c interpose.c) \
	$(addprefix rm/,state.c config.c gpus.c files.c memory.c objects.c maps.c vmas.c control.c export.c \
		escape.c paths.c)
NODE_OBJ := $(NODE_SRC:%.c=$(SIM_OUT)/%.o) $(addprefix $(SIM_OUT)/node/,machine.o rules.o)
NODE_LIB := $(SIM_OUT)/libgdrdrv_node.so
NODE_LINK := $(SIM_OUT)/libnvidia_node.so
SIM_LIBS += $(NODE_LIB)

$(NODE_LIB) $(NODE_OBJ): \
	override CFLAGS := $(filter-out -fsanitize=% -fno-sanitize-recover=%,$(CFLAGS))
$(NODE_LIB): override LDFLAGS := $(filter-out -fsanitize=%,$(LDFLAGS))

# Its own: the other libraries' are built for a sanitizer with them.
$(SIM_OUT)/node/machine.o $(SIM_OUT)/node/rules.o: $(SIM_OUT)/node/%.o: $(SIM_DIR)%.c $(FLAGS_SEEN)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(call compile,$(SIM_CFLAGS))

$(NODE_LIB): $(NODE_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(SIM_LDFLAGS) -Wl,-soname,$(@F) -o $@ $^ -ldl
	$(Q)ln -sf $(@F) $(NODE_LINK)
