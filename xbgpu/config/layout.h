/* layout.h - the sizes that follow from xbgpu's configuration: heaps, chunks, baselines and integrations.
 *
 * Pure arithmetic on a checked configuration.  Every stage uses the layout. */
#ifndef XBGPU_CONFIG_LAYOUT_H
#define XBGPU_CONFIG_LAYOUT_H

#include "common/recv/chunk.h"
#include "kernels/correlate/correlate.h"
#include "kernels/util/voltages.h"
#include "xbgpu/config/config.h"

#include <stddef.h>
#include <stdint.h>

struct memory_use;

struct xbgpu_layout {
    enum voltage_format format;
    size_t n_ants;
    size_t n_baselines; /* number of pairs of antennas, including each antenna with itself */
    size_t n_chan;      /* number of channels of this engine */
    size_t n_spectra;   /* spectra in a heap */
    size_t heap_bytes;
    size_t n_batches; /* batches in a chunk */
    int64_t batch_samples;
    int64_t chunk_samples;
    size_t n_members; /* number of members (groups of F-engines with one assembler each) */
    size_t n_recv_threads;
    size_t n_outputs;
    int64_t min_shift, max_shift; /* range of possible shifts of inputs, in spectra; includes 0 */
    bool shifted;                 /* true if an input may be shifted */
    size_t n_shift_sets;          /* number of sets of shifts: recv.shifts, and a set for each output with its own
                                   * shifts */
    size_t n_lag;     /* number of batches by which processing lags reception: 1 if a shift may be negative, else 0 */
    size_t n_history; /* number of batches that shifted inputs need from before a chunk: 0 to 2 */
    size_t n_gates;
    size_t n_selected_spectra; /* number of spectra in a batch of selected spectra */
    size_t n_selected_batches; /* number of batches of selected spectra in a chunk; 0: no output has a gate or its own
                                * shifts */
    size_t vis_bytes;          /* bytes of a dump's visibilities, and of an output's 32-bit sums */
    size_t totals_bytes;       /* bytes of an output's 64-bit sums, if the output has them */
    size_t rows_bytes;         /* bytes of the rows of checksums (checksum.h), if the output has checksums */
    size_t checks_bytes;       /* bytes of the checks of a dump: verdict and words (checksum_dump.h) */
    size_t frames_per_heap;    /* with gpudirect: maximum number of NIC frames that a heap occupies; else 0 */
};

/* Derives the layout.  The configuration must have passed the checks that xbgpu_config_check() makes before the
 * layout. */
void xbgpu_layout_init(struct xbgpu_layout *layout, const struct xbgpu_config *config);

/* Derives only the members about shifts.  The caller must have set 'layout->n_spectra'. */
void xbgpu_layout_init_shifts(struct xbgpu_layout *layout, const struct xbgpu_config *config);

/* Logs the main numbers of the layout, and the memory. */
void xbgpu_layout_log(const struct xbgpu_layout *layout, const struct memory_use *memory);

/* Returns the time without data after which an input counts as silent: the duration of ten chunks, at least
 * a second. */
int64_t xbgpu_rx_timeout_ns(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Returns the shape of the chunks of member 'm'. */
struct chunk_shape xbgpu_chunk_shape(const struct xbgpu_layout *layout, const struct xbgpu_config *config, size_t m);

/* Returns the delay, in spectra, of an input with this shift.  The delay is the shift plus n_lag batches, so it is
 * never negative. */
uint32_t xbgpu_delay(const struct xbgpu_layout *layout, int64_t shift);

/* Returns the format of the received voltages. */
enum voltage_format xbgpu_format(const struct xbgpu_config_recv *recv);

/* Returns whether the host can read the received voltages. */
bool xbgpu_can_read(const struct xbgpu_config *config);

/* Returns the shift of antenna input 'i' (2 * ant + pol) in recv.shifts. */
int64_t xbgpu_config_shift(const struct xbgpu_config *config, size_t i);

/* Returns the first antenna of member 'm'.  The member's last antenna precedes the first antenna of member m + 1. */
size_t xbgpu_member_first(const struct xbgpu_layout *layout, size_t m);

/* The first function returns the first member of receive thread 't'.  The thread's last member precedes the first
 * member of thread t + 1.  The second function returns the largest number of NIC frames that the thread's chunks may
 * occupy at once. */
size_t xbgpu_thread_first(const struct xbgpu_layout *layout, size_t t);
size_t xbgpu_thread_frames(const struct xbgpu_layout *layout, const struct xbgpu_config *config, size_t t);

/* Returns the length of an output's accumulation in batches: integration_batches, or integration_time rounded to the
 * nearest batch, at least 1. */
int64_t xbgpu_integration_batches(const struct xbgpu_config *config, const struct xbgpu_config_output *output);

/* Returns whether an output's accumulation is longer than 32-bit sums can hold (correlate.h). */
bool xbgpu_output_has_totals(const struct xbgpu_layout *layout, const struct xbgpu_config *config,
                             const struct xbgpu_config_output *output);

/* Returns the number of dumps of an output that can end in one chunk. */
int64_t xbgpu_chunk_dumps(const struct xbgpu_config *config, const struct xbgpu_config_output *output);

/* Returns the number of an output's dump buffers: as configured, or the default.  With the default number, the dumps of
 * one chunk can be sent at their pace while the dumps of the next chunk are made. */
size_t xbgpu_output_buffers(const struct xbgpu_config *config, const struct xbgpu_config_output *output);

/* Returns the size of an output's heap in bytes.  The heap contains visibilities, weights if they are sent, and the
 * gate's counts of spectra if there is a gate. */
size_t xbgpu_dump_bytes(const struct xbgpu_layout *layout, const struct xbgpu_config *config,
                        const struct xbgpu_config_output *output);

/* The first function returns the index of the output's gate, or -1.  The second function returns the number of rows of
 * the gate's counts: 1, or the number of channels, or 0 if there is no gate. */
int xbgpu_output_gate(const struct xbgpu_config *config, const struct xbgpu_config_output *output);
size_t xbgpu_output_gate_rows(const struct xbgpu_config *config, const struct xbgpu_config_output *output);

/* Returns the index of the output's set of shifts.  Set 0 is recv.shifts. */
size_t xbgpu_output_shift_set(const struct xbgpu_config *config, const struct xbgpu_config_output *output);

/* Returns the size in bytes of an output's weights, for all baselines and rows; 0 if the output sends no weights. */
size_t xbgpu_weights_bytes(const struct xbgpu_layout *layout, const struct xbgpu_config *config,
                           const struct xbgpu_config_output *output);

/* Returns the sizes of each launch of the kernel 'correlate'.  If 'gated' is true, the batches contain selected
 * spectra.  Otherwise the batches contain all spectra. */
struct correlate_args xbgpu_correlate_sizes(const struct xbgpu_layout *layout, bool gated);

/* Returns the number of buffers that the voltage beams share.  Each buffer has room for the batches of a chunk.  The
 * configuration may set the number.  By default, the buffers have room for 50 ms.  Returns 0 if there are no beams. */
size_t xbgpu_beam_buffers(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Returns the size of a beam's heap in bytes.  The heap contains voltages, and may contain the bitmap of antennas. */
size_t xbgpu_beam_payload_bytes(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Returns whether any beam is renormalised for missing antennas. */
bool xbgpu_renormalises(const struct xbgpu_config *config);

/* Returns the pace of all beams together in bytes per second, headers included; 0: unpaced. */
double xbgpu_beam_rate(const struct xbgpu_config *config, const struct xbgpu_layout *layout);

/* Sizes of a stream of detected beams.  The payload begins with fractions [window].  With uint8, offsets and scales
 * [beam][cell] follow.  The last part is powers [beam][window][cell].  A cell is a product and a group of
 * channels. */
struct xbgpu_detected_sizes {
    size_t n_beams;
    size_t n_products, n_groups, n_cells;
    int64_t heap_spectra;
    size_t n_powers;        /* number of powers in a heap */
    size_t fractions_bytes; /* bytes of the fractions, which the host writes */
    size_t scales_bytes;    /* bytes of the offsets; the scales have the same size; 0 with float32 */
    size_t heap_bytes;
    size_t n_items;
    /* Number of heap buffers, as configured.  By default, the buffers have room for 50 ms, but at least for the heaps
     * of two chunks and an open heap. */
    size_t n_buffers;
    double rate; /* pace in bytes per second, with headers; 0: not paced */
};
struct xbgpu_detected_sizes xbgpu_detected_sizes(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                                                 size_t i);

/* Returns the number of detected beams in all streams. */
size_t xbgpu_n_detected_beams(const struct xbgpu_config *config);

/* Returns the pace of an output in bytes per second, headers included; 0: unpaced. */
double xbgpu_send_rate(const struct xbgpu_config *config, const struct xbgpu_layout *layout,
                       const struct xbgpu_config_output *output);

#endif
