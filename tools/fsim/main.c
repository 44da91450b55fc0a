/* main.c - main() of the F-engine simulator.  The parts start in order, and shut down in reverse order. */
#include "common/daemon/daemon.h"
#include "common/http/http.h"
#include "common/base/log.h"
#include "common/daemon/service.h"
#include "common/base/version.h"
#include "tools/fsim/config.h"
#include "tools/fsim/heaps.h"
#include "tools/fsim/send.h"
#include "tools/shared/program.h"

static int run(const void *values, const struct config *book, struct service *service)
{
    const struct fsim_config *config = values;
    char why[512] = "";
    struct fsim_heaps *heaps = NULL;
    struct fsim_send *send = NULL;
    struct http *http = NULL;
    int exit_code;

    int err = fsim_heaps_create(config, &heaps, why, sizeof(why));
    if (!err)
        err = fsim_send_create(config, heaps, service, &send, why, sizeof(why));
    if (!err && config->http.listen.n)
        err = http_open(&config->http, NULL, NULL, &http, why, sizeof(why));
    if (!err)
        err = fsim_send_start(send);
    if (err) {
        exit_code = daemon_start_failed(book, err, why);
    } else {
        log_info("fsim %s: %zu antenna%s, %zu substream%s, %zu heap%s of %zu bytes each, which repeat", cbf_build_id,
                 heaps->n_ants, plural(heaps->n_ants), heaps->n_substreams, plural(heaps->n_substreams),
                 heaps->n_batches, plural(heaps->n_batches), heaps->heap_bytes);
        exit_code = service_run(service);
        service_stopping(service);
        fsim_send_stop(send);
        if (fsim_send_print_summary(send) > 0 && config->send.pcap_file)
            exit_code = 1;
    }
    http_close(http);
    fsim_send_destroy(send);
    fsim_heaps_destroy(heaps);
    return exit_code;
}

int main(int argc, char **argv)
{
    static const struct program program = {&fsim_config_table, fsim_config_check, run};
    struct fsim_config values = {0};

    return program_main(&program, argc, argv, &values);
}
