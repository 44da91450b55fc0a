/* dsim.c - main of the digitiser simulator: boot order, and shutdown as its mirror. */
#include "common/daemon.h"
#include "common/http.h"
#include "common/log.h"
#include "common/service.h"
#include "common/version.h"
#include "tools/dsim_config.h"
#include "tools/dsim_play.h"
#include "tools/dsim_send.h"
#include "tools/dsim_signal.h"

#include <errno.h>
#include <stdio.h>

/* Computes the heaps of a period from the specification, which dsim_config_check() has found valid. */
static int make_heaps(const struct dsim_config *config, struct dsim_heaps **heaps, char *why, size_t why_bytes)
{
    struct dsim_program *program;
    struct dsim_format format = {
        .axis = {config->digitiser.period_samples, decimal_to_double(config->time.adc_sample_rate_hz)},
        .n_inputs = dsim_config_n_inputs(config),
        .packet_samples = (size_t)config->digitiser.packet_samples,
        .sample_bits = (int)config->digitiser.sample_bits,
        .dither_seed = (uint64_t)config->digitiser.dither_seed,
    };

    int err = dsim_parse(config->signals.specification, &program, why, why_bytes);
    if (err)
        return err;
    if (config->digitiser.dither_seed < 0)
        err = dsim_random_seed(&format.dither_seed);
    if (!err)
        err = dsim_signal_choose_seeds(program);
    if (!err) {
        log_info("dither: seed %llu", (unsigned long long)format.dither_seed);
        err = dsim_heaps_create(program, &format, heaps, why, why_bytes);
    }
    dsim_program_free(program);
    return err;
}

/* Where the heaps come from: a period that is computed now, or recordings. */
static int open_heaps(const struct dsim_config *config, struct dsim_heaps **heaps, struct dsim_play **play, char *why,
                      size_t why_bytes)
{
    if (config->recordings.n > 0)
        return dsim_play_open(config, dsim_config_n_heaps(config), play, why, why_bytes);
    int err = make_heaps(config, heaps, why, why_bytes);
    if (!err)
        log_info("a period is %zu heaps of %zu bytes per polarisation, %.1f MiB in all", (*heaps)->n_heaps,
                 (*heaps)->heap_bytes,
                 (double)((*heaps)->n_inputs * (*heaps)->n_heaps * (*heaps)->heap_bytes) / 1048576);
    return err;
}

static void print_summary(const struct dsim_send *send, const struct dsim_play *play)
{
    struct dsim_send_summary summary = dsim_send_summary(send);

    printf("dsim: %llu heaps per polarisation sent, %llu packets failed, at most %.3f s late\n",
           (unsigned long long)summary.n_heaps, (unsigned long long)summary.n_packets_failed,
           (double)summary.latest_ns / 1e9);
    if (play)
        dsim_play_print_summary(play);
}

static int run(const struct dsim_config *config, const struct config *book, struct service *service)
{
    char why[512] = "";
    struct dsim_heaps *heaps = NULL;
    struct dsim_play *play = NULL;
    struct dsim_send *send = NULL;
    struct http *http = NULL;
    int exit_code;

    int err = open_heaps(config, &heaps, &play, why, sizeof(why));
    if (!err)
        err = dsim_send_create(config, heaps, play, service, &send, why, sizeof(why));
    if (!err && config->http.listen.n)
        err = http_open(&config->http.listen.items[0], NULL, &http, why, sizeof(why));
    if (!err && play)
        err = dsim_play_start(play);
    if (!err)
        err = dsim_send_start(send);
    if (err) {
        exit_code = daemon_start_failed(book, err, why);
    } else {
        log_info("dsim %s: %zu antennas", cbf_build_id, config->antennas.n);
        exit_code = service_run(service);
        service_stopping(service);
        dsim_send_stop(send);
        dsim_play_stop(play);
        print_summary(send, play);
    }
    http_close(http);
    dsim_send_destroy(send);
    dsim_play_destroy(play);
    dsim_heaps_destroy(heaps);
    return exit_code;
}

int main(int argc, char **argv)
{
    struct dsim_config values = {0};
    struct config *config = NULL;
    struct service *service = NULL;

    log_init("dsim", LOG_LEVEL_INFO);
    int exit_code = config_main(&dsim_config_table, argc, argv, dsim_config_check, &values, &config);
    if (exit_code < 0) {
        int err = service_open(&service);
        exit_code = err ? daemon_start_failed(config, err, "") : run(&values, config, service);
    }
    service_close(service);
    config_free(&dsim_config_table, &values, config);
    return exit_code;
}
