/* keys.h - the keys of the section send.  fgpu has all keys.  Other programs have only the first keys of the table. */
#ifndef COMMON_SEND_KEYS_H
#define COMMON_SEND_KEYS_H

#include "common/config/config.h"

#include <stdbool.h>
#include <stdint.h>

struct config_device;
struct endpoint_list;

struct config_send {
    int transport;   /* enum transport */
    char *interface; /* interface for multicast; NULL: the kernel chooses */
    char *pcap_file; /* NULL: the network */
    int64_t ttl;
    int64_t buffer_bytes;
    int64_t packet_payload_bytes;
    double rate_factor;
    int64_t n_threads;
    struct config_int_list affinity;
    bool crc; /* true: packets carry a CRC item; fgpu and xbgpu only */
    /* fgpu only. */
    /* number of antennas; the step of heap counts and the interval between descriptors are multiplied by this
     * number */
    int64_t array_size;
    bool gpudirect; /* the NIC reads heaps directly from device memory */
};

/* number of keys of fsim.  fsim has neither the daemons' key crc nor the keys that only fgpu has */
#define CONFIG_N_FSIM_SEND_KEYS 9
#define CONFIG_N_SEND_KEYS      (CONFIG_N_FSIM_SEND_KEYS + 1)
#define CONFIG_N_FGPU_SEND_KEYS (CONFIG_N_SEND_KEYS + 2)

extern const struct config_key config_send_keys[CONFIG_N_FGPU_SEND_KEYS];

/* Row for the section send in a table of sections.  'type' is the struct for the whole configuration file; its member
 * 'send' is a struct config_send.  'n' is one of the constants above (CONFIG_N_SEND_KEYS, ...). */
#define CONFIG_SEND_SECTION(type, what, n) CONFIG_SECTION_PART(type, send, config_send_keys, n, what, .optional = true)

/* Checks the send section, and checks that this section agrees with the device and with the capture that is read.  If a
 * program has no device, 'device' is NULL.  Such a program does not have the key gpudirect.  'recv_pcap_file' is NULL
 * if no capture is read. */
void send_keys_check(const struct config_send *send, const struct config_device *device, const char *recv_pcap_file,
                     struct config *errors);

/* Returns the pace of a stream in bytes/s, for a heap of 'heap_bytes' with 'n_items' items every 'heap_s' seconds.  The
 * bytes include the packets' SPEAD headers.  Returns 0 (no pacing) if packets go to a capture. */
double send_keys_rate(const struct config_send *send, size_t heap_bytes, size_t n_items, double heap_s);

/* Reports an error at 'destinations' if the transport is ibverbs and a destination is not multicast. */
void send_keys_check_destinations(const struct config_send *send, const struct endpoint_list *destinations,
                                  struct config *errors);

/* Returns true and reports an error at 'destinations' if a destination is in 'inputs'.  The program would receive its
 * own output. */
bool send_keys_check_loop(const struct endpoint_list *inputs, const struct endpoint_list *destinations,
                          struct config *errors);

#endif
