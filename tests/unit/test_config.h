/* test_config.h - loads configurations that a test holds as text. */
#ifndef TESTS_UNIT_TEST_CONFIG_H
#define TESTS_UNIT_TEST_CONFIG_H

#include "common/config/config.h"
#include "tests/unit/test_file.h"

#include <check.h>
#include <stdio.h>
#include <unistd.h>

/* Loads 'yaml', in which each key must be valid by itself.  The caller checks for conflicts between keys. */
static inline void load_config(const struct config_table *table, const char *yaml, void *values, struct config **config)
{
    char path[] = "/tmp/cbf-test-config-XXXXXX";

    write_file(path, yaml);
    int err = config_load(table, path, values, config);
    unlink(path);
    if (err)
        config_print_errors(*config, stdout);
    ck_assert_int_eq(err, 0);
}

/* Loads and checks 'yaml'.  There are no errors. */
static inline struct config *load_checked_config(const struct config_table *table, const char *yaml, void *values,
                                                 void (*check)(void *values, struct config *errors))
{
    struct config *errors;

    load_config(table, yaml, values, &errors);
    check(values, errors);
    config_print_errors(errors, stdout);
    ck_assert_uint_eq(config_n_errors(errors), 0);
    return errors;
}

#endif
