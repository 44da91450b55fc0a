/* check_xbgpu_settings - settings of a running xbgpu: names of inputs, saved settings, and gates that change hands. */
#include "common/base/units.h"
#include "tests/unit/test_config.h"
#include "tests/unit/test_random.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config_check.h"
#include "xbgpu/gate_schedule.h"
#include "common/engine/labels.h"
#include "xbgpu/settings.h"
#include "tests/unit/test_main.h"

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
static struct labels labels;

static void unload(void)
{
    labels_fini(&labels);
    config_free(&xbgpu_config_table, &config, book);
    memset(&config, 0, sizeof(config));
    book = NULL;
}

/* Loads with 'more' in the section recv, in place of what was loaded before.  Returns the first error, or NULL. */
static const char *load(const char *more)
{
    char text[2000];

    snprintf(text, sizeof(text), yaml, more);
    unload();
    load_config(&xbgpu_config_table, text, &config, &book);
    xbgpu_config_check(&config, book);
    if (!config_first_error(book))
        xbgpu_layout_init(&layout, &config);
    return config_first_error(book);
}

/* Loads what must be right, with labels. */
static void load_labels(const char *more)
{
    ck_assert_ptr_null(load(more));
    ck_assert_int_eq(labels_init(&labels, 2, config.recv.antenna_names, config.recv.input_labels), 0);
}

static char *written(void (*write)(const struct labels *of, FILE *out))
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    write(&labels, out);
    fclose(out);
    return text;
}

TEST(input_labels)
{
    load_labels("");
    ck_assert_int_eq(labels_find(&labels, "a1v", strlen("a1v")), 2);
    ck_assert_int_eq(labels_find(&labels, "3", strlen("3")), 3);
    ck_assert_int_eq(labels_find(&labels, "4", strlen("4")), -1);
    ck_assert_int_eq(labels_find(&labels, "99999999999999999999999", strlen("99999999999999999999999")), -1);
    ck_assert_int_eq(labels_find(&labels, "", strlen("")), -1);

    load_labels(", input_labels: 'mh,mv,  nh , nv'");
    char *text = written(labels_write);
    ck_assert_str_eq(text, "['mh', 'mv', 'nh', 'nv']");
    free(text);
    text = written(labels_write_products);
    ck_assert_str_eq(text, "[('mh', 'mh'), ('mv', 'mh'), ('mh', 'mv'), ('mv', 'mv'), "
                           "('mh', 'nh'), ('mv', 'nh'), ('mh', 'nv'), ('mv', 'nv'), "
                           "('nh', 'nh'), ('nv', 'nh'), ('nh', 'nv'), ('nv', 'nv')]");
    free(text);
}

/* What the labels of an antenna begin with is its name, if that tells the antennas apart. */
TEST(antennas_by_labels)
{
    static const char *const cases[][3] = {{"mh, mv, nh, nv", "m", "n"},
                                           {"s1-x, s1-y, m017.h, m017.v", "s1", "m017"},
                                           {"m1h, m1v, x, y", "a0", "a1"},
                                           {"m1h, m1v, m1x, m1y", "a0", "a1"},
                                           {"1h, 1v, 2h, 2v", "a0", "a1"}};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[100];
        snprintf(text, sizeof(text), ", input_labels: '%s'", cases[i][0]);
        load_labels(text);
        for (int a = 0; a < 2; a++)
            ck_assert_str_eq(labels.antennas[a], cases[i][1 + a]);
    }
}

TEST(antenna_names)
{
    load_labels("");
    ck_assert_str_eq(labels.antennas[1], "a1");

    load_labels(", antenna_names: 'm017, s0103'");
    ck_assert_str_eq(labels.antennas[0], "m017");
    ck_assert_int_eq(labels_find(&labels, "m017h", strlen("m017h")), 1);
    ck_assert_int_eq(labels_find(&labels, "s0103v", strlen("s0103v")), 2);

    load_labels(", antenna_names: 'm017, s0103', input_labels: 'a, b, c, d'");
    ck_assert_str_eq(labels.antennas[1], "s0103");
    ck_assert_int_eq(labels_find(&labels, "c", strlen("c")), 2);
}

TEST(labels_that_are_wrong)
{
    static const char *const cases[][2] = {
        {", input_labels: 'a, b, c'", "input_labels must have 4 items, one for each polarisation of 2 antennas, not 3"},
        {", input_labels: 'a, b, c, d, e'",
         "input_labels must have 4 items, one for each polarisation of 2 antennas, not 5"},
        {", input_labels: 'a, b, c, a'", "two inputs have the label a"},
        {", input_labels: 'a, b, c, 7'",
         "an input label must consist of letters, digits, '.', '-' and '_', and not of digits only, but '7' is given"},
        {", input_labels: \"a, b, c', d\"",
         "an input label must consist of letters, digits, '.', '-' and '_', and not of digits only, but 'c'' is given"},
        {", antenna_names: 'a, b, c'", "antenna_names must have 2 items, one for each of 2 antennas, not 3"},
        {", antenna_names: 'a, a'", "two antennas have the name a"},
        {", antenna_names: 'a, 1'", "an antenna's name must consist of letters, digits, '.', '-' and '_', and not of "
                                    "digits only, but '1' is given"},
        {", shifts: [0, 0, 0, 17]",
         "a shift of 17 spectra, of polarisation 1 of antenna 1, is longer than a heap of 16 spectra"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        ck_assert_str_eq(load(cases[i][0]), cases[i][1]);
    }
}

/* Text that 'settings' write; to be freed. */
static char *text_of(struct xbgpu_settings *settings)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    ck_assert(xbgpu_settings_write(out, settings));
    fclose(out);
    return text;
}

/* Settings of the configuration that is loaded, with what was kept; returns whether that was all of it. */
static bool read_text(struct xbgpu_settings *settings, const char *text)
{
    char path[] = "/tmp/check_xbgpu_settings.XXXXXX", why[1024] = "";
    bool whole = true;

    write_file(path, text);
    ck_assert_int_eq(xbgpu_settings_init(settings, &config, &layout), 0);
    ck_assert_msg(xbgpu_settings_read(settings, path, &whole, why, sizeof(why)) == 0, "%s", why);
    unlink(path);
    return whole;
}

/* What an operator may set: captures, shifts and gates. */
static void set_some(struct xbgpu_settings *settings)
{
    static const char *const keys[][2] = {{"take", "3,0,2"},           {"frequency", "0.123456789012345678"},
                                          {"phase", "-0.25"},          {"epoch_time", "1700000000.125"},
                                          {"dispersion_measure", "0"}, {"frequency_derivative", "-1e-15"}};
    char why[1024] = "";

    settings->captures[1] = (struct xbgpu_settings_capture){true, true, INT64_MAX};
    settings->shifts_set = true;
    settings->shifts[2] = -9;
    settings->gates[0].set = settings->gates[1].set = true;
    settings->gates[0].from_samples = 12345;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        ck_assert_int_eq(xbgpu_gate_set(&settings->gates[0].gate, keys[i][0], keys[i][1], why, sizeof(why)), 0);
    ck_assert_int_eq(xbgpu_gate_set(&settings->gates[1].gate, "on_until", "250", why, sizeof(why)), 0);
}

static void check_some(const struct xbgpu_settings *settings)
{
    const struct xbgpu_config_gate *gate = &settings->gates[0].gate;

    ck_assert(!settings->captures[0].set && settings->captures[0].on && settings->captures[1].set &&
              settings->captures[1].on);
    ck_assert_int_eq(settings->captures[1].from_samples, INT64_MAX);
    ck_assert(settings->shifts_set);
    ck_assert_mem_eq(settings->shifts, ((int64_t[]){0, -9, -9, 0}), 4 * sizeof(int64_t));
    ck_assert_uint_eq(gate->bins.n, 3);
    ck_assert_mem_eq(gate->bins.items, ((int64_t[]){3, 0, 2}), 3 * sizeof(int64_t));
    ck_assert_int_eq(gate->frequency_hz.mantissa, 123456789012345678);
    ck_assert_int_eq(gate->epoch_samples, 0);
    ck_assert_int_eq(settings->gates[0].from_samples, 12345);
    ck_assert_int_eq(settings->gates[1].gate.epoch_samples, 3);
    ck_assert_int_eq(settings->gates[1].gate.on_until_samples, 250);
}

/* What was written is read again, and nothing else has changed. */
TEST(settings_are_kept)
{
    struct xbgpu_settings settings, again;
    char path[] = "/tmp/check_xbgpu_settings.XXXXXX", why[1024] = "", *text = NULL;
    size_t bytes;
    bool whole = false;

    ck_assert_ptr_null(load(", shifts: [0, -9, 0, 0]"));
    ck_assert_int_eq(xbgpu_settings_init(&settings, &config, &layout), 0);
    FILE *out = open_memstream(&text, &bytes);
    ck_assert(!xbgpu_settings_write(out, &settings)); /* nothing is set */
    fclose(out);
    free(text);

    set_some(&settings);
    text = text_of(&settings);
    ck_assert(read_text(&again, text));
    check_some(&again);
    char *text_again = text_of(&again);
    ck_assert_str_eq(text, text_again);
    ck_assert_int_eq(xbgpu_settings_read(&again, "/nowhere/at/all", &whole, why, sizeof(why)), -ENOENT);

    /* Timestamps of another sync time say nothing. */
    char *digit = strstr(text, "sync_time 1700000000");
    ck_assert_ptr_nonnull(digit);
    digit[strlen("sync_time ")] = '2';
    write_file(path, text);
    ck_assert_int_eq(xbgpu_settings_read(&again, path, &whole, why, sizeof(why)), 0);
    unlink(path);
    ck_assert(again.captures[1].set && again.captures[1].on && again.gates[0].set);
    ck_assert_int_eq(again.captures[1].from_samples, 0);
    ck_assert_int_eq(again.gates[0].from_samples, 0);
    free(text);
    free(text_again);
    xbgpu_settings_fini(&settings);
    xbgpu_settings_fini(&again);
}

/* Whatever of it has no place here is told. */
TEST(what_is_left_out)
{
    static const struct {
        const char *text;
        bool whole;
    } table[] = {{"capture gone on 0\n", false}, {"shift 0 99999\n", false}, {"gate pulse 0 take 99\n", false},
                 {"colour red\n", false},        {"\x01\xff\n", false},      {"# nothing\n", true}};
    struct xbgpu_settings settings;

    ck_assert_ptr_null(load(""));
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        ck_assert_msg(read_text(&settings, table[i].text) == table[i].whole, "%s", table[i].text);
        xbgpu_settings_fini(&settings);
    }
}

/* Shifts go with their inputs, wherever these are now. */
TEST(shifts_follow_their_inputs)
{
    struct xbgpu_settings settings, again;

    ck_assert_ptr_null(load(", input_labels: 'm0v, m0h, m1v, m1h'"));
    ck_assert_int_eq(xbgpu_settings_init(&settings, &config, &layout), 0);
    memcpy(settings.shifts, ((int64_t[]){1, -2, 3, -4}), 4 * sizeof(int64_t));
    settings.shifts_set = true;
    char *text = text_of(&settings);
    xbgpu_settings_fini(&settings);

    ck_assert_ptr_null(load(", shifts: [7, 6, 5, 4], input_labels: 'm7v, m7h, m0v, m0h'"));
    read_text(&again, text);
    ck_assert(again.shifts_set);
    ck_assert_mem_eq(again.shifts, ((int64_t[]){7, 6, 1, -2}), 4 * sizeof(int64_t));
    xbgpu_settings_fini(&again);
    read_text(&again, "shift 3 -5\n");
    ck_assert_mem_eq(again.shifts, ((int64_t[]){7, 6, 5, -5}), 4 * sizeof(int64_t));
    xbgpu_settings_fini(&again);
    free(text);
}

/* An epoch in samples of another sync time is another time: what the configuration says of such a gate holds. */
TEST(epochs_of_another_sync_time)
{
    static const char kept[] = "sync_time 1600000000\n"
                               "gate p 5 epoch_time 1700000001\ngate p 5 phase 0.25\n"
                               "gate s 5 epoch 77\ngate s 5 period 2000\n";
    struct xbgpu_settings again;

    ck_assert_ptr_null(load(""));
    read_text(&again, kept);
    ck_assert(again.gates[0].set && again.gates[0].gate.phase_turns.mantissa == 25);
    ck_assert(!again.gates[1].set);
    ck_assert_int_eq(again.gates[1].gate.epoch_samples, 3);
    ck_assert_int_eq(again.gates[1].gate.period_samples, 1000);
    xbgpu_settings_fini(&again);
}

/* A change as it was set. */
struct set_change {
    const struct xbgpu_gate *gate;
    int64_t from_samples;
    bool removed;
};

/* The gate that decides at a timestamp, by the definition: of the changes that no later one removed, the last whose
 * time has come; before all of them that of the configuration. */
static const struct xbgpu_gate *decides(const struct set_change *all, size_t n, int64_t timestamp_samples)
{
    const struct set_change *last = &all[0];

    for (size_t i = 1; i < n; i++)
        if (!all[i].removed && all[i].from_samples <= timestamp_samples && all[i].from_samples >= last->from_samples)
            last = &all[i];
    return last->gate;
}

static const struct xbgpu_gate *found(const struct xbgpu_gate_schedule_entry *entry, int64_t timestamp_samples)
{
    size_t i = 0;

    while (i + 1 < entry->n && entry->changes[i + 1].from_samples <= timestamp_samples)
        i++;
    return entry->changes[i].gate;
}

static size_t n_held(const struct xbgpu_gate_schedule_entry *entry)
{
    size_t n = 0;

    for (size_t i = 0; i < GATING_MAX_CHANGES; i++)
        n += entry->changes[i].gate != NULL;
    return n;
}

/* At any timestamp from the oldest change that is kept on, while the time that has been listed goes on, jumps ahead and
 * comes back. */
TEST(gates_change_hands)
{
    enum { N = 200 };
    struct xbgpu_gate_schedule gating;
    struct set_change all[N + 1];
    size_t n_back = 0;
    int64_t now = 0;

    ck_assert_ptr_null(load(""));
    ck_assert_int_eq(xbgpu_gate_schedule_init(&gating, &config, &layout, NULL), 0);
    const struct xbgpu_gate_schedule_entry *entry = &gating.gates[1];
    all[0] = (struct set_change){entry->changes[0].gate, INT64_MIN, false};
    for (size_t i = 1; i <= N; i++) {
        struct xbgpu_gate *gate;
        bool far = random_below(5) == 0;
        now += (int64_t)random_below(200);
        int64_t next_samples = far ? now + 1000000 : now;
        int64_t from =
            (int64_t)random_below(2) ? 0 : (random_below(2) ? now : next_samples) + (int64_t)random_below(300);
        ck_assert_int_eq(xbgpu_gate_create(xbgpu_config_gate(&config.gates, 1), &config, &gate), 0);
        all[i] = (struct set_change){gate, from, false};
        for (size_t j = 1; j < i; j++)
            all[j].removed |= all[j].from_samples >= from || all[j].from_samples > next_samples;
        xbgpu_gate_schedule_set(&gating, 1, &gate, from, next_samples);
        for (size_t k = 0; k < entry->n; k++)
            ck_assert_ptr_ne(entry->changes[k].gate, gate);
        n_back += gate != NULL;
        xbgpu_gate_destroy(gate);
        ck_assert_ptr_eq(found(entry, INT64_MAX), all[i].gate);
        for (size_t k = 0; k < 50; k++) {
            int64_t t = (int64_t)random_below((size_t)now + 500) + (random_below(2) ? 1000000 : 0);
            if (entry->n == 1 || t >= entry->changes[1].from_samples)
                ck_assert_ptr_eq(found(entry, t), decides(all, i + 1, t));
        }
    }
    ck_assert_uint_eq(n_back + n_held(entry), N + 1);
    xbgpu_gate_schedule_fini(&gating);
}

/* The gates in force before a jump ahead are in force behind it, whatever has been set meanwhile for the time there; the
 * last changes are kept. */
TEST(gates_after_a_jump)
{
    const int64_t far = INT64_C(1) << 40;
    struct xbgpu_gate_schedule gating;
    struct xbgpu_gate *gate = NULL;
    const struct xbgpu_gate *set[GATING_MAX_CHANGES];

    ck_assert_ptr_null(load(""));
    ck_assert_int_eq(xbgpu_gate_schedule_init(&gating, &config, &layout, NULL), 0);
    const struct xbgpu_gate_schedule_entry *entry = &gating.gates[1];
    set[0] = entry->changes[0].gate;
    for (size_t i = 1; i < GATING_MAX_CHANGES; i++) {
        ck_assert_int_eq(xbgpu_gate_create(xbgpu_config_gate(&config.gates, 1), &config, &gate), 0);
        set[i] = gate;
        xbgpu_gate_schedule_set(&gating, 1, &gate, i < 4 ? 100 * (int64_t)i : far + (int64_t)i,
                                i < 4 ? 100 * (int64_t)i : 2 * far);
        ck_assert_ptr_null(gate);
        ck_assert_ptr_eq(found(entry, 99), set[0]);
        ck_assert_ptr_eq(found(entry, 250), set[i < 2 ? i : 2]);
        ck_assert_ptr_eq(found(entry, far), set[i < 3 ? i : 3]);
        ck_assert_ptr_eq(found(entry, 2 * far), set[i]);
    }
    /* Behind the jump all of those wait. */
    ck_assert_int_eq(xbgpu_gate_create(xbgpu_config_gate(&config.gates, 1), &config, &gate), 0);
    const struct xbgpu_gate *last = gate;
    xbgpu_gate_schedule_set(&gating, 1, &gate, 500, 450);
    ck_assert_ptr_eq(gate, set[4]);
    xbgpu_gate_destroy(gate);
    ck_assert_ptr_eq(found(entry, 499), set[3]);
    ck_assert_ptr_eq(found(entry, 2 * far), last);
    xbgpu_gate_schedule_fini(&gating);
}

SUITE(.teardown = unload, .start = random_start);
