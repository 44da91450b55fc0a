/* keys.h - the keys of the section 'device', and checks of the device for other sections. */
#ifndef COMMON_DEVICE_KEYS_H
#define COMMON_DEVICE_KEYS_H

#include "common/config/config.h"

#include <stdbool.h>
#include <stdint.h>

struct config_device {
    int kind;  /* enum device_kind */
    char *gpu; /* "auto", index, UUID or PCI address */
    int64_t n_threads;
    char *kernel_cache; /* directory of compiled kernels; NULL: the service's directory, or else the user's */
};

#define CONFIG_N_DEVICE_KEYS 4

extern const struct config_key config_device_keys[CONFIG_N_DEVICE_KEYS];

/* Row for the section 'device' in a table of sections.  'type' is the struct of the whole file, whose member 'device'
 * is a struct config_device. */
#define CONFIG_DEVICE_SECTION(type)                                                                                    \
    CONFIG_SECTION(type, device, config_device_keys, "The device on which the kernels run.", .optional = true)

/* Checks the section 'device', and reports errors. */
void device_keys_check(const struct config_device *device, struct config *errors);

/* Checks recv.gpudirect or send.gpudirect.  If the key is true, the transport must be ibverbs, 'pcap_file' must be
 * NULL, and the device must be a GPU.  Otherwise the function reports an error at this key.  'device' may be NULL if
 * the key is false. */
void device_keys_check_gpudirect(const bool *gpudirect, int transport, const char *pcap_file,
                                 const struct config_device *device, struct config *errors);

#endif
