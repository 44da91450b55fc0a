/* gnss_codes - ranging codes of navigation satellites, and their tables for gnss_correlate.
 *
 * Chips are +1 and -1: +1 for a logical 0, -1 for a logical 1 (Galileo OS SIS ICD, signal levels).  GPS uses the same
 * levels.  GPS codes are generated (IS-GPS-200, IS-GPS-705).  Galileo's E1 codes are memory codes, without a generator.
 * They are read from a text file in the format of the ICD's annex.  Secondary codes have one chip for each period of
 * the primary code.  A caller that adds several periods applies the secondary code itself.
 *
 * A table has int8 levels: a code's chips multiplied by the sub-carrier.  Each chip has a whole number of sub-chips:
 *     GNSS_PLAIN       1 sub-chip   +-1
 *     GNSS_BOC         2 sub-chips  +-1: BOC(1,1), for E1 at sample rates below the rate of CBOC's sub-chips
 *     GNSS_CBOC_PLUS   12           E1B: sqrt(10/11) BOC(1,1) + sqrt(1/11) BOC(6,1)
 *     GNSS_CBOC_MINUS  12           E1C: sqrt(10/11) BOC(1,1) - sqrt(1/11) BOC(6,1)
 * CBOC has the levels +-1 and +-2.  The true levels have the ratio 1.925; a replica with the ratio 2 loses 0.001 dB.
 *
 * All functions except gnss_code_read() are pure.  main() calls them before the data path starts. */
#ifndef KERNELS_GNSS_GNSS_CODES_H
#define KERNELS_GNSS_GNSS_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gnss_signal { GNSS_L1CA, GNSS_L5I, GNSS_L5Q, GNSS_E1B, GNSS_E1C };
#define GNSS_N_SIGNALS 5

enum gnss_subcarrier { GNSS_PLAIN, GNSS_BOC, GNSS_CBOC_PLUS, GNSS_CBOC_MINUS };

#define GNSS_MAX_CHIPS    10230
#define GNSS_MAX_SUBCHIPS 49104 /* maximum number of sub-chips of a table */
#define GNSS_MAX_LEVEL    2     /* the largest magnitude in a table */

struct gnss_signal_facts {
    const char *name; /* "L1CA", "E1B" */
    double carrier_hz;
    double chip_rate_hz;
    uint32_t n_chips;
    uint32_t max_prn;      /* PRNs are 1 to max_prn */
    bool is_in_memory;     /* true: a memory code, read from a file */
    /* chips of the secondary code as characters "0" and "1"; the string "0": no secondary code */
    const char *secondary;
    enum gnss_subcarrier subcarrier;
    uint32_t symbol_periods; /* number of code periods of a data symbol; 0: a pilot signal without data */
};

const struct gnss_signal_facts *gnss_signal_facts(enum gnss_signal signal);

/* Generates the n_chips chips of a signal's code.  The signal's code must have a generator. */
void gnss_code_generate(enum gnss_signal signal, unsigned prn, int8_t *chips);

/* Reads the chips of a memory code from a file in the ICD's format: a line "E1B Code No 7" (or "E1-B Code No 7"), then
 * the code's hexadecimal digits on one or more lines.  A digit has four chips, the first chip first.  Lines of dashes
 * separate codes.  The parser ignores blanks between digits and text after '#'.  Returns 0, or negative errno with an
 * error message in 'why'.  Returns -ENOENT also if the file has no such code. */
int gnss_code_read(const char *path, enum gnss_signal signal, unsigned prn, int8_t *chips, char *why, size_t why_bytes);

/* Returns the number of sub-chips of a chip. */
uint32_t gnss_subchips(enum gnss_subcarrier subcarrier);

/* Writes the n_chips * gnss_subchips() levels of a table. */
void gnss_code_table(const int8_t *chips, uint32_t n_chips, enum gnss_subcarrier subcarrier, int8_t *table);

#endif
