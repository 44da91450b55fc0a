/* tune.c - from outputs to the work that is measured, and from what was measured to their kernels. */
#include "fgpu/tune.h"

#include "common/base/log.h"
#include "fgpu/layout.h"
#include "kernels/filterbank/channelise_tune.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A chunk's spectra are appended at once, as far as the buffer takes them. */
static struct channelise_work work_of(const struct fgpu_config *config, size_t output)
{
    struct channelise_work work = {.config = fgpu_channelise_config(config, 0, output, 0)};
    size_t n_buffer = (size_t)work.config.n_batches * work.config.spectra_per_heap;
    size_t n_chunk = (size_t)config->recv.chunk_samples / channelise_spacing_samples(&work.config);

    work.config.power = false; /* sums that the timing's buffers have no place for */
    work.append_spectra = n_chunk < 1 ? 1 : n_chunk < n_buffer ? n_chunk : n_buffer;
    return work;
}

/* Of these nothing can be cut in different ways. */
static bool is_narrow(const struct fgpu_config *config, size_t output)
{
    return fgpu_config_output(config, output)->kind == FGPU_NARROWBAND;
}

/* Whether an earlier output is the same work. */
static bool is_done(const struct fgpu_config *config, struct device *device, size_t output)
{
    const struct channelise_work mine = work_of(config, output);
    char path[PATH_MAX], other_path[PATH_MAX];

    channelise_choice_path(device, &mine, path, sizeof(path));
    for (size_t o = 0; o < output; o++) {
        if (is_narrow(config, o))
            continue;
        const struct channelise_work other = work_of(config, o);
        channelise_choice_path(device, &other, other_path, sizeof(other_path));
        if (strcmp(path, other_path) == 0)
            return true;
    }
    return false;
}

static void log_tuned(const struct channelise_work *work, const char *name, const struct channelise_tuned *tuned,
                      const char *path)
{
    double n_samples = (double)work->config.n_batches * work->config.spectra_per_heap *
                       (double)channelise_spacing_samples(&work->config);

    log_info("%s: %.4g Gsamples/s, %.4g with the defaults; %zu candidates%s; kept in %s", name,
             n_samples / tuned->best_ns, n_samples / tuned->default_ns, tuned->n_candidates,
             tuned->complete ? "" : " before time was up", path);
}

static int tune_output(const struct fgpu_config *config, struct device *device, size_t output, char *why,
                       size_t why_bytes)
{
    const struct channelise_work work = work_of(config, output);
    const struct channelise_tune_config tune = channelise_tune_config(&work);
    const char *name = fgpu_config_output(config, output)->name;
    struct channelise_tuned tuned;
    char path[PATH_MAX];

    log_info("%s: measuring, for up to %d s", name, (int)(tune.limit_ns / NS_PER_S));
    int err = channelise_tune(device, &tune, &tuned);
    if (err == -ENOMEM)
        snprintf(why, why_bytes,
                 "outputs[%zu].batches_per_buffer: there is not enough memory to measure output %s: stop what uses the "
                 "GPU, or lower it",
                 output, name);
    else if (err)
        snprintf(why, why_bytes, "outputs[%zu].channels: output %s cannot be measured: %s", output, name,
                 strerror(-err));
    if (err)
        return err;
    channelise_choice_path(device, &work, path, sizeof(path));
    err = channelise_choice_store(device, &work, &tuned.choice);
    if (err)
        snprintf(why, why_bytes, "device.kernel_cache: %s cannot be written: %s", path, strerror(-err));
    else
        log_tuned(&work, name, &tuned, path);
    return err;
}

/* Before minutes are spent on what cannot be kept. */
static int check_cache(struct device *device, char *why, size_t why_bytes)
{
    const char *directory = device_cache_directory(device);

    if (!directory) {
        snprintf(why, why_bytes, "device.kernel_cache: there is no directory in which to keep what is measured");
        return -ENOENT;
    }
    if (access(directory, W_OK | X_OK) == 0)
        return 0;
    int err = -errno;
    snprintf(why, why_bytes, "device.kernel_cache: %s cannot be written: %s", directory, strerror(-err));
    return err;
}

int fgpu_tune(const void *values, struct device *device, char *why, size_t why_bytes)
{
    const struct fgpu_config *config = values;

    if (!device_compiles(device)) {
        log_info("there is nothing to tune on the %s device", device_name(device));
        return 0;
    }
    int err = check_cache(device, why, why_bytes);
    if (!err)
        err = fgpu_layout_check_buffers(config, device, why, why_bytes);
    for (size_t o = 0; o < config->outputs.n && !err; o++)
        if (is_narrow(config, o))
            log_info("%s: there is nothing to tune in a narrow band", fgpu_config_output(config, o)->name);
        else if (!is_done(config, device, o))
            err = tune_output(config, device, o, why, why_bytes);
    return err;
}

void fgpu_tune_load(const struct fgpu_config *config, struct device *device, struct channelise_choice *choices)
{
    char why[PATH_MAX + 256];

    for (size_t o = 0; o < config->outputs.n; o++) {
        if (is_narrow(config, o))
            continue; /* zero is right */
        const struct channelise_work work = work_of(config, o);
        const char *name = fgpu_config_output(config, o)->name;
        int err = channelise_choice_load(device, &work, &choices[o], why, sizeof(why));

        if (err)
            choices[o] = (struct channelise_choice){0};
        if (!err)
            log_info("%s: tuned shape", name);
        else if (err != -ENOENT)
            log_warning("%s: %s; fgpu --tune makes a new one", name, why);
    }
}
