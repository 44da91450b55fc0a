/* delay.c - the arithmetic of delays.  Commands set the delays, and output.c shifts windows by these delays. */
#include "fgpu/delay.h"

#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

/* Limit of delays and times, in samples.  The sum of a delay and a time within this limit fits in 63 bits. */
#define MAX_SAMPLES (INT64_C(1) << 61)

double fgpu_delay_wrap(double angle_rad)
{
    const double turn = 2.0 * M_PI;
    double wrapped = angle_rad - turn * floor((angle_rad + M_PI) / turn);

    /* Rounding may have moved the angle beyond an end of [-pi, pi). */
    if (wrapped >= M_PI)
        wrapped -= turn;
    return wrapped < -M_PI ? -M_PI : wrapped;
}

struct fgpu_delay_values fgpu_delay_evaluate(const struct fgpu_delay_model *model, int64_t t_samples)
{
    double r = (double)(t_samples - model->start_samples);
    double delay = model->delay_samples + (model->rate + 0.5 * model->acceleration * r) * r;

    delay = fmin(fmax(delay, -(double)MAX_SAMPLES), (double)MAX_SAMPLES);
    double coarse = rint(delay);
    return (struct fgpu_delay_values){
        .coarse_samples = (int64_t)coarse,
        .fine_samples = delay - coarse,
        .phase_rad =
            fgpu_delay_wrap(model->phase_rad + (model->phase_rate_rad + 0.5 * model->phase_acceleration_rad * r) * r),
    };
}

void fgpu_delay_queue_init(struct fgpu_delay_queue *queue)
{
    queue->n = 1;
    queue->models[0] = (struct fgpu_delay_model){.start_samples = -1};
}

int fgpu_delay_queue_add(struct fgpu_delay_queue *queue, const struct fgpu_delay_model *model)
{
    size_t n = queue->n;

    assert(model->start_samples >= 0);
    while (n > 1 && queue->models[n - 1].start_samples >= model->start_samples)
        n--;
    if (n == DELAY_MAX_MODELS)
        return -ENOSPC;
    queue->models[n] = *model;
    queue->n = n + 1;
    return 0;
}

/* Returns the index of the model in effect at 't_samples' >= 0: the last model that has started by then.  Searches by
 * bisection. */
static size_t find(const struct fgpu_delay_queue *queue, int64_t t_samples)
{
    size_t low = 0, high = queue->n; /* model 'low' has started, and model 'high' has not */

    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (queue->models[middle].start_samples <= t_samples)
            low = middle;
        else
            high = middle;
    }
    return low;
}

const struct fgpu_delay_model *fgpu_delay_queue_model(const struct fgpu_delay_queue *queue, int64_t t_samples)
{
    return &queue->models[find(queue, t_samples)];
}

/* Moves the start to the nearest multiple of the grid.  If the start lies halfway between two multiples, the sign of
 * the fine delay decides.  A positive fine delay selects the earlier multiple.  Any other fine delay selects the later
 * multiple. */
void fgpu_delay_align(struct fgpu_delay_values *values, int64_t t_samples, int64_t grid_samples)
{
    int64_t start = t_samples - values->coarse_samples, later = values->fine_samples > 0 ? 1 : 0;
    int64_t aligned = floor_div(2 * start + grid_samples - later, 2 * grid_samples) * grid_samples;

    values->coarse_samples -= aligned - start;
    values->fine_samples += (double)(aligned - start);
}

struct fgpu_delay_values fgpu_delay_queue_at(const struct fgpu_delay_queue *queue, int64_t t_samples,
                                             int64_t grid_samples)
{
    struct fgpu_delay_values values = fgpu_delay_evaluate(fgpu_delay_queue_model(queue, t_samples), t_samples);

    if (grid_samples > 1)
        fgpu_delay_align(&values, t_samples, grid_samples);
    return values;
}

bool fgpu_delay_queue_forget_oldest(struct fgpu_delay_queue *queue, int64_t t_samples)
{
    if (queue->n < 3 || queue->models[2].start_samples > t_samples)
        return false;
    queue->n--;
    memmove(queue->models + 1, queue->models + 2, (queue->n - 1) * sizeof(*queue->models));
    return true;
}

/* ---- Where to begin again ---------------------------------------------------------------------------------------- */

struct skip {
    const struct fgpu_delay_queue *const *queues;
    const int64_t *first_samples;
    size_t n;
    int64_t grid_samples;
    int64_t align_samples;
};

/* Returns true if the windows of all queues at output time k * align_samples start at or after the first samples of
 * their inputs. */
static bool all_there(const struct skip *s, int64_t k)
{
    int64_t t = k * s->align_samples;

    for (size_t i = 0; i < s->n; i++)
        if (t - fgpu_delay_queue_at(s->queues[i], t, s->grid_samples).coarse_samples < s->first_samples[i])
            return false;
    return true;
}

/* Output time number k is k * align_samples.  Returns the number of the first output time after 'k' at which a queue
 * changes to its next model.  Returns 'last' if no queue changes before 'last'. */
static int64_t next_change(const struct skip *s, int64_t k, int64_t last)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct fgpu_delay_queue *queue = s->queues[i];
        size_t next = find(queue, k * s->align_samples) + 1;
        if (next == queue->n)
            continue;
        /* positive, because this model starts after k * align_samples */
        int64_t start = queue->models[next].start_samples;
        int64_t change = start / s->align_samples + (start % s->align_samples > 0);
        if (change < last)
            last = change;
    }
    return last;
}

/* Returns the first k in (low, high] for which all_there() is true.  all_there() is false for 'low', and true for
 * 'high'. */
static int64_t bisect(const struct skip *s, int64_t low, int64_t high)
{
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (all_there(s, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Searches with a step that doubles each time, and then by bisection.  Between two changes of a model, a window at a
 * later output time never starts earlier in the input, so bisection is valid.  A change of a model may move windows
 * to earlier or later samples, so the search begins again after each change. */
int64_t fgpu_delay_skip(const struct fgpu_delay_queue *const *queues, const int64_t *first_samples, size_t n,
                        int64_t grid_samples, int64_t start_samples, int64_t align_samples)
{
    const struct skip s = {queues, first_samples, n, grid_samples, align_samples};
    const int64_t last = MAX_SAMPLES / align_samples;
    int64_t k = start_samples / align_samples + (start_samples % align_samples > 0);

    assert(start_samples >= 0 && align_samples > 0);
    while (k < last) {
        if (all_there(&s, k))
            return k * align_samples;
        int64_t end = next_change(&s, k, last);
        for (int64_t step = 1; k + 1 < end; step *= 2) {
            int64_t next = end - k > step ? k + step : end - 1;
            if (all_there(&s, next))
                return bisect(&s, k, next) * align_samples;
            k = next;
        }
        k = end;
    }
    return INT64_MAX;
}

double fgpu_delay_wideband_phase(const struct fgpu_delay_values *values)
{
    return fgpu_delay_wrap(values->phase_rad + M_PI / 2.0 * (double)(values->coarse_samples & 3));
}
