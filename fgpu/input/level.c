/* level.c - computes the inputs' power from finished output buffers. */
#include "fgpu/input/level.h"

#include <math.h>
#include <string.h>

void fgpu_level_init(struct fgpu_level *level, int64_t window_samples, int sample_bits)
{
    double max = (double)((INT64_C(1) << (sample_bits - 1)) - 1);

    *level = (struct fgpu_level){.window_samples = window_samples, .full_scale = max * max / 2.0};
}

static void close_window(struct fgpu_level *level)
{
    for (unsigned pol = 0; pol < N_POLS; pol++) {
        double mean = (double)level->sums[pol] / (double)level->n_samples;
        level->dbfs[pol] = mean > 0 ? 10.0 * log10(mean / level->full_scale) : LEVEL_SILENCE_DBFS;
    }
    level->valid = level->whole;
    level->end_samples = (level->window + 1) * level->window_samples;
    level->n_closed++;
}

bool fgpu_level_add(struct fgpu_level *level, int64_t timestamp_samples, int64_t n_samples,
                    const uint64_t power[N_POLS], bool whole)
{
    int64_t window = floor_div(timestamp_samples, level->window_samples);
    bool follows = level->started && timestamp_samples == level->next_samples;
    bool closes = level->started && window != level->window;

    level->whole = level->whole && follows;
    if (closes)
        close_window(level);
    if (closes || !level->started) {
        memset(level->sums, 0, sizeof(level->sums));
        level->n_samples = 0;
        level->whole = follows;
        level->window = window;
        level->started = true;
    }
    for (unsigned pol = 0; pol < N_POLS; pol++)
        level->sums[pol] += power[pol];
    level->n_samples += n_samples;
    level->whole = level->whole && whole;
    level->next_samples = timestamp_samples + n_samples;
    return closes;
}
