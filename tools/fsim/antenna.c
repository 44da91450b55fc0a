/* antenna.c - the third step of fsim: builds packets from the heaps of an F-engine.  See fsim/antenna.h. */
#include "tools/fsim/antenna.h"

#include "common/send/sender.h"

#define DATAGRAM_BYTES_MAX 65507 /* largest UDP payload over IPv4, also for joined packets */

/* ---- struct fsim_wire, which all antennas share ------------------------------------------------------------------ */

/* Builds the descriptors of the items.  The texts are the same as in fgpu and in the reference (katgpucbf). */
static void build_descriptors(struct fsim_wire *wire)
{
    const struct fsim_config_stream *stream = &wire->config->stream;
    const struct spead_descriptor descriptors[SIM_SENDER_N_ITEMS] = {
        SPEAD_VALUE_DESCRIPTOR(
            SPEAD_TIMESTAMP, "timestamp",
            "Timestamp provided by the MeerKAT digitisers and scaled to the digitiser sampling rate."),
        SPEAD_VALUE_DESCRIPTOR(SPEAD_FENG_ID, "feng_id", "Uniquely identifies the F-Engine source for the data."),
        SPEAD_VALUE_DESCRIPTOR(SPEAD_FREQUENCY, "frequency",
                               "Identifies the first channel in the band of frequencies in the SPEAD heap."),
        {.id = SPEAD_FENG_RAW,
         .name = "feng_raw",
         .description = "Channelised complex data from both polarisations of digitiser associated with F-Engine.",
         .dtype = stream->sample_bits == 8    ? "|i1"
                  : stream->sample_bits == 16 ? "<f2"
                                              : NULL,
         /* 'u' (unsigned) for offset binary, which sends the value + 8 */
         .format_type = stream->sample_encoding == FSIM_OFFSET ? 'u' : 'i',
         .format_bits = (int)stream->sample_bits,
         .n_dims = 4,
         .shape = {stream->n_chan_substream, stream->spectra_per_heap, N_POLS, 2}},
    };

    sim_senders_build_descriptors(&wire->senders, descriptors);
}

/* Returns the number of bytes in a run of packets.  With this number, a heap has as few runs as possible, of about
 * equal length.  In a capture, each run is one packet. */
static size_t choose_run_bytes(const struct fsim_config *config, size_t heap_bytes)
{
    size_t payload_bytes = (size_t)config->send.packet_payload_bytes;
    size_t n_joined = DATAGRAM_BYTES_MAX / (spead_built_header_bytes(SIM_SENDER_N_ITEMS) + payload_bytes);
    size_t n_packets = (heap_bytes - 1) / payload_bytes + 1;

    if (config->send.pcap_file || n_joined < 2)
        return payload_bytes;
    size_t n_runs = (n_packets - 1) / n_joined + 1;
    return ((n_packets - 1) / n_runs + 1) * payload_bytes;
}

void fsim_wire_init(struct fsim_wire *wire, const struct fsim_config *config, const struct fsim_heaps *heaps)
{
    wire->config = config;
    wire->heaps = heaps;
    wire->batch_samples = fsim_config_batch_samples(config);
    wire->payload_bytes = (size_t)config->send.packet_payload_bytes;
    wire->run_bytes = choose_run_bytes(config, heaps->heap_bytes);
    size_t n_packets = wire->run_bytes / wire->payload_bytes * heaps->n_substreams;
    wire->batch_packets = n_packets < PACKET_SINK_BATCH_MAX ? n_packets : PACKET_SINK_BATCH_MAX;
    build_descriptors(wire);
}

int fsim_antenna_open(struct fsim_antenna *ant, struct fsim_wire *wire, uint64_t feng_id, char *why, size_t why_bytes)
{
    const struct fsim_heaps *heaps = wire->heaps;

    ant->wire = wire;
    ant->feng_id = feng_id;
    ant->heap_cnt = send_stream_first_heap_cnt(feng_id, heaps->n_ants, wire->config->send.pcap_file != NULL);
    int err = sim_sender_out_open(&ant->out, &wire->senders, &wire->config->stream.destinations, heaps->heap_bytes,
                                  wire->payload_bytes, why, why_bytes);
    ant->out.batch_max = wire->batch_packets;
    return err ? err : send_sink_add_memory(ant->out.sink, heaps->payloads, fsim_heaps_bytes(heaps), why, why_bytes);
}

/* ---- Packets ---------------------------------------------------------------------------------------------------- */

static uint64_t take_heap_cnt(struct fsim_antenna *ant)
{
    uint64_t heap_cnt = ant->heap_cnt;

    ant->heap_cnt += ant->wire->heaps->n_ants; /* packets carry the low 48 bits of this count */
    return heap_cnt;
}

void fsim_antenna_send_descriptors(struct fsim_antenna *ant)
{
    const struct sim_senders *senders = &ant->wire->senders;
    size_t n_bytes = senders->descriptors_bytes, payload_bytes = ant->wire->payload_bytes;

    for (size_t s = 0; s < ant->wire->heaps->n_substreams; s++) {
        uint64_t heap_cnt = take_heap_cnt(ant);
        for (size_t offset = 0; offset < n_bytes; offset += payload_bytes)
            sim_sender_out_add_heap(&ant->out, s, heap_cnt, senders->descriptors, n_bytes, offset, payload_bytes,
                                    senders->descriptor_items);
    }
    sim_sender_out_flush(&ant->out);
}

void fsim_antenna_send_stops(struct fsim_antenna *ant)
{
    for (size_t s = 0; s < ant->wire->heaps->n_substreams; s++) {
        struct packet_out *packet = sim_sender_out_add(&ant->out, s);
        packet->header_bytes = spead_build_stop(packet->header, take_heap_cnt(ant));
    }
    sim_sender_out_drain(&ant->out);
}

/* ---- Heaps ------------------------------------------------------------------------------------------------------ */

bool fsim_antenna_sends(const struct fsim_antenna *ant, int64_t timestamp, size_t i_batch)
{
    const struct fsim_heaps *heaps = ant->wire->heaps;
    uint64_t drop = (uint64_t)ant->wire->config->stream.drop;
    uint64_t number = (uint64_t)(timestamp / ant->wire->batch_samples);

    if (heaps->is_absent && heaps->is_absent[i_batch * heaps->n_ants + ant->feng_id])
        return false;
    return drop == 0 || (number * heaps->n_ants + ant->feng_id + 1) % drop != 0;
}

void fsim_antenna_add_run(struct fsim_antenna *ant, int64_t timestamp, size_t i_batch, size_t substream, size_t offset)
{
    const struct fsim_wire *wire = ant->wire;
    const struct fsim_heaps *heaps = wire->heaps;
    const struct fsim_config_stream *stream = &wire->config->stream;
    size_t end = offset + wire->run_bytes < heaps->heap_bytes ? offset + wire->run_bytes : heaps->heap_bytes;
    uint64_t chan = (uint64_t)(stream->chan_offset + (int64_t)substream * stream->n_chan_substream);
    const struct spead_item items[SIM_SENDER_N_ITEMS] = {
        {SPEAD_TIMESTAMP, true, (uint64_t)timestamp},
        {SPEAD_FENG_ID, true, ant->feng_id},
        {SPEAD_FREQUENCY, true, chan},
        {SPEAD_FENG_RAW, false, 0},
    };

    for (; offset < end; offset += wire->payload_bytes)
        sim_sender_out_add_heap(&ant->out, substream, ant->heap_cnt + substream * heaps->n_ants,
                                fsim_heaps_payload(heaps, i_batch, ant->feng_id, substream), heaps->heap_bytes, offset,
                                wire->payload_bytes, items);
}

void fsim_antenna_end_heaps(struct fsim_antenna *ant)
{
    const struct fsim_heaps *heaps = ant->wire->heaps;

    ant->heap_cnt += heaps->n_substreams * heaps->n_ants;
    counter_add(&ant->wire->n_heaps, heaps->n_substreams);
}
