# SPDX-License-Identifier: MIT
# The examples, built as a user would, but against this tree: <cuda.h> is our own declarations and
# -lcuda the stand-in, so that no CUDA toolkit is needed. The toolkit's <cuda.h> gives these names too.
EXAMPLE_NAMES := $(foreach n,cuMemAlloc cuMemFree cuMemcpyHtoD cuMemcpyDtoH,-D$(n)=$(n)_v2)

EXAMPLES := $(patsubst examples/%.c,$(O)/examples/%,$(wildcard examples/*.c))

.PHONY: examples
examples: $(EXAMPLES)

$(EXAMPLES): $(O)/examples/%: examples/%.c $(wildcard examples/*.h) include/barcopy.h $(LIB) $(SIM_LIBS) | $(LIB_LINKS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(EXAMPLE_NAMES) -Iinclude -Isrc/abi $(LDFLAGS) -o $@ $< $(LIB) \
		-Wl,--as-needed $(O)/sim/libcuda.so.1 -Wl,-rpath,'$$ORIGIN/..'
