/* peer_place.c - tells spead2's chunk receiver the place of each heap.  peer_spead2_recv.py compiles this file once
 * per run.
 *
 * Macros define the sizes, so that the compiler sees constants: HEAP_BYTES, HEAPS_PER_CHUNK (of each source),
 * N_SOURCES, SAMPLES_PER_HEAP.  place.items has the items that the receiver requested, in the requested order.  An
 * absent item is -1. */
#include <stddef.h>
#include <stdint.h>

enum { ITEM_HEAP_LENGTH, ITEM_TIMESTAMP, ITEM_SOURCE };

/* Has the fields of spead2's chunk_place_data.  spead2 passes the address and the size of a chunk_place_data. */
struct place {
    const uint8_t *packet;
    size_t packet_size;
    int64_t *items;
    int64_t chunk_id;
    size_t heap_index;
    size_t heap_offset;
};

void place_dig(struct place *place, size_t size);
void place_feng(struct place *place, size_t size);

/* Returns true if the heap is a data heap of the stream, and not a descriptor or a stop.  A refused heap keeps a
 * chunk_id of -1. */
static int accept(const struct place *place, size_t size)
{
    const int64_t *items = place->items;

    return size >= sizeof(*place) && items[ITEM_HEAP_LENGTH] == HEAP_BYTES && items[ITEM_TIMESTAMP] >= 0 &&
           items[ITEM_TIMESTAMP] % SAMPLES_PER_HEAP == 0 && items[ITEM_SOURCE] >= 0 && items[ITEM_SOURCE] < N_SOURCES;
}

/* Places a digitiser's heap.  A chunk is [source][time]: the heaps of a source lie one after another. */
void place_dig(struct place *place, size_t size)
{
    if (!accept(place, size))
        return;

    uint64_t time = (uint64_t)place->items[ITEM_TIMESTAMP] / SAMPLES_PER_HEAP;

    place->chunk_id = (int64_t)(time / HEAPS_PER_CHUNK);
    place->heap_index = (uint64_t)place->items[ITEM_SOURCE] * HEAPS_PER_CHUNK + time % HEAPS_PER_CHUNK;
    place->heap_offset = place->heap_index * HEAP_BYTES;
}

/* Places an F-engine's heap.  A chunk is [time][source]: the heaps of one time lie one after another. */
void place_feng(struct place *place, size_t size)
{
    if (!accept(place, size))
        return;

    uint64_t time = (uint64_t)place->items[ITEM_TIMESTAMP] / SAMPLES_PER_HEAP;

    place->chunk_id = (int64_t)(time / HEAPS_PER_CHUNK);
    place->heap_index = time % HEAPS_PER_CHUNK * N_SOURCES + (uint64_t)place->items[ITEM_SOURCE];
    place->heap_offset = place->heap_index * HEAP_BYTES;
}
