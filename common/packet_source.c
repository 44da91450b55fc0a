/* packet_source.c - the way in: which implementation serves a source, and where the bytes of a packet fell. */
#include "common/packet_source.h"

#include <assert.h>
#include <string.h>

int packet_source_open(const struct packet_source_config *config, struct packet_source **source, char *why,
                       size_t why_bytes)
{
    assert(config->endpoints->n > 0);
    if (config->pcap_file)
        return packet_source_pcap_open(config, source, why, why_bytes);
    return packet_source_udp_open(config, source, why, why_bytes);
}

void packet_source_close(struct packet_source *source)
{
    if (source)
        source->ops->close(source);
}

int packet_source_recv(struct packet_source *source, struct packet_slot *slots, size_t n_slots, int64_t timeout_ns)
{
    assert(n_slots > 0 && n_slots <= PACKET_BATCH_MAX);
    return source->ops->recv(source, slots, n_slots, timeout_ns);
}

bool packet_source_lends(const struct packet_source *source)
{
    return source->ops->lends && source->ops->lends(source);
}

bool packet_source_can_wait(const struct packet_source *source)
{
    return source->ops->can_wait;
}

uint64_t packet_source_kernel_drops(const struct packet_source *source)
{
    return source->ops->kernel_drops ? source->ops->kernel_drops(source) : 0;
}

size_t packet_fill(struct packet_slot *slot, const uint8_t *bytes, size_t n_bytes)
{
    const struct {
        uint8_t *start;
        size_t n_bytes;
    } parts[] = {
        {slot->header, slot->header_bytes},
        {slot->payload, slot->payload_bytes},
        {slot->spill, slot->spill_bytes},
    };
    size_t n_filled = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && n_filled < n_bytes; i++) {
        size_t here = n_bytes - n_filled;
        if (here > parts[i].n_bytes)
            here = parts[i].n_bytes;
        if (here > 0)
            memcpy(parts[i].start, bytes + n_filled, here);
        n_filled += here;
    }
    return n_filled;
}

void packet_copy(const struct packet_slot *slot, size_t offset, size_t n_bytes, uint8_t *out)
{
    const struct {
        const uint8_t *start;
        size_t n_bytes;
    } parts[] = {
        {slot->header, slot->header_bytes},
        {slot->payload, slot->payload_bytes},
        {slot->spill, slot->spill_bytes},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && n_bytes > 0; i++) {
        if (offset >= parts[i].n_bytes) {
            offset -= parts[i].n_bytes;
            continue;
        }
        size_t here = parts[i].n_bytes - offset;
        if (here > n_bytes)
            here = n_bytes;
        memcpy(out, parts[i].start + offset, here);
        out += here;
        n_bytes -= here;
        offset = 0;
    }
    assert(n_bytes == 0); /* the caller asked for bytes that the slot does not have */
}
