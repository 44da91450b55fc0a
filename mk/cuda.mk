# The cuda device: a shared object that the daemons open on hosts with a GPU (common/device/plugin.h).
CUDART      := $(firstword $(wildcard $(addsuffix /libcudart_static.a,$(CUDA)/lib64 $(CUDA)/lib $(CUDA)/lib/x86_64-linux-gnu)))
CUDA_DEVICE := $(if $(CUDA),$(BUILD)/cbf-cuda.so)
CUDA_LIBRARIES := $(patsubst %/,%,$(if $(CUDART),$(dir $(CUDART)),/usr/local/cuda/lib64))

# The device links its own copy of these files of common/base, because the shared object cannot use the program's
# symbols.
CUDA_BASE    := $(addprefix common/base/,clock.c thread.c file.c trust.c memory.c version.c why.c)
CUDA_SOURCES := $(wildcard common/device/cuda/*.c) common/device/texts.c $(CUDA_BASE)
pic_objects   = $(patsubst %.c,$(OBJ)/pic/%.o,$(1))

all: $(CUDA_DEVICE)
	@$(if $(CUDA),:,echo "  no CUDA toolkit: without the cuda device (cbf-cuda.so)")

$(OBJ)/pic/%: EXTRA_CFLAGS += -fPIC -fvisibility=hidden -isystem $(CUDA)/include
$(OBJ)/common/device/cuda/library.o $(OBJ)/pic/common/device/cuda/library.o: EXTRA_CFLAGS += -DCBF_CUDA_LIBRARIES='"$(CUDA_LIBRARIES)"'
$(OBJ)/common/device/cuda/vulkan.o $(OBJ)/pic/common/device/cuda/vulkan.o: EXTRA_CFLAGS += $(VULKAN_CFLAGS)

$(BUILD)/cbf-cuda.so: $(call pic_objects,$(CUDA_SOURCES))
	@echo "  LINK    $@"
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,--exclude-libs,ALL -o $@ $^ $(CUDART) -ldl -lrt -lpthread

# For debian/rules: the package of the cuda device is built only with a CUDA toolkit.
cuda-device:
	@echo $(CUDA_DEVICE)
.PHONY: cuda-device
