/* xothers.c - packets to xbgpu that are no voltages of an F-engine: descriptors, stop heaps, and packets of a host that
 * recv.from does not name.  See xworld.h. */
#include "tests/world/network.h"
#include "tests/world/sched.h"
#include "tests/world/wire.h"
#include "tests/world/xworld.h"

#include <arpa/inet.h>

#define CTRL_STOP 2

/* Sends a packet whose payload is garbage. */
static void send_packet(struct network_port *port, struct wire_packet *packet, const char *sender)
{
    uint8_t payload[64], bytes[512];

    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (uint8_t)world_random(256);
    packet->heap_cnt = world_random(1000);
    packet->payload = payload;
    packet->payload_bytes = packet->payload_bytes > sizeof(payload) ? sizeof(payload) : packet->payload_bytes;
    if (s.has_crc)
        packet->items[packet->n_items++] = (struct wire_item){WIRE_CRC, false, 0};
    size_t n_bytes = wire_write(packet, bytes);
    wire_add_crc(bytes, n_bytes);
    network_send_from(port, inet_addr(sender), bytes, n_bytes, NULL, NULL);
}

void others_send(struct network_port *port, unsigned batch)
{
    uint64_t heap_bytes = (uint64_t)s.n_chan * N_SPECTRA * 4;
    struct wire_packet descriptor = {
        .heap_bytes = 64, .payload_bytes = 64, .n_items = 1, .items = {{WIRE_DESCRIPTOR, true, 0}}};
    struct wire_packet stop = {
        .heap_bytes = 1, .payload_bytes = 1, .n_items = 1, .items = {{WIRE_STREAM_CTRL, false, CTRL_STOP}}};
    struct wire_packet forged = {.heap_bytes = heap_bytes,
                                 .payload_bytes = heap_bytes,
                                 .n_items = 4,
                                 .items = {{WIRE_TIMESTAMP, false, (uint64_t)((s.first_batch + batch) * BATCH)},
                                           {WIRE_FENG_ID, false, world_random(s.n_ants)},
                                           {WIRE_FREQUENCY, false, 0},
                                           {WIRE_FENG_RAW, true, 0}}};

    if (world_random(20) == 0)
        send_packet(port, &descriptor, "10.0.0.1");
    if (world_random(40) == 0)
        send_packet(port, &stop, "10.0.0.1");
    if (s.has_forger && world_random(4) == 0)
        send_packet(port, &forged, "10.0.0.2");
}
