/* tensor_map.h - a tensor map: a tensor (struct device_tensor) as an argument of a kernel. */
#ifndef COMMON_DEVICE_TENSOR_MAP_H
#define COMMON_DEVICE_TENSOR_MAP_H

#include <stdint.h>

/* A tensor map (CUtensorMap) that device_map_tensor() makes. */
struct __attribute__((aligned(64))) device_tensor_map {
    uint64_t opaque[16];
};

#endif
