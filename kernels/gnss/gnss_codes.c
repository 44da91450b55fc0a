/* gnss_codes.c - makes the tables for gnss_correlate: generators of GPS codes, files of Galileo codes. */
#include "kernels/gnss/gnss_codes.h"

#include "common/base/units.h"
#include "common/config/table_file.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPS_PRNS     32
#define GALILEO_PRNS 50

static const struct gnss_signal_facts all_facts[GNSS_N_SIGNALS] = {
    [GNSS_L1CA] = {"L1CA", 1575.42e6, 1.023e6, 1023, GPS_PRNS, false, "0", GNSS_PLAIN, 20},
    [GNSS_L5I] = {"L5I", 1176.45e6, 10.23e6, 10230, GPS_PRNS, false, "0000110101", GNSS_PLAIN, 10},
    [GNSS_L5Q] = {"L5Q", 1176.45e6, 10.23e6, 10230, GPS_PRNS, false, "00000100110101001110", GNSS_PLAIN, 0},
    [GNSS_E1B] = {"E1B", 1575.42e6, 1.023e6, 4092, GALILEO_PRNS, true, "0", GNSS_CBOC_PLUS, 1},
    [GNSS_E1C] = {"E1C", 1575.42e6, 1.023e6, 4092, GALILEO_PRNS, true, "0011100000001010110110010", GNSS_CBOC_MINUS, 0},
};

const struct gnss_signal_facts *gnss_signal_facts(enum gnss_signal signal)
{
    assert(signal < GNSS_N_SIGNALS);
    return &all_facts[signal];
}

/* ---- Generators -------------------------------------------------------------------------------------------------- */

/* A shift register: stage k is bit k - 1.  Bits move to higher stages.  The sum modulo 2 of the stages in 'feedback'
 * enters stage 1. */
#define STAGE(k) (1u << ((k)-1))

static unsigned parity(uint32_t bits)
{
    return (unsigned)__builtin_parity(bits);
}

static uint32_t shift(uint32_t stages, uint32_t feedback)
{
    return stages << 1 | parity(stages & feedback);
}

static int8_t chip_of(unsigned bit)
{
    return bit ? -1 : 1;
}

/* IS-GPS-200, table 3-Ia: two stages of register G2 for each satellite.  The sum of both stages is the satellite's
 * G2i. */
static const uint8_t g2_stages[GPS_PRNS][2] = {
    {2, 6}, {3, 7}, {4, 8}, {5, 9}, {1, 9},  {2, 10}, {1, 8}, {2, 9}, {3, 10}, {2, 3}, {3, 4},
    {5, 6}, {6, 7}, {7, 8}, {8, 9}, {9, 10}, {1, 4},  {2, 5}, {3, 6}, {4, 7},  {5, 8}, {6, 9},
    {1, 3}, {4, 6}, {5, 7}, {6, 8}, {7, 9},  {8, 10}, {1, 6}, {2, 7}, {3, 8},  {4, 9},
};

/* Generates an L1 C/A code.  IS-GPS-200, 3.3.2.3: G1 = 1 + x^3 + x^10, G2 = 1 + x^2 + x^3 + x^6 + x^8 + x^9 + x^10;
 * all stages begin with 1. */
static void generate_l1ca(unsigned prn, int8_t *chips)
{
    const uint32_t g1_feedback = STAGE(3) | STAGE(10);
    const uint32_t g2_feedback = STAGE(2) | STAGE(3) | STAGE(6) | STAGE(8) | STAGE(9) | STAGE(10);
    const uint32_t selected = STAGE(g2_stages[prn - 1][0]) | STAGE(g2_stages[prn - 1][1]);
    uint32_t g1 = ~0u, g2 = ~0u;

    for (size_t i = 0; i < all_facts[GNSS_L1CA].n_chips; i++) {
        chips[i] = chip_of(parity(g1 & STAGE(10)) ^ parity(g2 & selected));
        g1 = shift(g1, g1_feedback);
        g2 = shift(g2, g2_feedback);
    }
}

/* IS-GPS-705, table 3-Ia: number of chips by which XB is advanced from the state of all ones, for I5 and Q5. */
static const uint16_t xb_advance[GPS_PRNS][2] = {
    {266, 1701},  {365, 323},   {804, 5292},  {1138, 2020}, {1509, 5429}, {1559, 7136}, {1756, 1041}, {2084, 5947},
    {2170, 4315}, {2303, 148},  {2527, 535},  {2687, 1939}, {2930, 5206}, {3471, 5910}, {3940, 3595}, {4132, 5135},
    {4332, 6082}, {4924, 6990}, {5343, 3546}, {5443, 1523}, {5641, 4548}, {5816, 4484}, {5898, 1893}, {5918, 3961},
    {5955, 7106}, {6243, 5299}, {6345, 4660}, {6477, 276},  {6518, 4389}, {6875, 3783}, {7168, 1591}, {7187, 1601},
};

#define XA_CHIPS 8190 /* XA has 8191 states, but restarts one chip early */

/* Generates an L5 code.  IS-GPS-705, 3.3.2.2: XA = 1 + x^9 + x^10 + x^12 + x^13, XB = 1 + x + x^3 + x^4 + x^6 + x^7 +
 * x^8 + x^12 + x^13. */
static void generate_l5(unsigned prn, bool is_q, int8_t *chips)
{
    const uint32_t xa_feedback = STAGE(9) | STAGE(10) | STAGE(12) | STAGE(13);
    const uint32_t xb_feedback =
        STAGE(1) | STAGE(3) | STAGE(4) | STAGE(6) | STAGE(7) | STAGE(8) | STAGE(12) | STAGE(13);
    uint32_t xa = ~0u, xb = ~0u;

    for (size_t i = 0; i < xb_advance[prn - 1][is_q]; i++)
        xb = shift(xb, xb_feedback);
    for (size_t i = 0; i < all_facts[GNSS_L5I].n_chips; i++) {
        xa = i % XA_CHIPS == 0 ? ~0u : xa;
        chips[i] = chip_of(parity(xa & STAGE(13)) ^ parity(xb & STAGE(13)));
        xa = shift(xa, xa_feedback);
        xb = shift(xb, xb_feedback);
    }
}

void gnss_code_generate(enum gnss_signal signal, unsigned prn, int8_t *chips)
{
    assert(prn >= 1 && prn <= gnss_signal_facts(signal)->max_prn && !all_facts[signal].is_in_memory);
    if (signal == GNSS_L1CA)
        generate_l1ca(prn, chips);
    else
        generate_l5(prn, signal == GNSS_L5Q, chips);
}

/* ---- Memory codes ------------------------------------------------------------------------------------------------ */

struct reading {
    const struct gnss_signal_facts *facts;
    unsigned prn;
    int8_t *chips;
    size_t n;       /* number of chips read so far */
    bool is_wanted; /* true: the code that is being read is the wanted code */
    bool is_found;
};

/* Returns true if 'field' is the signal's name, with or without a hyphen: E1B or E1-B. */
static bool is_name(const char *field, const char *name)
{
    size_t last = strlen(name) - 1;

    return strncmp(field, name, last) == 0 && strcmp(field + last + (field[last] == '-'), name + last) == 0;
}

static bool is_heading(const struct table_row *row)
{
    return row->n == 4 && strcmp(row->fields[1], "Code") == 0 && strcmp(row->fields[2], "No") == 0;
}

static int begin_code(struct reading *r, const struct table_row *row)
{
    char *end;
    unsigned long prn = strtoul(row->fields[3], &end, 10);

    if (end == row->fields[3] || *end)
        return table_file_refuse(row, "a code number was expected", row->fields[3]);
    r->is_wanted = prn == r->prn && is_name(row->fields[0], r->facts->name);
    if (r->is_wanted && r->is_found)
        return table_file_refuse(row, "the file has this code twice", NULL);
    r->is_found |= r->is_wanted;
    return 0;
}

static int add_digits(struct reading *r, const struct table_row *row, const char *digits)
{
    static const char hexadecimal[] = "0123456789ABCDEF0123456789abcdef";

    for (; *digits; digits++) {
        const char *at = strchr(hexadecimal, *digits);
        if (!at)
            return table_file_refuse(row, "hexadecimal digits were expected", digits);
        if (r->n == r->facts->n_chips)
            return table_file_refuse(row, "the code has more chips than its signal", NULL);
        for (int bit = 3; bit >= 0; bit--)
            r->chips[r->n++] = chip_of((unsigned)(at - hexadecimal) % 16 >> bit & 1);
    }
    return 0;
}

static int read_row(const struct table_row *row, void *context)
{
    struct reading *r = context;
    int err = 0;

    if (is_heading(row))
        return begin_code(r, row);
    if (!r->is_wanted || strspn(row->fields[0], "-") == strlen(row->fields[0]))
        return 0;
    if (row->n == TABLE_MAX_FIELDS)
        return table_file_refuse(row, "too many groups of digits", NULL);
    for (size_t i = 0; i < row->n && !err; i++)
        err = add_digits(r, row, row->fields[i]);
    return err;
}

int gnss_code_read(const char *path, enum gnss_signal signal, unsigned prn, int8_t *chips, char *why, size_t why_bytes)
{
    int8_t read[GNSS_MAX_CHIPS];
    struct reading r = {.facts = gnss_signal_facts(signal), .prn = prn, .chips = read};
    int err;

    assert(r.facts->is_in_memory && prn >= 1 && prn <= r.facts->max_prn);
    err = table_file_read(path, read_row, &r, why, why_bytes);
    if (err)
        return err;
    if (!r.is_found) {
        snprintf(why, why_bytes, "%s: there is no %s Code No %u", path, r.facts->name, prn);
        return -ENOENT;
    }
    if (r.n < r.facts->n_chips) {
        snprintf(why, why_bytes, "%s: %s Code No %u has %zu chips, not %u", path, r.facts->name, prn, r.n,
                 r.facts->n_chips);
        return -EINVAL;
    }
    memcpy(chips, read, r.n);
    return 0;
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

#define CBOC_SUBCHIPS 12 /* number of half periods of BOC(6,1) in a chip; each sub-carrier starts with +1 */

uint32_t gnss_subchips(enum gnss_subcarrier subcarrier)
{
    return subcarrier == GNSS_PLAIN ? 1 : subcarrier == GNSS_BOC ? 2 : CBOC_SUBCHIPS;
}

/* Returns the level of a sub-chip in a chip of +1.  A level of CBOC is a sum of two terms.  The sum of two terms of
 * the same sign is about twice as large as the sum of two terms of opposite signs. */
static int8_t level_of(enum gnss_subcarrier subcarrier, uint32_t subchip)
{
    uint32_t n = gnss_subchips(subcarrier);
    int8_t slow = subchip < (n + 1) / 2 ? 1 : -1, fast = subchip % 2 ? -1 : 1;

    if (subcarrier == GNSS_PLAIN || subcarrier == GNSS_BOC)
        return slow;
    return (int8_t)((slow == fast) == (subcarrier == GNSS_CBOC_PLUS) ? 2 * slow : slow);
}

void gnss_code_table(const int8_t *chips, uint32_t n_chips, enum gnss_subcarrier subcarrier, int8_t *table)
{
    uint32_t n = gnss_subchips(subcarrier);

    for (size_t i = 0; i < n_chips; i++)
        for (uint32_t k = 0; k < n; k++)
            table[i * n + k] = (int8_t)(chips[i] * level_of(subcarrier, k));
}
