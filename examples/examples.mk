# SPDX-License-Identifier: MIT
# The examples, built as a user would, but against this tree: <cuda.h> is our own declarations and
# -lcuda the stand-in, so that no CUDA toolkit is needed. The toolkit's <cuda.h> gives these names too.
EXAMPLE_NAMES := $(foreach n,cuMemAlloc cuMemFree cuMemcpyHtoD cuMemcpyDtoH cuStreamDestroy,-D$(n)=$(n)_v2)

EXAMPLES := $(patsubst examples/%.c,$(O)/examples/%,$(wildcard examples/*.c))
# Those in C++ where there is a compiler for it; by nvcc as well where that is.
EXAMPLES_CXX := $(patsubst examples/%.cpp,$(O)/examples/%,$(wildcard examples/*.cpp))
NVCC := $(firstword $(wildcard $(addsuffix /nvcc,$(subst :, ,$(PATH)) /usr/local/cuda/bin)))
CXX := $(CROSS_COMPILE)g++
CXX_HERE := $(wildcard $(addsuffix /$(CXX),$(subst :, ,$(PATH))))

.PHONY: examples
examples: $(EXAMPLES) $(if $(CXX_HERE),$(EXAMPLES_CXX) $(if $(CROSS_COMPILE)$(SANITIZE),,$(if $(NVCC),$(EXAMPLES_CXX:=-nvcc))))

$(EXAMPLES): $(O)/examples/%: examples/%.c $(wildcard examples/*.h) include/barcopy.h $(LIB) $(SIM_LIBS) | $(LIB_LINKS)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(EXAMPLE_NAMES) -Iinclude -Isrc/abi $(LDFLAGS) -o $@ $< $(LIB) \
		-Wl,--as-needed $(O)/sim/libcuda.so.1 -Wl,-rpath,'$$ORIGIN/..'

# nvcc takes no file of the name libcuda.so.1.
EXAMPLE_CXX = -std=c++17 $(EXAMPLE_NAMES) -Iinclude -Isrc/abi -o $@ $< -Xlinker $(LIB) -Xlinker $(O)/sim/libcuda.so.1

$(EXAMPLES_CXX): $(O)/examples/%: examples/%.cpp $(wildcard examples/*.h) include/barcopy.h $(LIB) $(SIM_LIBS) | $(LIB_LINKS)
	$(call say,CXX,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CXX) -O2 -g $(WERROR) -Wall -Wextra -Wshadow $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(EXAMPLE_CXX) -pthread -Wl,-rpath,'$$ORIGIN/..'

$(EXAMPLES_CXX:=-nvcc): $(O)/examples/%-nvcc: examples/%.cpp $(wildcard examples/*.h) include/barcopy.h $(LIB) $(SIM_LIBS) | $(LIB_LINKS)
	$(call say,NVCC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(NVCC) $(if $(WERROR),-Werror all-warnings) $(EXAMPLE_CXX) -Xlinker -rpath='$$ORIGIN/..'
