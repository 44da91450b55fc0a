/* keys.c - defines the keys of the section send, and checks them. */
#include "common/send/keys.h"

#include "common/device/keys.h"
#include "common/net/endpoint.h"
#include "common/net/spead.h"
#include "common/base/file.h"
#include "common/config/transport_keys.h"

#define KEYS_OF struct config_send
const struct config_key config_send_keys[CONFIG_N_FGPU_SEND_KEYS] = {
    KEY_ENUM("transport", transport, "udp", config_transport_choices,
             "How packets are sent. udp: through a socket. ibverbs: from a raw packet queue of the NIC that "
             "'interface' names."),
    KEY_STRING("interface", interface, "", 0, 64,
               "Interface that sends multicast, by name or address; empty: the kernel chooses."),
    KEY_STRING("pcap_file", pcap_file, "", 0, 4096, "Write all packets to this capture instead of the network."),
    KEY_INT("ttl", ttl, "4", UNIT_NONE, 0, 255, "Time to live of multicast packets."),
    KEY_INT("buffer", buffer_bytes, "1048576", UNIT_BYTES, 0, 4294967296.0,
            "Size of each stream's socket buffer; 0: the kernel's default."),
    KEY_INT("packet_payload", packet_payload_bytes, "8192", UNIT_BYTES, 8, 65000,
            "Number of payload bytes in a packet; a multiple of 8."),
    KEY_DOUBLE("rate_factor", rate_factor, "1.1", UNIT_NONE, 0, 100,
               "Sending rate divided by the real-time rate; 0: no pacing."),
    KEY_INT(
        "threads", n_threads, "1", UNIT_NONE, 1, 256,
        "Number of send threads, which share the streams. With more threads than streams, fgpu divides the streams' "
        "destinations."),
    KEY_INT_LIST("affinity", affinity, "", UNIT_NONE, -1, 4095,
                 "CPU of each send thread; a list that is too short is repeated; []: threads are not pinned."),
    KEY_BOOL("crc", crc, false,
             "true: each packet contains a CRC32C of all its bytes, as an item that katgpucbf does not have. xbgpu and "
             "visrec check this CRC."),
    KEY_INT("array_size", array_size, "65536", UNIT_NONE, 1, 65536,
            "Number of antennas in the array. Heap counts increase by this number. The interval between "
            "descriptors is 5 s times this number."),
    KEY_BOOL("gpudirect", gpudirect, false,
             "true, only with transport ibverbs: the network card reads heaps directly from GPU memory, by dma-buf "
             "(docs/operation.md)."),
};
#undef KEYS_OF

double send_keys_rate(const struct config_send *send, size_t heap_bytes, size_t n_items, double heap_s)
{
    size_t payload = (size_t)send->packet_payload_bytes, n_packets = (heap_bytes + payload - 1) / payload;
    double bytes = (double)(heap_bytes + n_packets * spead_built_header_bytes(n_items + send->crc));

    return send->pcap_file ? 0 : send->rate_factor * bytes / heap_s;
}

void send_keys_check_destinations(const struct config_send *send, const struct endpoint_list *destinations,
                                  struct config *errors)
{
    char text[32];

    if (send->transport != TRANSPORT_IBVERBS || send->pcap_file)
        return;
    for (size_t i = 0; i < destinations->n; i++) {
        if (endpoint_is_multicast(&destinations->items[i]))
            continue;
        config_error(errors, destinations, "%s is not a multicast address, which send.transport ibverbs needs",
                     endpoint_format(&destinations->items[i], text, sizeof(text)));
        return;
    }
}

void send_keys_check(const struct config_send *send, const struct config_device *device, const char *recv_pcap_file,
                     struct config *errors)
{
    if (send->rate_factor > 0 && send->rate_factor < 1)
        config_error(errors, &send->rate_factor,
                     "rate_factor must be at least 1, or 0 for no pacing, not %g: slower than real time loses data",
                     send->rate_factor);
    config_check_transport(&send->transport, send->interface, send->pcap_file, errors);
    device_keys_check_gpudirect(&send->gpudirect, send->transport, send->pcap_file, device, errors);
    if (send->gpudirect && send->crc)
        config_error(errors, &send->crc, "crc and gpudirect exclude each other: the CPU does not see the payloads");
    if (files_are_same(recv_pcap_file, send->pcap_file))
        config_error(errors, &send->pcap_file, "send.pcap_file would overwrite the capture that is read");
    if (send->packet_payload_bytes % 8 != 0)
        config_error(errors, &send->packet_payload_bytes, "packet_payload must be a multiple of 8, not %lld",
                     (long long)send->packet_payload_bytes);
}

bool send_keys_check_loop(const struct endpoint_list *inputs, const struct endpoint_list *destinations,
                          struct config *errors)
{
    char text[32];

    for (size_t d = 0; d < destinations->n; d++)
        for (size_t i = 0; i < inputs->n; i++)
            if (endpoint_equal(&destinations->items[d], &inputs->items[i])) {
                config_error(
                    errors, destinations,
                    "%s is also the address of %s: the program would receive its own output; send to another address",
                    endpoint_format(&destinations->items[d], text, sizeof(text)), inputs->items[i].key);
                return true;
            }
    return false;
}
