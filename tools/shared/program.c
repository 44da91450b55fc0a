/* program.c - main() of tools that need no device.  See program.h. */
#include "tools/shared/program.h"

#include "common/base/log.h"
#include "common/daemon/command_line.h"
#include "common/daemon/daemon.h"
#include "common/daemon/service.h"

int program_main(const struct program *program, int argc, char **argv, void *values)
{
    struct config *config = NULL;
    struct service *service = NULL;

    service_catch_signals();
    log_init(program->table->program, LOG_LEVEL_INFO);
    int exit_code = command_line_main(program->table, argc, argv, program->check, values, &config);
    if (exit_code < 0) {
        int err = service_open(&service);
        exit_code = err ? daemon_start_failed(config, err, "") : program->run(values, config, service);
    }
    service_close(service);
    config_free(program->table, values, config);
    return exit_code;
}
