/* check_xcontrol - what is set of a running xbgpu: names of inputs, what is kept of it, and gates that change hands. */
#include "common/units.h"
#include "tests/unit/test_random.h"
#include "xbgpu/config.h"
#include "xbgpu/gating.h"
#include "xbgpu/labels.h"
#include "xbgpu/settings.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static const char yaml[] =
    "time: {sync_time: 1700000000, adc_sample_rate: 1712e6}\n"
    "recv: {sources: 239.2.0.3, antennas: 2, channels: 64, channels_per_substream: 8, chunks: 10, max_shift: 7,\n"
    "       spectra_per_heap: 16, samples_between_spectra: 128, batches_per_chunk: 5%s}\n"
    "gates: [{kind: phase, name: p, frequency: 30, bins: 4, take: [1]},\n"
    "        {kind: switch, name: s, period: 1000, on_until: 500, epoch: 3}]\n"
    "outputs: [{name: a, integration_batches: 3, destination: 239.3.0.3, gate: p},\n"
    "          {name: b, integration_batches: 3, destination: 239.3.0.4, gate: s, send_enabled: false}]\n";

static struct xbgpu_config config;
static struct config *book;
static struct xbgpu_layout layout;

/* A file of the test's own. */
static void write_file(char *path, const char *text)
{
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

/* Loads with 'more' in the section recv.  Returns the first error, or NULL. */
static const char *load(const char *more)
{
    char path[] = "/tmp/check_xcontrol.XXXXXX", text[2000];

    snprintf(text, sizeof(text), yaml, more);
    write_file(path, text);
    memset(&config, 0, sizeof(config));
    ck_assert_int_eq(config_load(&xbgpu_config_table, path, &config, &book), 0);
    unlink(path);
    xbgpu_config_check(&config, book);
    if (!config_first_error(book))
        xbgpu_layout_init(&layout, &config, false, 0);
    return config_first_error(book);
}

static void unload(void)
{
    config_free(&xbgpu_config_table, &config, book);
}

static char *written(void (*write)(const struct xlabels *labels, FILE *out), const struct xlabels *labels)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    write(labels, out);
    fclose(out);
    return text;
}

START_TEST(input_labels)
{
    struct xlabels labels;

    ck_assert_ptr_null(load(""));
    ck_assert_int_eq(xlabels_init(&labels, &config), 0);
    ck_assert_int_eq(xlabels_find(&labels, "a1v"), 2);
    ck_assert_int_eq(xlabels_find(&labels, "3"), 3);
    ck_assert_int_eq(xlabels_find(&labels, "4"), -1);
    ck_assert_int_eq(xlabels_find(&labels, "99999999999999999999999"), -1);
    ck_assert_int_eq(xlabels_find(&labels, ""), -1);
    xlabels_fini(&labels);
    unload();

    ck_assert_ptr_null(load(", input_labels: 'mh,mv,  nh , nv'"));
    ck_assert_int_eq(xlabels_init(&labels, &config), 0);
    char *text = written(xlabels_write, &labels);
    ck_assert_str_eq(text, "['mh', 'mv', 'nh', 'nv']");
    free(text);
    text = written(xlabels_write_products, &labels);
    ck_assert_str_eq(text, "[('mh', 'mh'), ('mv', 'mh'), ('mh', 'mv'), ('mv', 'mv'), "
                           "('mh', 'nh'), ('mv', 'nh'), ('mh', 'nv'), ('mv', 'nv'), "
                           "('nh', 'nh'), ('nv', 'nh'), ('nh', 'nv'), ('nv', 'nv')]");
    free(text);
    xlabels_fini(&labels);
    unload();
}
END_TEST

START_TEST(labels_that_are_wrong)
{
    static const char *const cases[][2] = {
        {", input_labels: 'a, b, c'", "input_labels must be 4, one for each polarisation of 2 antennas, not 3"},
        {", input_labels: 'a, b, c, d, e'", "input_labels must be 4, one for each polarisation of 2 antennas, not 5"},
        {", input_labels: 'a, b, c, a'", "two inputs have the label a"},
        {", input_labels: 'a, b, c, 7'",
         "an input label has letters, digits, '.', '-' and '_', and not digits only, but '7' is given"},
        {", input_labels: \"a, b, c', d\"",
         "an input label has letters, digits, '.', '-' and '_', and not digits only, but 'c'' is given"},
        {", shifts: [0, 0, 0, 17]",
         "a shift of 17 spectra, of polarisation 1 of antenna 1, is longer than a heap of 16"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        ck_assert_str_eq(load(cases[i][0]), cases[i][1]);
        unload();
    }
}
END_TEST

/* What was written is read again, and nothing else has changed. */
START_TEST(settings_are_kept)
{
    struct xsettings settings, again;
    char path[] = "/tmp/check_xcontrol.XXXXXX", why[1024] = "", *text = NULL, *text_again = NULL;
    size_t bytes;

    ck_assert_ptr_null(load(", shifts: [0, -9, 0, 0]"));
    ck_assert_int_eq(xsettings_init(&settings, &config, &layout), 0);
    FILE *out = open_memstream(&text, &bytes);
    ck_assert(!xsettings_write(out, &settings)); /* nothing is set */
    fclose(out);
    free(text);

    settings.captures[1] = (struct xsettings_capture){true, true, INT64_MAX};
    settings.shifts_set = true;
    settings.shifts[2] = -9;
    settings.gates[0].set = settings.gates[1].set = true;
    settings.gates[0].from_samples = 12345;
    const char *const keys[][2] = {{"take", "3,0,2"},           {"frequency", "0.123456789012345678"},
                                   {"phase", "-0.25"},          {"epoch_time", "1700000000.125"},
                                   {"dispersion_measure", "0"}, {"frequency_derivative", "-1e-15"}};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        ck_assert_int_eq(xbgpu_gate_set(&settings.gates[0].gate, keys[i][0], keys[i][1], why, sizeof(why)), 0);
    ck_assert_int_eq(xbgpu_gate_set(&settings.gates[1].gate, "on_until", "250", why, sizeof(why)), 0);
    out = open_memstream(&text, &bytes);
    ck_assert(xsettings_write(out, &settings));
    fclose(out);

    write_file(path, text);
    ck_assert_int_eq(xsettings_init(&again, &config, &layout), 0);
    ck_assert_int_eq(xsettings_read(&again, path, why, sizeof(why)), 0);
    unlink(path);
    ck_assert(!again.captures[0].set && again.captures[0].on && again.captures[1].set && again.captures[1].on);
    ck_assert_int_eq(again.captures[1].from_samples, INT64_MAX);
    ck_assert(again.shifts_set);
    ck_assert_mem_eq(again.shifts, ((int64_t[]){0, -9, -9, 0}), 4 * sizeof(int64_t));
    const struct xbgpu_config_gate *gate = &again.gates[0].gate;
    ck_assert_uint_eq(gate->bins.n, 3);
    ck_assert_mem_eq(gate->bins.items, ((int64_t[]){3, 0, 2}), 3 * sizeof(int64_t));
    ck_assert_int_eq(gate->frequency_hz.mantissa, 123456789012345678);
    ck_assert_int_eq(gate->epoch_samples, 0);
    ck_assert_int_eq(again.gates[0].from_samples, 12345);
    ck_assert_int_eq(again.gates[1].gate.epoch_samples, 3);
    ck_assert_int_eq(again.gates[1].gate.on_until_samples, 250);
    out = open_memstream(&text_again, &bytes);
    ck_assert(xsettings_write(out, &again));
    fclose(out);
    ck_assert_str_eq(text, text_again);
    ck_assert_int_eq(xsettings_read(&again, "/nowhere/at/all", why, sizeof(why)), -ENOENT);

    /* Timestamps of another sync time say nothing. */
    char path_other[] = "/tmp/check_xcontrol.XXXXXX", *digit = strstr(text, "sync_time 1700000000");
    ck_assert_ptr_nonnull(digit);
    digit[strlen("sync_time ")] = '2';
    write_file(path_other, text);
    ck_assert_int_eq(xsettings_read(&again, path_other, why, sizeof(why)), 0);
    unlink(path_other);
    ck_assert(again.captures[1].set && again.captures[1].on && again.gates[0].set);
    ck_assert_int_eq(again.captures[1].from_samples, 0);
    ck_assert_int_eq(again.gates[0].from_samples, 0);
    free(text);
    free(text_again);
    xsettings_fini(&settings);
    xsettings_fini(&again);
    unload();
}
END_TEST

/* Text that 'settings' write; to be freed. */
static char *text_of(struct xsettings *settings)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    ck_assert(xsettings_write(out, settings));
    fclose(out);
    return text;
}

/* Settings of the configuration that is loaded, with what was kept. */
static void read_text(struct xsettings *settings, const char *text)
{
    char path[] = "/tmp/check_xcontrol.XXXXXX", why[1024] = "";

    write_file(path, text);
    ck_assert_int_eq(xsettings_init(settings, &config, &layout), 0);
    ck_assert_msg(xsettings_read(settings, path, why, sizeof(why)) == 0, "%s", why);
    unlink(path);
}

/* Shifts go with their inputs, wherever these are now. */
START_TEST(shifts_follow_their_inputs)
{
    struct xsettings settings, again;

    ck_assert_ptr_null(load(", input_labels: 'm0v, m0h, m1v, m1h'"));
    ck_assert_int_eq(xsettings_init(&settings, &config, &layout), 0);
    memcpy(settings.shifts, ((int64_t[]){1, -2, 3, -4}), 4 * sizeof(int64_t));
    settings.shifts_set = true;
    char *text = text_of(&settings);
    xsettings_fini(&settings);
    unload();

    ck_assert_ptr_null(load(", shifts: [7, 6, 5, 4], input_labels: 'm7v, m7h, m0v, m0h'"));
    read_text(&again, text);
    ck_assert(again.shifts_set);
    ck_assert_mem_eq(again.shifts, ((int64_t[]){7, 6, 1, -2}), 4 * sizeof(int64_t));
    xsettings_fini(&again);
    read_text(&again, "shift 3 -5\n");
    ck_assert_mem_eq(again.shifts, ((int64_t[]){7, 6, 5, -5}), 4 * sizeof(int64_t));
    xsettings_fini(&again);
    free(text);
    unload();
}
END_TEST

/* An epoch in samples of another sync time is another time: what the configuration says of such a gate holds. */
START_TEST(epochs_of_another_sync_time)
{
    static const char kept[] = "sync_time 1600000000\n"
                               "gate p 5 epoch_time 1700000001\ngate p 5 phase 0.25\n"
                               "gate s 5 epoch 77\ngate s 5 period 2000\n";
    struct xsettings again;

    ck_assert_ptr_null(load(""));
    read_text(&again, kept);
    ck_assert(again.gates[0].set && again.gates[0].gate.phase_turns.mantissa == 25);
    ck_assert(!again.gates[1].set);
    ck_assert_int_eq(again.gates[1].gate.epoch_samples, 3);
    ck_assert_int_eq(again.gates[1].gate.period_samples, 1000);
    xsettings_fini(&again);
    unload();
}
END_TEST

/* Which gate decides at a timestamp, by the definition: the change that was set last of those whose time has come, where
 * one that waits gives way to the next. */
START_TEST(gates_change_hands)
{
    struct gating gating;
    struct gate *made[40];
    size_t n_freed = 0;

    ck_assert_ptr_null(load(""));
    ck_assert_int_eq(gating_init(&gating, &config, &layout, NULL), 0);
    struct gate *now = gating.gates[1].now, *waits = NULL;
    int64_t next_samples = 0, from_samples = 0;
    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        ck_assert_int_eq(gate_create(xbgpu_config_gate(&config.gates, 1), &config, &made[i]), 0);
        next_samples += (int64_t)random_below(200);
        struct gate *gate = made[i];
        int64_t from = (int64_t)random_below(2) ? 0 : next_samples + (int64_t)random_below(300);
        gating_set(&gating, 1, &gate, from, next_samples);
        if (waits && from_samples <= next_samples)
            now = waits;
        waits = made[i];
        from_samples = from;
        ck_assert_ptr_eq(gating.gates[1].now, now);
        ck_assert_ptr_eq(gating.gates[1].next, waits);
        ck_assert_int_eq(gating.gates[1].from_samples, from);
        ck_assert(gate != now && gate != waits);
        n_freed += gate != NULL;
        gate_destroy(gate);
    }
    ck_assert_uint_eq(n_freed, ARRAY_LEN(made) - 1); /* all but two of what it was given and the one it had */
    gating_fini(&gating);
    unload();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("xcontrol");
    TCase *tcase = tcase_create("all");
    SRunner *runner = srunner_create(suite);

    random_start();
    tcase_add_test(tcase, input_labels);
    tcase_add_test(tcase, labels_that_are_wrong);
    tcase_add_test(tcase, settings_are_kept);
    tcase_add_test(tcase, shifts_follow_their_inputs);
    tcase_add_test(tcase, epochs_of_another_sync_time);
    tcase_add_test(tcase, gates_change_hands);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? 1 : 0;
}
