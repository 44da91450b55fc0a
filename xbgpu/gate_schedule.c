/* gate_schedule.c - lists the spectra that gates take from each device input.  input.c requests these lists for each
 * input. */
#include "xbgpu/gate_schedule.h"

#include "common/device/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Changes ----------------------------------------------------------------------------------------------------- */

void xbgpu_gate_schedule_set(struct xbgpu_gate_schedule *gating, size_t g, struct xbgpu_gate **gate,
                             int64_t from_samples, int64_t next_samples)
{
    struct xbgpu_gate_schedule_entry *entry = &gating->gates[g];
    struct xbgpu_gate_change *changes = entry->changes;
    size_t n = entry->n;

    while (n > 1 && (changes[n - 1].from_samples >= from_samples || changes[n - 1].from_samples > next_samples))
        n--;
    struct xbgpu_gate_change unneeded = changes[n < GATING_MAX_CHANGES ? n : 0];
    if (n == GATING_MAX_CHANGES)
        memmove(changes, changes + 1, --n * sizeof(*changes));
    changes[n] = (struct xbgpu_gate_change){*gate, from_samples};
    entry->n = n + 1;
    *gate = unneeded.gate;
}

void xbgpu_gate_schedule_list(struct xbgpu_gate_schedule *gating, int64_t timestamp_samples, size_t n_batches,
                              struct device_stream *upload, struct xbgpu_output_sums *lists)
{
    const struct xbgpu_layout *l = gating->layout;

    for (size_t g = 0; g < l->n_gates; g++) {
        const struct xbgpu_gate_schedule_entry *entry = &gating->gates[g];
        struct xbgpu_output_sums *list = &lists[g];

        size_t most =
            xbgpu_gate_list(entry->changes, entry->n, timestamp_samples, gating->config->recv.samples_between_spectra,
                            l->n_spectra, n_batches, list->row_pitch, list->spectra, list->ends);
        list->ends_pitch = n_batches + 1;
        device_copy(upload, list->device_ends, list->ends, list->n_rows * list->ends_pitch * sizeof(*list->ends));
        if (most > 0)
            device_copy_2d(upload, list->device_spectra, list->row_pitch * sizeof(uint32_t), list->spectra,
                           list->row_pitch * sizeof(uint32_t), most * sizeof(uint32_t), list->n_rows);
    }
}

/* ---- Making and unmaking ----------------------------------------------------------------------------------------- */

int xbgpu_gate_schedule_init(struct xbgpu_gate_schedule *gating, const struct xbgpu_config *config,
                             const struct xbgpu_layout *layout, struct device *device)
{
    *gating = (struct xbgpu_gate_schedule){config, layout, device, calloc(layout->n_gates + 1, sizeof(*gating->gates))};
    int err = gating->gates ? 0 : -ENOMEM;

    for (size_t g = 0; !err && g < layout->n_gates; g++) {
        struct xbgpu_gate_schedule_entry *entry = &gating->gates[g];
        entry->n = 1;
        entry->changes[0].from_samples = INT64_MIN;
        err = xbgpu_gate_create(xbgpu_config_gate(&config->gates, g), config, &entry->changes[0].gate);
    }
    return err;
}

void xbgpu_gate_schedule_fini(struct xbgpu_gate_schedule *gating)
{
    for (size_t g = 0; gating->gates && g < gating->layout->n_gates; g++)
        for (size_t i = 0; i < GATING_MAX_CHANGES; i++)
            xbgpu_gate_destroy(gating->gates[g].changes[i].gate);
    free(gating->gates);
}

static int create_list(const struct xbgpu_gate_schedule *gating, struct xbgpu_output_sums *list, size_t n_rows)
{
    const struct xbgpu_layout *l = gating->layout;
    size_t row_pitch = l->n_batches * l->n_spectra;
    size_t list_bytes = n_rows * row_pitch * sizeof(uint32_t),
           end_bytes = n_rows * (l->n_batches + 1) * sizeof(uint32_t);

    *list = (struct xbgpu_output_sums){
        .n_rows = n_rows,
        .row_pitch = row_pitch,
        .spectra = device_alloc_pinned(gating->device, list_bytes),
        .ends = device_alloc_pinned(gating->device, end_bytes),
        .device_spectra = device_alloc(gating->device, list_bytes),
        .device_ends = device_alloc(gating->device, end_bytes),
    };
    return list->spectra && list->ends && list->device_spectra && list->device_ends ? 0 : -ENOMEM;
}

int xbgpu_gate_schedule_create_lists(const struct xbgpu_gate_schedule *gating, struct xbgpu_output_sums **lists)
{
    struct xbgpu_output_sums *made = calloc(gating->layout->n_gates + 1, sizeof(*made));
    int err = made ? 0 : -ENOMEM;

    for (size_t g = 0; !err && g < gating->layout->n_gates; g++)
        err = create_list(gating, &made[g], gating->gates[g].changes[0].gate->n_rows);
    if (err) {
        xbgpu_gate_schedule_free_lists(gating, made);
        return err;
    }
    *lists = made;
    return 0;
}

void xbgpu_gate_schedule_free_lists(const struct xbgpu_gate_schedule *gating, struct xbgpu_output_sums *lists)
{
    for (size_t g = 0; lists && g < gating->layout->n_gates; g++) {
        device_free_pinned(gating->device, lists[g].spectra);
        device_free_pinned(gating->device, lists[g].ends);
        device_free(gating->device, lists[g].device_spectra);
        device_free(gating->device, lists[g].device_ends);
    }
    free(lists);
}
