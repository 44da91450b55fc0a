/* command_line.c - parses the command line, and calls config/load.c and config/print.c. */
#include "common/daemon/command_line.h"

#include "common/config/config.h"
#include "common/daemon/service.h"
#include "common/base/version.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

enum action {
    /* Actions that read a configuration file. */
    ACTION_RUN,
    ACTION_TUNE,
    ACTION_CHECK,
    ACTION_PRINT,
    /* Actions that read no file. */
    ACTION_SCHEMA,
    ACTION_EXAMPLE,
    ACTION_VERSION,
    ACTION_HELP
};

static const struct option options[] = {
    {"tune", no_argument, NULL, ACTION_TUNE}, /* first option; skipped if the table of keys does not offer --tune */
    {"check-config", no_argument, NULL, ACTION_CHECK},
    {"print-config", no_argument, NULL, ACTION_PRINT},
    {"print-schema", no_argument, NULL, ACTION_SCHEMA},
    {"print-example", no_argument, NULL, ACTION_EXAMPLE},
    {"version", no_argument, NULL, ACTION_VERSION},
    {"help", no_argument, NULL, ACTION_HELP},
    {NULL, 0, NULL, 0},
};

static const char *const option_help[] = {
    [ACTION_TUNE] = "measure kernel shapes on the GPU and keep the fastest for the next start",
    [ACTION_CHECK] = "report all errors in the file",
    [ACTION_PRINT] = "print the values in effect, defaults included",
    [ACTION_SCHEMA] = "print the JSON Schema of the file",
    [ACTION_EXAMPLE] = "print an example with every key explained",
    [ACTION_VERSION] = "print the version",
    [ACTION_HELP] = "print this help",
};

static void print_help(const struct config_table *table, FILE *out)
{
    fprintf(out,
            "Usage: %s [OPTION] CONFIG.yaml\n"
            "%s\n\n"
            "Without an option, runs until SIGTERM or SIGINT.  Instead of running:\n",
            table->program, table->help);
    for (const struct option *option = options + !table->tunes; option->name; option++)
        fprintf(out, "  --%-13s  %s%s\n", option->name, option_help[option->val],
                option->val <= ACTION_PRINT ? "" : " (no file needed)");
    fprintf(out, "\nExits with %d if the file or the command line is wrong.\n", EXIT_CONFIG);
}

/* Parses the command line.  Returns the requested action, or -1 after printing an error message. */
static int parse_command_line(const struct config_table *table, int argc, char **argv)
{
    int action = ACTION_RUN, option;

    optind = 0; /* resets the parser, because tests call this function more than once */
    while ((option = getopt_long(argc, argv, "", options + (table->tunes ? 0 : 1), NULL)) != -1) {
        if (option == '?') {
            fprintf(stderr, "Try '%s --help'.\n", table->program);
            return -1;
        }
        if (action != ACTION_RUN && action != option) {
            fprintf(stderr, "%s: only one option can be given\n", table->program);
            return -1;
        }
        action = option;
    }
    if (action <= ACTION_PRINT && argc - optind != 1) {
        fprintf(stderr, "%s: one configuration file is needed, but %d are given; try '%s --help'\n", table->program,
                argc - optind, table->program);
        return -1;
    }
    if (action > ACTION_PRINT && argc > optind) {
        fprintf(stderr, "%s: this option takes no file\n", table->program);
        return -1;
    }
    return action;
}

int command_line_main(const struct config_table *table, int argc, char **argv,
                      void (*check)(void *values, struct config *config), void *values, struct config **config)
{
    int action = parse_command_line(table, argc, argv);
    const char *path;
    int err;

    *config = NULL;
    if (action != ACTION_RUN)
        service_release_signals();
    switch (action) {
    case -1: return EXIT_CONFIG;
    case ACTION_SCHEMA: config_print_schema(table, stdout); return 0;
    case ACTION_EXAMPLE: config_print_example(table, stdout); return 0;
    case ACTION_VERSION: printf("%s %s\n", table->program, cbf_build_id); return 0;
    case ACTION_HELP: print_help(table, stdout); return 0;
    }
    path = argv[optind];
    err = config_load(table, path, values, config);
    /* If the file has an error, check() is not called, because check() compares several keys and needs all values. */
    if (!err && check) {
        check(values, *config);
        err = config_result(*config);
    }
    if (*config)
        config_print_errors(*config, stderr);
    else
        fprintf(stderr, "%s: out of memory\n", path);
    if (!err && action == ACTION_CHECK)
        printf("%s: OK\n", path);
    else if (!err && action == ACTION_PRINT)
        config_print(table, values, stdout);
    else if (!err)
        return action == ACTION_TUNE ? CONFIG_TUNE : CONFIG_RUN;
    config_free(table, values, *config);
    *config = NULL;
    return err ? service_exit_code(err) : 0;
}
