/* check_gnss_codes - codes against the other columns of the interface documents' tables, which the generators do not
 * use; memory codes of random chips from files; levels of sub-carriers against their definition in double precision. */
#include "kernels/gnss/gnss_codes.h"

#include "common/base/units.h"
#include "tests/unit/test_file.h"
#include "tests/unit/test_main.h"
#include "tests/unit/test_random.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>

#define POISON  0x5a
#define GPS_PRN 32

static unsigned bit_of(int8_t chip)
{
    ck_assert(chip == 1 || chip == -1);
    return chip < 0;
}

/* A register's bits as text has them: element 0 is stage 1. */
static void shift(unsigned *stages, size_t n, const unsigned *taps, size_t n_taps)
{
    unsigned sum = 0;

    for (size_t i = 0; i < n_taps; i++)
        sum += stages[taps[i] - 1];
    memmove(stages + 1, stages, (n - 1) * sizeof(*stages));
    stages[0] = sum % 2;
}

/* ---- GPS L1 C/A -------------------------------------------------------------------------------------------------- */

/* IS-GPS-200, table 3-Ia: the delay of G2 in chips, and the first 10 chips: an octal number whose first digit is a bit. */
static const struct {
    unsigned g2_delay, first_chips;
} published_l1ca[GPS_PRN] = {
    {5, 01440},   {6, 01620},   {7, 01710},   {8, 01744},   {17, 01133},  {18, 01455},  {139, 01131}, {140, 01454},
    {141, 01626}, {251, 01504}, {252, 01642}, {254, 01750}, {255, 01764}, {256, 01772}, {257, 01775}, {258, 01776},
    {469, 01156}, {470, 01467}, {471, 01633}, {472, 01715}, {473, 01746}, {474, 01763}, {509, 01063}, {512, 01706},
    {513, 01743}, {514, 01761}, {515, 01770}, {516, 01774}, {859, 01127}, {860, 01453}, {861, 01625}, {862, 01712},
};

static void register_10(const unsigned *taps, size_t n_taps, unsigned *out)
{
    unsigned stages[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

    for (size_t i = 0; i < 1023; i++) {
        out[i] = stages[9];
        shift(stages, 10, taps, n_taps);
    }
}

TEST(l1ca, .first = 1, .end = GPS_PRN + 1)
{
    static const unsigned g1_taps[] = {3, 10}, g2_taps[] = {2, 3, 6, 8, 9, 10};
    unsigned g1[1023], g2[1023], first = 0;
    int8_t chips[1024];

    memset(chips, POISON, sizeof(chips));
    gnss_code_generate(GNSS_L1CA, (unsigned)_i, chips);
    ck_assert_int_eq(chips[1023], POISON);
    for (size_t i = 0; i < 10; i++)
        first = 2 * first + bit_of(chips[i]);
    ck_assert_uint_eq(first, published_l1ca[_i - 1].first_chips);
    register_10(g1_taps, 2, g1);
    register_10(g2_taps, 6, g2);
    for (size_t i = 0; i < 1023; i++)
        ck_assert_uint_eq(bit_of(chips[i]), g1[i] ^ g2[(i + 1023 - published_l1ca[_i - 1].g2_delay) % 1023]);
}

/* Gold codes: any two correlate to -65, -1 or 63 where not one with itself. */
TEST(l1ca_correlations)
{
    static int8_t chips[GPS_PRN][1023];

    for (unsigned prn = 1; prn <= GPS_PRN; prn++)
        gnss_code_generate(GNSS_L1CA, prn, chips[prn - 1]);
    for (size_t a = 0; a < GPS_PRN; a++)
        for (size_t b = a; b < GPS_PRN; b++) {
            size_t lag = a == b ? 1 + random_below(1022) : random_below(1023);
            int sum = 0;
            for (size_t i = 0; i < 1023; i++)
                sum += chips[a][i] * chips[b][(i + lag) % 1023];
            ck_assert_msg(sum == -65 || sum == -1 || sum == 63, "PRN %zu and %zu: %d at %zu", a + 1, b + 1, sum, lag);
        }
}

/* ---- GPS L5 ------------------------------------------------------------------------------------------------------ */

/* IS-GPS-705, table 3-Ia: initial states of XB for I5 and Q5, stage 1 first. */
static const char *const published_xb[GPS_PRN][2] = {
    {"0101011100100", "1001011001100"}, {"1100000110101", "0100011110110"}, {"0100000001000", "1111000100011"},
    {"1011000100110", "0011101101010"}, {"1110111010111", "0011110110010"}, {"0110011111010", "0101010101001"},
    {"1010010011111", "1111110000001"}, {"1011110100100", "0110101101000"}, {"1111100101011", "1011101000011"},
    {"0111111011110", "0010010000110"}, {"0000100111010", "0001000000101"}, {"1110011111001", "0101011000101"},
    {"0001110011100", "0100110100101"}, {"0100000100111", "1010000111111"}, {"0110101011010", "1011110001111"},
    {"0001111001001", "1101001011111"}, {"0100110001111", "1110011001000"}, {"1111000011110", "1011011100100"},
    {"1100100011111", "0011001011011"}, {"0110101101101", "1100001110001"}, {"0010000001000", "0110110010000"},
    {"1110111101111", "0010110001110"}, {"1000011111110", "1000101111101"}, {"1100010110100", "0110111110011"},
    {"1101001101101", "0100010011011"}, {"1010110010110", "0101010111100"}, {"0101011011110", "1000011111010"},
    {"0111101010110", "1111101000010"}, {"0101111100001", "0101000100100"}, {"1000010110111", "1000001111001"},
    {"0001010011110", "0101111100101"}, {"0000010111001", "1001000101010"},
};

/* XA comes to 1111111111101 after 8189 chips, and begins again with ones behind that chip; XB goes on as it is. */
TEST(l5, .end = 2 * GPS_PRN)
{
    static const unsigned xa_taps[] = {9, 10, 12, 13}, xb_taps[] = {1, 3, 4, 6, 7, 8, 12, 13};
    static const unsigned ones[13] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                          last[13] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1};
    unsigned xa[13], xb[13], n_resets = 0;
    int8_t chips[10231];

    for (size_t i = 0; i < 13; i++)
        xb[i] = published_xb[_i / 2][_i % 2][i] == '1';
    memcpy(xa, ones, sizeof(xa));
    memset(chips, POISON, sizeof(chips));
    gnss_code_generate(_i % 2 ? GNSS_L5Q : GNSS_L5I, (unsigned)_i / 2 + 1, chips);
    ck_assert_int_eq(chips[10230], POISON);
    for (size_t i = 0; i < 10230; i++) {
        ck_assert_uint_eq(bit_of(chips[i]), xa[12] ^ xb[12]);
        if (memcmp(xa, last, sizeof(xa)) == 0) {
            ck_assert_uint_eq(i, 8189);
            memcpy(xa, ones, sizeof(xa));
            n_resets++;
        } else {
            shift(xa, 13, xa_taps, 4);
        }
        shift(xb, 13, xb_taps, 8);
    }
    ck_assert_uint_eq(n_resets, 1);
}

/* ---- Facts ------------------------------------------------------------------------------------------------------- */

TEST(signals)
{
    static const struct {
        const char *name;
        double carrier_hz, period_s;
        size_t n_secondary;
    } expected[GNSS_N_SIGNALS] = {[GNSS_L1CA] = {"L1CA", 1575420000, 1e-3, 1},
                                  [GNSS_L5I] = {"L5I", 1176450000, 1e-3, 10},
                                  [GNSS_L5Q] = {"L5Q", 1176450000, 1e-3, 20},
                                  [GNSS_E1B] = {"E1B", 1575420000, 4e-3, 1},
                                  [GNSS_E1C] = {"E1C", 1575420000, 4e-3, 25}};

    for (int signal = 0; signal < GNSS_N_SIGNALS; signal++) {
        const struct gnss_signal_facts *facts = gnss_signal_facts((enum gnss_signal)signal);
        ck_assert_str_eq(facts->name, expected[signal].name);
        ck_assert_double_eq(facts->carrier_hz, expected[signal].carrier_hz);
        ck_assert_double_eq_tol(facts->n_chips / facts->chip_rate_hz, expected[signal].period_s, 1e-12);
        ck_assert_uint_eq(strlen(facts->secondary), expected[signal].n_secondary);
        ck_assert_uint_eq(strspn(facts->secondary, "01"), expected[signal].n_secondary);
        ck_assert_uint_le(facts->n_chips, GNSS_MAX_CHIPS);
        ck_assert_uint_le(facts->n_chips * gnss_subchips(facts->subcarrier), GNSS_MAX_SUBCHIPS);
    }
}

/* IS-GPS-705, Neuman-Hofman codes; Galileo OS SIS ICD, CS25_1: as hexadecimal digits, whose last bits may be beyond
 * the code's end. */
TEST(secondary_codes)
{
    static const struct {
        enum gnss_signal signal;
        const char *digits;
    } published[] = {{GNSS_L5I, "0D4"}, {GNSS_L5Q, "04D4E"}, {GNSS_E1C, "380AD90"}};

    for (size_t c = 0; c < ARRAY_LEN(published); c++) {
        const char *code = gnss_signal_facts(published[c].signal)->secondary;
        for (size_t i = 0; i < strlen(code); i++) {
            char digit[2] = {published[c].digits[i / 4], '\0'};
            ck_assert_uint_eq((unsigned)(code[i] - '0'), strtoul(digit, NULL, 16) >> (3 - i % 4) & 1);
        }
    }
}

/* ---- Memory codes ------------------------------------------------------------------------------------------------ */

#define E1_DIGITS 1023

static int8_t chips[4093];
static char why[200];

static int read_code(const char *text, enum gnss_signal signal, unsigned prn)
{
    char path[] = "/tmp/cbf-test-XXXXXX";
    int err;

    memset(chips, POISON, sizeof(chips));
    *why = '\0';
    write_file(path, text);
    err = gnss_code_read(path, signal, prn, chips, why, sizeof(why));
    unlink(path);
    ck_assert_int_eq(chips[4092], POISON);
    ck_assert_msg(!err || chips[0] == POISON, "chips were touched");
    ck_assert(!err || strncmp(why, path, strlen(path)) == 0);
    return err;
}

static void random_digits(char *digits)
{
    for (size_t i = 0; i < E1_DIGITS; i++) {
        digits[i] = "0123456789ABCDEF"[random_below(16)];
        digits[i] = (char)(random_below(3) ? digits[i] : tolower(digits[i]));
    }
    digits[E1_DIGITS] = '\0';
}

/* Writes a code at 'to' as the annex has it, in lines of any length, and returns where it ends. */
static char *write_code(char *to, const char *heading, const char *digits)
{
    to += sprintf(to, "%s\n", heading);
    for (size_t at = 0; at < strlen(digits);) {
        size_t n = 1 + random_below(random_below(2) ? 200 : 1100);
        to += sprintf(to, "%.*s%s\n", (int)n, digits + at, random_below(4) ? "" : " # as it is");
        at += n < strlen(digits) - at ? n : strlen(digits) - at;
    }
    return to + sprintf(to, "-------------------------------\n%s", random_below(2) ? "\n" : "");
}

static void check_digits(const char *digits)
{
    for (size_t i = 0; i < 4092; i++) {
        char digit[2] = {digits[i / 4], '\0'};
        ck_assert_uint_eq(bit_of(chips[i]), strtoul(digit, NULL, 16) >> (3 - i % 4) & 1);
    }
}

TEST(memory_codes)
{
    static char digits[6][E1_DIGITS + 1], text[6 * 40000];
    static const char *const headings[6] = {"E1B Code No 1", "E1B Code No 11", "E1-B Code No 2",
                                            "E1C Code No 1", "E5bI Code No 1", "  E1-C  Code No 50"};
    char *end = text;

    for (size_t i = 0; i < 6; i++) {
        random_digits(digits[i]);
        end = write_code(end, headings[i], digits[i]);
    }
    static const struct {
        enum gnss_signal signal;
        unsigned prn;
        size_t code;
    } wanted[] = {{GNSS_E1B, 1, 0}, {GNSS_E1B, 11, 1}, {GNSS_E1B, 2, 2}, {GNSS_E1C, 1, 3}, {GNSS_E1C, 50, 5}};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        ck_assert_msg(read_code(text, wanted[i].signal, wanted[i].prn) == 0, "%s", why);
        check_digits(digits[wanted[i].code]);
    }
    ck_assert_int_eq(read_code(text, GNSS_E1C, 2), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why, "there is no E1C Code No 2"));
}

TEST(memory_code_refused)
{
    static char digits[E1_DIGITS + 1], text[80000];
    char *end;

    random_digits(digits);
    digits[500] = 'G';
    write_code(text, "E1B Code No 3", digits);
    ck_assert_int_eq(read_code(text, GNSS_E1B, 3), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "hexadecimal digits were expected, not G"));
    digits[500] = '7';
    end = write_code(text, "E1B Code No 3", digits);
    strcpy(end, "E1B Code No 3\n");
    ck_assert_int_eq(read_code(text, GNSS_E1B, 3), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "twice"));
    strcpy(end, "E1C Code No 3x\n");
    ck_assert_int_eq(read_code(text, GNSS_E1B, 3), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "a code number was expected, not 3x"));
    strcpy(end, "0\n");
    ck_assert_int_eq(read_code(text, GNSS_E1B, 3), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "more chips"));
    digits[E1_DIGITS - 1] = '\0';
    write_code(text, "E1B Code No 3", digits);
    ck_assert_int_eq(read_code(text, GNSS_E1B, 3), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "E1B Code No 3 has 4088 chips, not 4092"));
    ck_assert_int_eq(read_code("E1B Code No 3\n0 1 2 3 4 5 6 7 8 9 A B C D E F\n", GNSS_E1B, 3), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "too many groups"));
    ck_assert_int_eq(gnss_code_read("/nowhere/codes", GNSS_E1B, 3, chips, why, sizeof(why)), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why, "/nowhere/codes"));
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

static double square_wave(double periods)
{
    return periods - floor(periods) < 0.5 ? 1 : -1;
}

/* Galileo OS SIS ICD, the E1 signal: sub-carriers of 1.023 and 6.138 MHz; 'sign' is that of the fast one. */
static double subcarrier(enum gnss_subcarrier kind, double chip)
{
    double sign = kind == GNSS_CBOC_PLUS ? 1 : -1;

    if (kind == GNSS_PLAIN)
        return 1;
    if (kind == GNSS_BOC)
        return square_wave(chip);
    return sqrt(10.0 / 11) * square_wave(chip) + sign * sqrt(1.0 / 11) * square_wave(6 * chip);
}

TEST(tables, .end = 4)
{
    static const uint32_t n_subchips[4] = {1, 2, 12, 12};
    enum gnss_subcarrier kind = (enum gnss_subcarrier)_i;
    uint32_t n = n_subchips[_i], n_chips = 1 + (uint32_t)random_below(4092);
    static int8_t code[4092], table[GNSS_MAX_SUBCHIPS + 1];
    double product = 0, power = 0, true_power = 0;

    ck_assert_uint_eq(gnss_subchips(kind), n);
    for (size_t i = 0; i < n_chips; i++)
        code[i] = random_below(2) ? 1 : -1;
    memset(table, POISON, sizeof(table));
    gnss_code_table(code, n_chips, kind, table);
    ck_assert_int_eq(table[n_chips * n], POISON);
    for (size_t i = 0; i < n_chips * n; i++) {
        double wanted = code[i / n] * subcarrier(kind, ((double)i + 0.5) / n);
        ck_assert(abs(table[i]) <= GNSS_MAX_LEVEL && table[i] * wanted > 0);
        product += table[i] * wanted;
        power += table[i] * table[i];
        true_power += wanted * wanted;
    }
    ck_assert_double_eq_tol(true_power / (n_chips * n), 1, 1e-9);
    double loss_db = -10 * log10(product * product / (power * true_power));
    ck_assert_msg(loss_db < 0.0011, "loss of %g dB", loss_db);
}

SUITE(.timeout_s = 20, .start = random_start);
