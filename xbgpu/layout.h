/* layout.h - the sizes that follow from xbgpu's configuration: heaps, chunks, baselines, integrations, memory.
 *
 * Pure arithmetic on a checked configuration; used by every stage, and by --check-config to say what does not fit. */
#ifndef XBGPU_LAYOUT_H
#define XBGPU_LAYOUT_H

#include "common/base/memory.h"
#include "common/engine/engine.h"
#include "common/recv/chunk.h"
#include "kernels/correlate/correlate.h"
#include "kernels/util/voltages.h"
#include "xbgpu/config.h"

#include <stddef.h>
#include <stdint.h>

struct device;

struct xbgpu_layout {
    enum voltage_format format;
    size_t n_ants;
    size_t n_baselines; /* of antennas, autocorrelations included */
    size_t n_chan;      /* of this engine */
    size_t n_spectra;   /* of a heap */
    size_t heap_bytes;
    size_t n_batches; /* of a chunk */
    int64_t batch_samples;
    int64_t chunk_samples;
    size_t n_members; /* groups of F-engines, each assembled apart: one per receive thread */
    size_t n_recv_threads;
    size_t n_outputs;
    int64_t min_shift, max_shift; /* spectra that inputs can be shifted by: there is 0 among them */
    bool shifted;                 /* some input may be */
    size_t n_shift_sets;          /* recv's, and those of outputs that have their own */
    size_t n_lag;     /* batches that outputs are behind what came: 1 where an input may read ahead, else 0 */
    size_t n_history; /* batches in front of a chunk that shifted inputs read: 0 to 2 */
    size_t n_gates;
    size_t n_selected_spectra; /* of a heap of what a gate takes */
    size_t n_selected_batches; /* that hold a whole chunk, where an output has a gate or shifts of its own */
    size_t vis_bytes;          /* of a dump's visibilities, and of an output's 32-bit sums */
    size_t totals_bytes;       /* of its 64-bit ones, where it has them */
    size_t rows_bytes;         /* of its checksums' rows (checksum.h), if it has checksums */
    size_t checks_bytes;       /* of what they say of a dump: verdict and words (checksum_dump.h) */
    struct memory_use memory;  /* UINT64_MAX where a sum goes beyond 64 bits */
    size_t frames_per_heap;    /* of a card that a heap may lie in, with gpudirect; else 0 */
};

/* Derives the layout; 'mtu' of the interface of recv, for frames of a card, or 0 for the largest.  The configuration must
 * have passed the checks that xbgpu_config_check makes before it. */
void xbgpu_layout_init(struct xbgpu_layout *layout, const struct xbgpu_config *config, bool on_gpu, size_t mtu);

/* Logs how many there are of everything, and the memory. */
void xbgpu_layout_log(const struct xbgpu_layout *layout);

/* The engine's sizes for this configuration. */
struct engine_sizes xbgpu_engine_sizes(const struct xbgpu_layout *layout, const struct xbgpu_config *config);

/* After so long without data an input is silent: ten chunks, and at least a second. */
int64_t xbgpu_rx_timeout_ns(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* The chunks of member 'm'. */
struct chunk_shape xbgpu_chunk_shape(const struct xbgpu_layout *layout, const struct xbgpu_config *config, size_t m);

/* Whether this host has the memory and the CPUs, and its device the memory, before anything is made.  Returns 0, or
 * negative errno with one sentence in 'why'. */
int xbgpu_layout_check_host(const struct xbgpu_layout *layout, const struct xbgpu_config *config, struct device *device,
                            char *why, size_t why_bytes);

/* Delay in spectra of an input with this shift: shift + lag.  The lag of n_lag batches keeps delays >= 0. */
uint32_t xbgpu_delay(const struct xbgpu_layout *layout, int64_t shift);

/* Whether the host can read the voltages that came. */
bool xbgpu_can_read(const struct xbgpu_config *config);

/* The shift that recv gives input 'i' (2 * ant + pol). */
int64_t xbgpu_config_shift(const struct xbgpu_config *config, size_t i);

/* The antennas of member 'm' are [first, end). */
size_t xbgpu_member_first(const struct xbgpu_layout *layout, size_t m);

/* The members of receive thread 't' are [first, that of t + 1); frames of a card that their chunks may keep at once. */
size_t xbgpu_thread_first(const struct xbgpu_layout *layout, size_t t);
size_t xbgpu_thread_frames(const struct xbgpu_layout *layout, const struct xbgpu_config *config, size_t t);

/* Length of an output's accumulation in batches: as given, or the time rounded to the nearest, at least 1. */
int64_t xbgpu_integration_batches(const struct xbgpu_config *config, const struct xbgpu_config_output *output);

/* Whether an output's accumulation is longer than 32-bit sums hold (correlate.h). */
bool xbgpu_output_has_totals(const struct xbgpu_layout *layout, const struct xbgpu_config *config,
                             const struct xbgpu_config_output *output);

/* Dump buffers of an output: as given, or enough for the dumps of one chunk to leave, at their pace, while the next
 * chunk's are made. */
size_t xbgpu_output_buffers(const struct xbgpu_config *config, const struct xbgpu_config_output *output);

/* Bytes of an output's heap: visibilities, weights where they are sent, and what its gate took if it has one. */
size_t xbgpu_dump_bytes(const struct xbgpu_layout *layout, const struct xbgpu_config *config,
                        const struct xbgpu_config_output *output);

/* Number of the output's gate, -1 without; and rows of the gate's counts: 1, or one per channel, 0 without a gate. */
int xbgpu_output_gate(const struct xbgpu_config *config, const struct xbgpu_config_output *output);
size_t xbgpu_output_gate_rows(const struct xbgpu_config *config, const struct xbgpu_config_output *output);

/* Number of the output's set of shifts; set 0 is recv's. */
size_t xbgpu_output_shift_set(const struct xbgpu_config *config, const struct xbgpu_config_output *output);

/* Bytes of the weights that such an output sends: of each baseline, for each row; 0 where it sends none. */
size_t xbgpu_weights_bytes(const struct xbgpu_layout *layout, const struct xbgpu_config *config,
                           const struct xbgpu_config_output *output);

/* Sizes that each launch of correlate has, of all spectra or of those that gates take. */
struct correlate_args xbgpu_correlate_sizes(const struct xbgpu_layout *layout, bool gated);

/* Buffers that voltage beams share, each for the batches of a chunk: as given, or for 50 ms; 0 without beams. */
size_t xbgpu_beam_buffers(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Payload bytes of a heap of a beam: voltages, and the bitmap of the antennas where heaps have it. */
size_t xbgpu_beam_payload_bytes(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Whether any beam is renormalised for missing antennas. */
bool xbgpu_renormalises(const struct xbgpu_config *config);

/* Bytes per second, headers included, at which all beams together leave; 0: unpaced. */
double xbgpu_beam_rate(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* A stream of detected beams.  Its payload is fractions [window], offsets and scales [beam][cell] with uint8, powers
 * [beam][window][cell]; a cell is a product and a group of channels. */
struct xbgpu_detected_sizes {
    size_t n_beams;
    size_t n_products, n_groups, n_cells;
    int64_t heap_spectra;
    size_t n_powers;        /* of a heap */
    size_t fractions_bytes; /* written by the host */
    size_t scales_bytes;    /* of offsets, and of scales; 0 with float32 */
    size_t heap_bytes;
    size_t n_items;
    size_t n_buffers; /* as given, or enough for 50 ms, for the heaps of two chunks, and for an open heap */
    double rate;      /* bytes per second, headers included; 0: unpaced */
};
struct xbgpu_detected_sizes xbgpu_detected_sizes(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                                                 size_t i);

/* Detected beams of all streams. */
size_t xbgpu_n_detected_beams(const struct xbgpu_config *config);

/* Bytes per second, headers included, at which an output leaves; 0: unpaced. */
double xbgpu_send_rate(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                       const struct xbgpu_config_output *output);

#endif
