/* array.h - computes geometry and times: antenna positions, baselines and their order, uvw, Julian dates, sidereal
 * time.
 *
 * All functions are pure.  They use a constant description of the array, which visrec_array_init() makes from the
 * configuration.  docs/visibilities.md explains the conventions of these functions. */
#ifndef TOOLS_VISREC_ARRAY_H
#define TOOLS_VISREC_ARRAY_H

#include "tools/visrec/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct visrec_antenna {
    const char *name; /* owned by the configuration */
    double enu_m[3];  /* vector from the reference position: east, north, up */
    double ecef_m[3]; /* the same vector along the axes of ECEF, for UVH5's antenna_positions */
};

struct visrec_baseline {
    unsigned ant_1, ant_2; /* ant_1 <= ant_2 */
};

struct visrec_array {
    const char *telescope; /* owned by the configuration */
    double latitude_rad, longitude_rad, altitude_m;
    double ut1_utc_s;
    size_t n_ants;
    struct visrec_antenna *ants;
    size_t n_baselines;
    struct visrec_baseline *baselines; /* sorted as in the file: by ant_1, then by ant_2 */
    size_t n_chan;
    double first_freq_hz; /* centre of channel 0 */
    double chan_width_hz;
    double integration_s;
    int64_t n_spectra; /* number of spectra in an accumulation */
    const char *gate;  /* specification of the gate; owned by the configuration; NULL: no gate */
    bool real;         /* visibilities are float32 */
};

/* Fills 'array' from the configuration.  Returns 0 or -ENOMEM. */
int visrec_array_init(struct visrec_array *array, const struct visrec_config *config);

void visrec_array_fini(struct visrec_array *array);

/* Returns the index of a baseline (ant_1 <= ant_2) in a heap of the X-engine. */
static inline size_t visrec_array_heap_baseline(struct visrec_baseline baseline)
{
    return (size_t)baseline.ant_2 * (baseline.ant_2 + 1) / 2 + baseline.ant_1;
}

/* Converts a vector from the axes east, north, up of a geodetic position to the axes of ECEF. */
void visrec_enu_to_ecef(double latitude_rad, double longitude_rad, const double enu[3], double ecef[3]);

/* Computes the baseline's vector from ant_1 to ant_2 in east, north, up.  This vector is the uvw of unphased data. */
void visrec_array_uvw(const struct visrec_array *array, struct visrec_baseline baseline, double uvw_m[3]);

/* Returns the Julian date (UTC) of a UNIX time.  For today's dates, a double resolves 40 us. */
double visrec_julian_date(int64_t unix_ns);

/* Returns the local apparent sidereal time in [0, 2 pi).  If UT1 - UTC is right, the error is at most 2 ms of time (30
 * mas) from 1990 to 2060. */
double visrec_sidereal_time_rad(int64_t unix_ns, double longitude_rad, double ut1_utc_s);

#endif
