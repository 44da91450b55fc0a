/* keys.c - the keys of the section send, and their checks. */
#include "common/send/keys.h"

#include "common/device/keys.h"
#include "common/net/endpoint.h"
#include "common/base/file.h"
#include "common/config/transport_keys.h"

#define AT(member) offsetof(struct config_send, member)
const struct config_key config_send_keys[CONFIG_N_FGPU_SEND_KEYS] = {
    {"transport", CFG_ENUM, UNIT_NONE, 0, 0, "udp", false, AT(transport), config_transport_choices,
     "How packets leave: through a socket, or by ibverbs from a raw packet queue of the card that interface belongs "
     "to."},
    {"interface", CFG_STRING, UNIT_NONE, 0, 64, "", false, AT(interface), NULL,
     "Interface, by name or address, on which multicast is sent; empty is the kernel's choice."},
    {"pcap_file", CFG_STRING, UNIT_NONE, 0, 4096, "", false, AT(pcap_file), NULL,
     "Write all packets to this capture instead of the network."},
    {"ttl", CFG_INT, UNIT_NONE, 0, 255, "4", false, AT(ttl), NULL, "Time to live of multicast packets."},
    {"buffer", CFG_INT, UNIT_BYTES, 0, 4294967296.0, "1048576", false, AT(buffer_bytes), NULL,
     "Socket buffer of each stream; 0 leaves the kernel's default."},
    {"packet_payload", CFG_INT, UNIT_BYTES, 8, 65000, "8192", false, AT(packet_payload_bytes), NULL,
     "Payload bytes per packet; a multiple of 8."},
    {"rate_factor", CFG_DOUBLE, UNIT_NONE, 0, 100, "1.1", false, AT(rate_factor), NULL,
     "Sending rate over real-time rate; 0 sends without pacing."},
    {"threads", CFG_INT, UNIT_NONE, 1, 256, "1", false, AT(n_threads), NULL,
     "Send threads, among which streams are dealt; in fgpu, where there are more threads, their destinations."},
    {"affinity", CFG_INT_LIST, UNIT_NONE, -1, 4095, "", false, AT(affinity), NULL,
     "CPU of each send thread, repeated as needed; none: not pinned."},
    {"crc", CFG_BOOL, UNIT_NONE, 0, 0, "false", false, AT(crc), NULL,
     "Each packet carries a CRC32C of all its bytes, as an item that katgpucbf does not have; xbgpu and visrec check "
     "it."},
    {"array_size", CFG_INT, UNIT_NONE, 1, 65536, "65536", false, AT(array_size), NULL,
     "Antennas in the array: the step of heap counts; descriptors are sent every 5 s times this."},
    {"gpudirect", CFG_BOOL, UNIT_NONE, 0, 0, "false", false, AT(gpudirect), NULL,
     "With transport ibverbs: the network card reads heaps straight from the GPU's memory, by dma-buf "
     "(docs/operation.md)."},
};
#undef AT

void config_check_multicast(const struct endpoint_list *destinations, struct config *errors)
{
    char text[32];

    for (size_t i = 0; i < destinations->n; i++) {
        if (endpoint_is_multicast(&destinations->items[i]))
            continue;
        config_error(errors, destinations, "%s is not a multicast address, which send.transport ibverbs needs",
                     endpoint_format(&destinations->items[i], text, sizeof(text)));
        return;
    }
}

void config_check_destinations(const struct config_send *send, const struct endpoint_list *destinations,
                               struct config *errors)
{
    if (send->transport == TRANSPORT_IBVERBS && !send->pcap_file)
        config_check_multicast(destinations, errors);
}

void config_check_send(const struct config_send *send, const struct config_device *device, const char *recv_pcap_file,
                       struct config *errors)
{
    if (send->rate_factor > 0 && send->rate_factor < 1)
        config_error(errors, &send->rate_factor,
                     "rate_factor must be at least 1, or 0 for no pacing, not %g: slower than real time loses data",
                     send->rate_factor);
    config_check_transport(&send->transport, send->interface, send->pcap_file, errors);
    config_check_gpudirect(&send->gpudirect, send->transport, send->pcap_file, device, errors);
    if (send->gpudirect && send->crc)
        config_error(errors, &send->crc, "crc and gpudirect exclude each other: the CPU does not see the payloads");
    if (files_are_same(recv_pcap_file, send->pcap_file))
        config_error(errors, &send->pcap_file, "send.pcap_file would overwrite the capture that is read");
    if (send->packet_payload_bytes % 8 != 0)
        config_error(errors, &send->packet_payload_bytes, "packet_payload must be a multiple of 8, not %lld",
                     (long long)send->packet_payload_bytes);
}

bool config_check_loop(const struct endpoint_list *inputs, const struct endpoint_list *destinations,
                       struct config *errors)
{
    char text[32];

    for (size_t d = 0; d < destinations->n; d++)
        for (size_t i = 0; i < inputs->n; i++)
            if (endpoint_equal(&destinations->items[d], &inputs->items[i])) {
                config_error(errors, destinations,
                             "%s is received as %s: the program would receive its own output; send to other addresses",
                             endpoint_format(&destinations->items[d], text, sizeof(text)), inputs->items[i].key);
                return true;
            }
    return false;
}
