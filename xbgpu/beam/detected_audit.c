/* detected_audit.c - computes powers on the host, for comparison with the device's powers. */
#include "xbgpu/beam/detected_audit.h"

#include "common/base/memory.h"
#include "common/base/units.h"
#include "common/device/device.h"
#include "kernels/beamform/beam_finish.h"
#include "xbgpu/beam/beam_voltages.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEP 8 /* the spectra of a piece are padded to a multiple of this number */

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

struct sizes {
    size_t max_pieces;                                                 /* 0: no audit */
    uint64_t voltages, coefficients, exponents, weights, powers, made; /* bytes */
};

static uint64_t sum(const struct sizes *s)
{
    return s->voltages + s->coefficients + s->exponents + s->weights + s->powers + s->made;
}

static struct sizes sizes_of(const struct xbgpu_config *config, const struct xbgpu_layout *l, size_t i)
{
    const struct xbgpu_config_detected *d = xbgpu_config_detected(config, i);
    const struct xbgpu_detected_sizes z = xbgpu_detected_sizes(config, l, i);
    size_t window = (size_t)d->window_spectra, n_chan = (size_t)d->group_channels, n = window / l->n_spectra + 2;
    size_t n_cells = (size_t)d->heap_windows * z.n_products;
    struct sizes s = {.max_pieces = n < DETECTED_AUDIT_PIECES ? n : DETECTED_AUDIT_PIECES};

    s.voltages = (window + s.max_pieces * (STEP - 1)) * n_chan * l->n_ants * N_POLS * voltage_bytes(l->format);
    if (d->kind == XBGPU_BEAM_COHERENT) {
        s.coefficients = s.max_pieces * n_chan * N_POLS * l->n_ants * 2 * sizeof(int16_t);
        s.exponents = s.max_pieces * n_chan * N_POLS * sizeof(int32_t);
    } else {
        s.weights = s.max_pieces * l->n_ants * sizeof(struct beam_incoherent_weights);
    }
    s.powers = n_cells * sizeof(int64_t);
    s.made = n_cells * sizeof(float);
    return xbgpu_can_read(config) && sum(&s) <= DETECTED_AUDIT_BYTES ? s : (struct sizes){0};
}

void xbgpu_detected_audit_add_memory(const struct xbgpu_layout *layout, const struct xbgpu_config *config, bool on_gpu,
                                     size_t i, struct memory_use *memory)
{
    const struct sizes s = sizes_of(config, layout, i);

    bytes_add(&memory->host_bytes, 1, s.voltages + s.made);
    bytes_add(&memory->host_bytes, 1, device_pinned_bytes(s.coefficients, on_gpu));
    bytes_add(&memory->host_bytes, 1, device_pinned_bytes(s.exponents, on_gpu));
    bytes_add(&memory->host_bytes, 1, device_pinned_bytes(s.weights, on_gpu));
    bytes_add(&memory->host_bytes, 1, device_pinned_bytes(s.powers, on_gpu));
}

int xbgpu_detected_audit_init(struct xbgpu_detected_audit *audit, const struct xbgpu_config *config,
                              const struct xbgpu_layout *layout, size_t i, struct device *device)
{
    const struct sizes s = sizes_of(config, layout, i);
    struct xbgpu_detected_audit *a = audit;

    *a = (struct xbgpu_detected_audit){.layout = layout,
                                       .config = xbgpu_config_detected(config, i),
                                       .sizes = xbgpu_detected_sizes(config, layout, i),
                                       .max_pieces = s.max_pieces};
    if (a->max_pieces == 0)
        return 0;
    double heap_s = (double)a->sizes.heap_spectra * (double)config->recv.samples_between_spectra /
                    timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    a->step_heaps = a->n_waited = (int64_t)ceil((double)sum(&s) / DETECTED_AUDIT_BYTES_PER_S / heap_s);
    a->voltages = malloc(s.voltages);
    a->made = malloc(s.made);
    a->powers = device_alloc_pinned(device, s.powers);
    if (s.weights > 0) {
        a->weights = device_alloc_pinned(device, s.weights);
    } else {
        a->coefficients = device_alloc_pinned(device, s.coefficients);
        a->exponents = device_alloc_pinned(device, s.exponents);
    }
    if (!a->voltages || !a->made || !a->powers || !(a->weights || (a->coefficients && a->exponents)))
        return -ENOMEM;
    return xbgpu_draw_init(&a->draw);
}

void xbgpu_detected_audit_fini(struct xbgpu_detected_audit *audit, struct device *device)
{
    free(audit->voltages);
    free(audit->made);
    device_free_pinned(device, audit->coefficients);
    device_free_pinned(device, audit->exponents);
    device_free_pinned(device, audit->weights);
    device_free_pinned(device, audit->powers);
}

/* ---- While the heap is made -------------------------------------------------------------------------------------- */

void xbgpu_detected_audit_draw(struct xbgpu_detected_audit *audit, const void *heap, int64_t number)
{
    struct xbgpu_detected_audit *a = audit;
    uint32_t bits[4];

    a->n_waited++;
    if (a->heap || a->max_pieces == 0 || a->n_waited < a->step_heaps)
        return;
    xbgpu_draw_bits(&a->draw, 0, bits);
    a->draw.n++;
    a->n_waited = 0;
    a->heap = heap;
    a->beam = xbgpu_draw_below(bits[0], a->sizes.n_beams);
    a->group = xbgpu_draw_below(bits[1], a->sizes.n_groups);
    a->window = xbgpu_draw_below(bits[2], (size_t)a->config->heap_windows);
    a->first = number * a->sizes.heap_spectra + (int64_t)a->window * a->config->window_spectra;
    a->n_pieces = a->n_padded = 0;
}

/* Copies the voltages of all antennas to 'piece', and pads them with zeros. */
static void copy_voltages(const struct xbgpu_detected_audit *a, const struct xbgpu_audit_piece *piece,
                          const struct xbgpu_output_input *input, size_t first)
{
    const struct xbgpu_layout *l = a->layout;
    size_t n_chan = (size_t)a->config->group_channels, spectrum_bytes = N_POLS * voltage_bytes(l->format);

    for (size_t ant = 0; ant < l->n_ants; ant++)
        for (size_t chan = 0; chan < n_chan; chan++) {
            uint8_t *out = piece->voltages + (ant * n_chan + chan) * piece->n_padded * spectrum_bytes;
            xbgpu_beam_voltages_copy(l, input, ant, a->group * n_chan + chan, first, piece->n, out);
            memset(out + piece->n * spectrum_bytes, voltage_zero(l->format),
                   (piece->n_padded - piece->n) * spectrum_bytes);
        }
}

/* Copies voltages to a new piece.  The piece has those spectra of the drawn window that are in [begin, end).  Returns
 * the index of the piece, or -1 if no piece was made. */
static int take_voltages(struct xbgpu_detected_audit *a, const void *heap, const struct xbgpu_output_input *input,
                         int64_t input_first, int64_t begin, int64_t end)
{
    const struct xbgpu_layout *l = a->layout;
    int64_t window_end = a->first + a->config->window_spectra;
    int64_t from = begin > a->first ? begin : a->first, to = end < window_end ? end : window_end;

    if (a->heap != heap || from >= to)
        return -1;
    if (a->n_pieces == a->max_pieces || !input->heaps) {
        a->heap = NULL;
        return -1;
    }
    struct xbgpu_audit_piece *piece = &a->pieces[a->n_pieces];
    *piece = (struct xbgpu_audit_piece){.first = from, .n = (size_t)(to - from)};
    piece->n_padded = (piece->n + STEP - 1) / STEP * STEP;
    piece->voltages =
        a->voltages + a->n_padded * (size_t)a->config->group_channels * l->n_ants * N_POLS * voltage_bytes(l->format);
    a->n_padded += piece->n_padded;
    copy_voltages(a, piece, input, (size_t)(from - input_first));
    return (int)a->n_pieces++;
}

void xbgpu_detected_audit_take(struct xbgpu_detected_audit *audit, const void *heap, struct device_stream *compute,
                               const struct xbgpu_output_input *input, int64_t input_first, int64_t begin, int64_t end,
                               const int16_t *coefficients, const int32_t *exponents)
{
    struct xbgpu_detected_audit *a = audit;
    const struct xbgpu_layout *l = a->layout;
    size_t n_chan = (size_t)a->config->group_channels, n_rows = a->sizes.n_beams * N_POLS;
    int piece = take_voltages(a, heap, input, input_first, begin, end);

    if (piece < 0)
        return;
    size_t at = (size_t)piece * n_chan * N_POLS, row = a->group * n_chan * n_rows + a->beam * N_POLS;
    size_t ants_bytes = l->n_ants * 2 * sizeof(*coefficients);
    device_copy_2d(compute, a->coefficients + at * l->n_ants * 2, N_POLS * ants_bytes,
                   coefficients + row * l->n_ants * 2, n_rows * ants_bytes, N_POLS * ants_bytes, n_chan);
    device_copy_2d(compute, a->exponents + at, N_POLS * sizeof(*exponents), exponents + row,
                   n_rows * sizeof(*exponents), N_POLS * sizeof(*exponents), n_chan);
}

void xbgpu_detected_audit_take_incoherent(struct xbgpu_detected_audit *audit, const void *heap,
                                          struct device_stream *compute, const struct xbgpu_output_input *input,
                                          int64_t input_first, int64_t begin, int64_t end,
                                          const struct beam_incoherent_weights *weights)
{
    size_t n_ants = audit->layout->n_ants;
    int piece = take_voltages(audit, heap, input, input_first, begin, end);

    if (piece >= 0)
        device_copy(compute, audit->weights + (size_t)piece * n_ants, weights, n_ants * sizeof(*weights));
}

void xbgpu_detected_audit_fetch(struct xbgpu_detected_audit *audit, const void *heap, struct device_stream *download,
                                const int64_t *powers)
{
    struct xbgpu_detected_audit *a = audit;
    const struct xbgpu_detected_sizes *z = &a->sizes;

    if (a->heap == heap && a->n_pieces == 0)
        a->heap = NULL;
    for (size_t p = 0; a->heap == heap && p < z->n_products; p++)
        device_copy_2d(download, a->powers + p, z->n_products * sizeof(*powers),
                       powers + a->beam * z->n_cells + p * z->n_groups + a->group,
                       z->n_beams * z->n_cells * sizeof(*powers), sizeof(*powers), (size_t)a->config->heap_windows);
}

/* ---- Comparison -------------------------------------------------------------------------------------------------- */

bool xbgpu_detected_audit_has(const struct xbgpu_detected_audit *audit, const void *heap)
{
    return audit->heap == heap;
}

static void add_coherent(const struct xbgpu_detected_audit *a, size_t piece, int64_t *powers)
{
    static const struct beam pols[N_POLS] = {{.pol = 0}, {.pol = 1}};
    size_t row = piece * (size_t)a->config->group_channels * N_POLS;
    uint32_t n_clipped = 0;
    const struct beam_detect_args args = {
        .form = {.voltages = a->pieces[piece].voltages,
                 .coefficients = a->coefficients + row * a->layout->n_ants * 2,
                 .exponents = a->exponents + row,
                 .beams = pols,
                 .saturated = &n_clipped,
                 .first_spectrum = (uint64_t)a->pieces[piece].first,
                 .format = a->layout->format,
                 .n_beams = N_POLS,
                 .n_ants = (uint32_t)a->layout->n_ants,
                 .n_chan = (uint32_t)a->config->group_channels,
                 .n_spectra = (uint32_t)a->pieces[piece].n_padded,
                 .n_batches = 1},
        .powers = powers,
        .first = (uint64_t)a->first,
        .products = (enum beam_products)a->config->products,
        .n_windows = 1,
        .window_spectra = (uint32_t)a->config->window_spectra,
        .group_channels = (uint32_t)a->config->group_channels,
    };

    beam_detect_kernel.cpu(&args, 1);
}

static void add_incoherent(const struct xbgpu_detected_audit *a, size_t piece, int64_t *powers)
{
    const struct beam_incoherent_args args = {
        .voltages = a->pieces[piece].voltages,
        .weights = a->weights + piece * a->layout->n_ants,
        .powers = powers,
        .first_spectrum = (uint64_t)a->pieces[piece].first,
        .first = (uint64_t)a->first,
        .format = a->layout->format,
        .products = (enum beam_products)a->config->products,
        .n_ants = (uint32_t)a->layout->n_ants,
        .n_chan = (uint32_t)a->config->group_channels,
        .n_spectra = (uint32_t)a->pieces[piece].n_padded,
        .n_batches = 1,
        .n_windows = 1,
        .window_spectra = (uint32_t)a->config->window_spectra,
        .group_channels = (uint32_t)a->config->group_channels,
    };

    beam_incoherent_kernel.cpu(&args, 1);
}

/* Returns whether the host's sums equal the device's sums. */
static bool powers_agree(const struct xbgpu_detected_audit *a)
{
    int64_t powers[BEAM_MAX_PRODUCTS] = {0};

    for (size_t i = 0; i < a->n_pieces; i++)
        if (a->weights)
            add_incoherent(a, i, powers);
        else
            add_coherent(a, i, powers);
    return memcmp(powers, a->powers + a->window * a->sizes.n_products, a->sizes.n_products * sizeof(*powers)) == 0;
}

/* Returns whether the heap equals the output of beam_finish on the host, in all windows. */
static bool heap_agrees(const struct xbgpu_detected_audit *a, const uint8_t *payload)
{
    const struct xbgpu_detected_sizes *z = &a->sizes;
    float offsets[BEAM_MAX_PRODUCTS], scales[BEAM_MAX_PRODUCTS];
    size_t n_windows = (size_t)a->config->heap_windows, bytes = z->scales_bytes ? 1 : sizeof(float);
    const uint8_t *sent_offsets = payload + z->fractions_bytes, *sent_scales = sent_offsets + z->scales_bytes;
    const uint8_t *sent = sent_scales + z->scales_bytes, *made = a->made;
    const struct beam_finish_args args = {.powers = a->powers,
                                          .out = a->made,
                                          .offsets = z->scales_bytes ? offsets : NULL,
                                          .scales = z->scales_bytes ? scales : NULL,
                                          .n_windows = (uint32_t)n_windows,
                                          .n_beams = 1,
                                          .n_cells = (uint32_t)z->n_products};
    bool agrees = true;

    beam_finish_kernel.cpu(&args, 1);
    for (size_t p = 0; p < z->n_products; p++) {
        size_t cell = p * z->n_groups + a->group, at = (a->beam * z->n_cells + cell) * sizeof(float);
        if (z->scales_bytes)
            agrees = agrees && memcmp(&offsets[p], sent_offsets + at, sizeof(float)) == 0 &&
                     memcmp(&scales[p], sent_scales + at, sizeof(float)) == 0;
        for (size_t w = 0; w < n_windows; w++)
            agrees = agrees && memcmp(made + (w * z->n_products + p) * bytes,
                                      sent + ((a->beam * n_windows + w) * z->n_cells + cell) * bytes, bytes) == 0;
    }
    return agrees;
}

bool xbgpu_detected_audit_agrees(struct xbgpu_detected_audit *audit, const uint8_t *payload)
{
    audit->heap = NULL;
    return powers_agree(audit) && heap_agrees(audit, payload);
}
