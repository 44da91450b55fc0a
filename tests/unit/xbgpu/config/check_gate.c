/* check_gate - the spectra that gates take: bins against values computed with Python's fractions, and lists and runs
 * against single decisions. */
#include "xbgpu/config/gate.h"

#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "xbgpu/config/config.h"
#include "tests/unit/test_main.h"

#include <string.h>

static struct xbgpu_config make_config(const char *rate_hz)
{
    struct xbgpu_config config = {.recv = {.n_chan = 64,
                                           .n_chan_substream = 4,
                                           .chan_offset = 8,
                                           .spectra_per_heap = 48,
                                           .samples_between_spectra = 128}};

    ck_assert_int_eq(timebase_parse_decimal(rate_hz, 9, &config.time.adc_sample_rate_hz), 0);
    ck_assert_int_eq(timebase_parse_decimal("1700000000.25", 9, &config.time.sync_time_s), 0);
    return config;
}

static struct xbgpu_config_gate make_phase(const char *frequency, const char *derivative, const char *phase,
                                           int64_t n_bins)
{
    struct xbgpu_config_gate gate = {.kind = XBGPU_GATE_PHASE, .n_bins = n_bins};

    ck_assert_int_eq(timebase_parse_decimal(frequency, 18, &gate.frequency_hz), 0);
    ck_assert_int_eq(timebase_parse_decimal(derivative, 18, &gate.frequency_derivative), 0);
    ck_assert_int_eq(timebase_parse_decimal(phase, 18, &gate.phase_turns), 0);
    return gate;
}

/* floor(1024 turns) modulo 1024, in exact fractions; cases at most 0.4 from the middle of a bin, which is more than
 * what the documented error makes. */
static const struct {
    const char *rate_hz, *frequency, *derivative, *phase;
    int64_t epoch, timestamp;
    int bin;
} golden[] = {
    {"1712e6", "29.946923", "0", "0", INT64_C(0), INT64_C(561021090885), 597},
    {"1712e6", "29.946923", "0", "0", INT64_C(0), INT64_C(789164966041), 367},
    {"1712e6", "29.946923", "0", "0", INT64_C(0), INT64_C(549512532852), 278},
    {"1712e6", "641.928222127456", "-4.331e-14", "0.123456789012345678", INT64_C(100000000000000000),
     INT64_C(14945681523552853), 216},
    {"1712e6", "641.928222127456", "-4.331e-14", "0.123456789012345678", INT64_C(100000000000000000),
     INT64_C(45209319253305915), 976},
    {"1712e6", "641.928222127456", "-4.331e-14", "0.123456789012345678", INT64_C(100000000000000000),
     INT64_C(109745997543859624), 496},
    {"1712e6", "641.928222127456", "-4.331e-14", "0.123456789012345678", INT64_C(100000000000000000),
     INT64_C(29392121399339368), 79},
    {"1712e6", "29.946923123456789", "-3.77535e-10", "-0.25", INT64_C(0), INT64_C(51122887304859461), 750},
    {"1712e6", "29.946923123456789", "-3.77535e-10", "-0.25", INT64_C(0), INT64_C(50819996356519965), 408},
    {"1712e6", "29.946923123456789", "-3.77535e-10", "-0.25", INT64_C(0), INT64_C(53906689008245793), 19},
    {"1750123456.987654321", "0.123456789012345678", "0", "1", INT64_C(-3), INT64_C(1025451409740830021), 326},
    {"1750123456.987654321", "0.123456789012345678", "0", "1", INT64_C(-3), INT64_C(659392399504692055), 454},
    {"1750123456.987654321", "0.123456789012345678", "0", "1", INT64_C(-3), INT64_C(1089321386726481483), 933},
    {"1750123456.987654321", "0.123456789012345678", "0", "1", INT64_C(-3), INT64_C(582586388727488938), 265},
    {"1e6", "999999.999999999999", "0", "0", INT64_C(7), INT64_C(3070720845685977911), 951},
    {"1e6", "999999.999999999999", "0", "0", INT64_C(7), INT64_C(3073617152114564480), 948},
    {"1e6", "999999.999999999999", "0", "0", INT64_C(7), INT64_C(3752304630433834845), 253},
    {"1e6", "3.25", "999.5", "0", INT64_C(0), INT64_C(-223503750158), 1005},
    {"1e6", "3.25", "999.5", "0", INT64_C(0), INT64_C(-299768189397), 642},
    {"1e6", "3.25", "999.5", "0", INT64_C(0), INT64_C(587954143538), 659},
    {"100000000000", "11.1946499395", "-1.5666e-11", "0.5", INT64_C(2305843009213693952), INT64_C(2167945010920386032),
     432},
    {"100000000000", "11.1946499395", "-1.5666e-11", "0.5", INT64_C(2305843009213693952), INT64_C(2281316539891642762),
     661},
};

TEST(golden_bins, .end = ARRAY_LEN(golden))
{
    struct xbgpu_config config = make_config(golden[_i].rate_hz);
    struct xbgpu_config_gate c = make_phase(golden[_i].frequency, golden[_i].derivative, golden[_i].phase, 1024);
    struct xbgpu_gate gate;

    c.epoch_samples = golden[_i].epoch;
    ck_assert_int_eq(xbgpu_gate_init(&gate, &c, &config), 0);
    for (int bin = 0; bin < 1024; bin++) {
        gate.taken[bin] = 1;
        ck_assert_int_eq(xbgpu_gate_takes(&gate, 0, golden[_i].timestamp), bin == golden[_i].bin);
        gate.taken[bin] = 0;
    }
    xbgpu_gate_fini(&gate);
}

/* Fractions of a turn that are exact in binary, and so must be their bins' edges. */
TEST(edges)
{
    struct xbgpu_config config = make_config("1024");
    struct xbgpu_config_gate c = make_phase("1", "0", "0", 16);
    int64_t bins[] = {0, 3, 15};
    struct xbgpu_gate gate;

    c.bins = (struct config_int_list){ARRAY_LEN(bins), bins};
    c.epoch_samples = -77;
    ck_assert_int_eq(xbgpu_gate_init(&gate, &c, &config), 0);
    for (int64_t dt = -5000; dt < 5000; dt++) {
        int64_t bin = (dt % 1024 + 1024) % 1024 / 64;
        ck_assert_int_eq(xbgpu_gate_takes(&gate, 0, dt - 77), bin == 0 || bin == 3 || bin == 15);
    }
    xbgpu_gate_fini(&gate);
}

TEST(switch_is_exact)
{
    struct xbgpu_config config = make_config("1712e6");
    struct xbgpu_gate gate;

    for (int trial = 0; trial < 3000; trial++) {
        struct xbgpu_config_gate c = {.kind = XBGPU_GATE_SWITCH};
        c.period_samples = 2 + (int64_t)(random_u64() >> (2 + random_below(61)));
        c.on_from_samples = (int64_t)(random_u64() % (uint64_t)c.period_samples);
        do
            c.on_until_samples = (int64_t)(random_u64() % (uint64_t)(c.period_samples + 1));
        while (c.on_until_samples == c.on_from_samples);
        c.epoch_samples = (int64_t)(random_u64() >> 3) - (INT64_C(1) << 60);
        ck_assert_int_eq(xbgpu_gate_init(&gate, &c, &config), 0);
        int64_t t = (int64_t)(random_u64() >> 3);
        int64_t at = (t - c.epoch_samples) % c.period_samples;
        at += at < 0 ? c.period_samples : 0;
        bool inside = at >= c.on_from_samples && at < c.on_until_samples;
        bool beyond = at >= c.on_from_samples || at < c.on_until_samples;
        ck_assert_int_eq(xbgpu_gate_takes(&gate, 0, t), c.on_from_samples < c.on_until_samples ? inside : beyond);
        xbgpu_gate_fini(&gate);
    }
}

/* 2.5 s after the sync time, by the clock, is so many samples. */
TEST(epoch_by_clock)
{
    struct xbgpu_config config = make_config("1712e6");
    struct xbgpu_config_gate c = {.kind = XBGPU_GATE_SWITCH, .period_samples = 1000, .on_until_samples = 1};
    struct xbgpu_gate gate;

    ck_assert_int_eq(timebase_parse_decimal("1700000002.75", 9, &c.epoch_time_s), 0);
    ck_assert_int_eq(xbgpu_gate_init(&gate, &c, &config), 0);
    ck_assert_int_eq(gate.epoch_samples, INT64_C(4280000000));
    xbgpu_gate_fini(&gate);
}

/* 1 pc/cm^3 between 1000 MHz and infinity is 4.149377593 ms (1 / 2.41e-4 = 4149.377593), and a quarter of that at 2000. */
TEST(dispersion)
{
    struct xbgpu_config config = make_config("1712e6");
    struct xbgpu_config_gate c = make_phase("1", "0", "0", 2);
    struct xbgpu_gate gate;

    c.dispersion_measure = 1;
    c.centre_frequency_hz = 1000e6 + 24 * 1712e6 / 128; /* the engine's channel 0 is 8, and 32 is the centre */
    ck_assert_double_eq_tol(xbgpu_gate_channel_hz(&c, &config, 0), 1000e6, 1e-6);
    ck_assert_double_eq_tol(xbgpu_gate_channel_hz(&c, &config, 3), 1000e6 + 3 * 13.375e6, 1e-6);
    ck_assert_int_eq(xbgpu_gate_init(&gate, &c, &config), 0);
    ck_assert_uint_eq(gate.n_rows, 4);
    ck_assert_int_eq(gate.delays_samples[0], 7103734); /* 4.149377593e-3 * 1712e6 = 7103734.4 */
    xbgpu_gate_fini(&gate);
    c.reference_frequency_hz = 2000e6;
    ck_assert_int_eq(xbgpu_gate_init(&gate, &c, &config), 0);
    ck_assert_int_eq(gate.delays_samples[0], 5327801); /* three quarters of that: 5327800.8 */
    xbgpu_gate_fini(&gate);
}

static void random_gate(struct xbgpu_config_gate *c, int64_t *bins, double rate_hz)
{
    /* Turns per spectrum: from next to none, beyond one, to many. */
    static const double turns[] = {1e-7, 1e-4, 0.01, 0.3, 0.499, 0.51, 0.999999, 1.0000001, 7.3};
    double frequency = turns[random_below(ARRAY_LEN(turns))] * random_between(0.9, 1.1) * rate_hz / 128;
    char text[4][40];

    if (random_below(3) == 0) {
        *c = (struct xbgpu_config_gate){.kind = XBGPU_GATE_SWITCH,
                                        .period_samples = 2 + (int64_t)random_below(random_below(2) ? 300 : 100000)};
        c->on_until_samples = 1 + (int64_t)random_below((size_t)c->period_samples);
        c->on_from_samples = (int64_t)random_below((size_t)c->on_until_samples);
        return;
    }
    snprintf(text[0], sizeof(text[0]), "%.9f", frequency);
    /* By up to a quarter of a turn per spectrum in a heap of 48. */
    snprintf(text[1], sizeof(text[1]), "%.9f",
             random_below(2) ? 0 : random_between(-1, 1) * 0.25 / 48 * (rate_hz / 128) * (rate_hz / 128));
    if (random_below(8) == 0) { /* back, by as good as nothing */
        snprintf(text[0], sizeof(text[0]), "0");
        snprintf(text[1], sizeof(text[1]), "-0.00000000000000000%d", (int)random_below(10));
    }
    snprintf(text[2], sizeof(text[2]), "%.15f", random_between(0, 1));
    *c = make_phase(text[0], text[1], text[2], 1 + (int64_t)random_below(random_below(2) ? 3 : 1024));
    size_t n = 1 + random_below((size_t)c->n_bins);
    for (size_t i = 0; i < n; i++)
        bins[i] = (int64_t)random_below((size_t)c->n_bins);
    c->bins = (struct config_int_list){n, bins};
}

/* A timestamp before, in, behind or far from batches that begin at 'start'; now and then that of a spectrum. */
static int64_t random_change(int64_t start, size_t n_batches)
{
    static const int64_t far[] = {INT64_MIN / 2, INT64_MAX};

    if (random_below(10) == 0)
        return far[random_below(2)];
    int64_t change = start + (int64_t)random_below((n_batches + 2) * 48 * 128) - 48 * 128;
    return random_below(2) ? change : start + (change - start) / 128 * 128;
}

static int by_time(const void *a, const void *b)
{
    int64_t x = ((const struct xbgpu_gate_change *)a)->from_samples,
            y = ((const struct xbgpu_gate_change *)b)->from_samples;

    return (x > y) - (x < y);
}

/* A list has what one decision after the other takes, however many it jumped over; and where gates change, of each
 * spectrum what the one takes whose time it is. */
TEST(lists)
{
    struct xbgpu_config config = make_config("1e4");
    enum { MAX_GATES = 4 };
    static int64_t bins[MAX_GATES][1024];
    static struct xbgpu_gate gates[MAX_GATES];
    static uint32_t spectra[4 * 48 * 5 + 7], ends[4 * 6];
    uint64_t n_jumped = 0;

    for (int trial = 0; trial < 3000; trial++) {
        struct xbgpu_gate_change changes[MAX_GATES];
        size_t n_batches = 1 + random_below(5), pitch = 48 * 5 + random_below(2), most = 0;
        size_t n_gates = 1 + random_below(MAX_GATES);
        int64_t start = (int64_t)random_below(1u << 20) - (1 << 19);
        bool dispersed = random_below(2);
        for (size_t i = 0; i < n_gates; i++) {
            struct xbgpu_config_gate c;
            random_gate(&c, bins[i], 1e4);
            c.dispersion_measure = dispersed ? 0.001 : 0;
            c.centre_frequency_hz = dispersed ? 10e6 : 0;
            ck_assert_int_eq(xbgpu_gate_init(&gates[i], &c, &config), 0);
            if (gates[i].n_rows != gates[0].n_rows) { /* a switch among gates with dispersion */
                xbgpu_gate_fini(&gates[i]);
                n_gates = i;
                break;
            }
            changes[i].from_samples = random_change(start, n_batches);
        }
        qsort(changes, n_gates, sizeof(*changes), by_time);
        for (size_t i = 0; i < n_gates; i++)
            changes[i].gate = &gates[i];
        memset(spectra, 0xa5, sizeof(spectra));
        size_t said = xbgpu_gate_list(changes, n_gates, start, 128, 48, n_batches, pitch, spectra, ends);
        for (size_t row = 0; row < gates[0].n_rows; row++) {
            size_t n = 0;
            for (size_t t = 0; t < n_batches * 48; t++) {
                int64_t timestamp = start + (int64_t)t * 128;
                const struct xbgpu_gate *decides = &gates[0];
                for (size_t i = 1; i < n_gates; i++)
                    decides = timestamp >= changes[i].from_samples ? &gates[i] : decides;
                if (t % 48 == 0)
                    ck_assert_uint_eq(ends[row * (n_batches + 1) + t / 48], n);
                if (xbgpu_gate_takes(decides, row, timestamp))
                    ck_assert_uint_eq(spectra[row * pitch + n++], t);
                n_jumped += xbgpu_gate_run(&gates[0], row, timestamp, 128, 48) - 1;
            }
            ck_assert_uint_eq(ends[row * (n_batches + 1) + n_batches], n);
            most = n > most ? n : most;
        }
        ck_assert_uint_eq(said, most);
        for (size_t i = 0; i < n_gates; i++)
            xbgpu_gate_fini(&gates[i]);
    }
    ck_assert_uint_gt(n_jumped, 1000000); /* else this has not tried jumping */
}

SUITE(.timeout_s = 60, .start = random_start);
