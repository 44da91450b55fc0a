/* main.c - main() of the digitiser simulator.  The parts start in order, and shut down in reverse order. */
#include "common/daemon/daemon.h"
#include "common/http/http.h"
#include "common/base/log.h"
#include "common/daemon/service.h"
#include "common/base/version.h"
#include "tools/dsim/config.h"
#include "tools/dsim/control.h"
#include "tools/dsim/gnss.h"
#include "tools/dsim/live.h"
#include "tools/dsim/play.h"
#include "tools/dsim/pulsar.h"
#include "tools/dsim/send.h"
#include "tools/dsim/signal.h"
#include "tools/shared/program.h"

/* The source of the heaps: computed signals or recordings.  Members that are not used are NULL. */
struct origin {
    struct dsim_program *program;
    struct dsim_format format; /* format of the program's signals */
    struct dsim_heaps *heaps;
    struct dsim_live *live;
    struct dsim_play *play;
};

/* Computes the heaps of a period, or the tables of live signals, from the specification.  dsim_config_check() has
 * validated the specification. */
static int make_heaps(const struct dsim_config *config, struct origin *origin, char *why, size_t why_bytes)
{
    struct dsim_format *format = &origin->format;

    *format = (struct dsim_format){
        .axis = {config->digitiser.period_samples, timebase_decimal_to_double(config->time.adc_sample_rate_hz)},
        .n_inputs = dsim_config_n_inputs(config),
        .packet_samples = (size_t)config->digitiser.packet_samples,
        .sample_bits = (int)config->digitiser.sample_bits,
        .dither_seed = (uint64_t)config->digitiser.dither_seed,
    };
    int err = dsim_parse(config->signals.specification, &origin->program, why, why_bytes);
    if (!err && config->digitiser.dither_seed < 0)
        err = dsim_random_seed(&format->dither_seed);
    if (!err)
        err = dsim_signal_choose_seeds(origin->program);
    if (!err)
        err = dsim_pulsar_compute(origin->program, &format->axis, why, why_bytes);
    if (!err)
        err = dsim_gnss_compute(origin->program, format->axis.adc_sample_rate_hz, config->signals.code_file, why,
                                why_bytes);
    if (err)
        return err;
    log_info("the seed of the dither is %llu", (unsigned long long)format->dither_seed);
    if (origin->program->is_live)
        return dsim_live_create(origin->program, format, &origin->live, why, why_bytes);
    err = dsim_heaps_create(origin->program, format, &origin->heaps, why, why_bytes);
    if (!err)
        log_info("a period has %zu heaps of %zu bytes per polarisation, %.1f MiB in all", origin->heaps->n_heaps,
                 origin->heaps->heap_bytes,
                 (double)(origin->heaps->n_inputs * origin->heaps->n_heaps * origin->heaps->heap_bytes) / 1048576);
    return err;
}

static int open_origin(const struct dsim_config *config, struct origin *origin, char *why, size_t why_bytes)
{
    int err = config->recordings.n > 0 ? 0 : make_heaps(config, origin, why, why_bytes);

    if (err || origin->heaps)
        return err;
    return dsim_play_open(config, origin->live, dsim_config_n_heaps(config), &origin->play, why, why_bytes);
}

static void close_origin(struct origin *origin)
{
    dsim_play_destroy(origin->play);
    dsim_live_destroy(origin->live);
    dsim_heaps_destroy(origin->heaps);
    dsim_program_free(origin->program);
}

static int run(const void *values, const struct config *book, struct service *service)
{
    const struct dsim_config *config = values;
    char why[512] = "";
    struct origin origin = {0};
    struct dsim_send *send = NULL;
    struct http *http = NULL;
    struct dsim_control *control = NULL;
    int exit_code;

    int err = open_origin(config, &origin, why, sizeof(why));
    if (!err)
        err = dsim_send_create(config, origin.heaps, origin.play, service, &send, why, sizeof(why));
    if (!err && config->http.listen.n)
        err = http_open(&config->http, NULL, NULL, &http, why, sizeof(why));
    const struct dsim_control_config control_config = {.config = config,
                                                       .service = service,
                                                       .send = send,
                                                       .format = &origin.format,
                                                       .program = origin.program,
                                                       .heaps = &origin.heaps};
    if (!err && (config->katcp.listen.n || config->katcp.read_only_listen.n))
        err = dsim_control_open(&control_config, &control, why, sizeof(why));
    if (!err)
        err = dsim_send_start(send);
    if (!err && origin.play)
        err = dsim_play_start(origin.play, dsim_send_first_timestamp(send));
    if (err) {
        exit_code = daemon_start_failed(book, err, why);
    } else {
        log_info("dsim %s: %zu antenna%s", cbf_build_id, config->antennas.n, plural(config->antennas.n));
        exit_code = service_run(service);
        service_stopping(service);
        dsim_control_close(control);
        dsim_send_stop(send);
        dsim_play_stop(origin.play);
        dsim_send_print_summary(send);
        dsim_play_print_summary(origin.play);
    }
    http_close(http);
    dsim_send_destroy(send);
    dsim_control_destroy(control);
    close_origin(&origin);
    return exit_code;
}

int main(int argc, char **argv)
{
    static const struct program program = {&dsim_config_table, dsim_config_check, run};
    struct dsim_config values = {0};

    return program_main(&program, argc, argv, &values);
}
