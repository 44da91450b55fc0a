/* array.c - computes geometry and times of the recorded array, for the header of the file. */
#include "tools/visrec/array.h"

#include "common/base/units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define RAD_PER_DEG       (M_PI / 180)
#define NS_PER_DAY        (86400 * NS_PER_S)
#define JD_OF_UNIX_EPOCH  2440587.5
#define UNIX_DAY_OF_J2000 10957.5 /* UNIX time of J2000 (2000 January 1, 12 h) in days */

void visrec_enu_to_ecef(double latitude_rad, double longitude_rad, const double enu[3], double ecef[3])
{
    double sin_lat = sin(latitude_rad), cos_lat = cos(latitude_rad);
    double sin_lon = sin(longitude_rad), cos_lon = cos(longitude_rad);

    ecef[0] = -sin_lon * enu[0] - sin_lat * cos_lon * enu[1] + cos_lat * cos_lon * enu[2];
    ecef[1] = cos_lon * enu[0] - sin_lat * sin_lon * enu[1] + cos_lat * sin_lon * enu[2];
    ecef[2] = cos_lat * enu[1] + sin_lat * enu[2];
}

int visrec_array_init(struct visrec_array *array, const struct visrec_config *config)
{
    size_t n_ants = config->antennas.n;
    size_t n_baselines = n_ants * (n_ants + 1) / 2;
    double rate_hz = timebase_decimal_to_double(config->time.adc_sample_rate_hz);
    double centre_hz = config->stream.centre_frequency_hz > 0 ? config->stream.centre_frequency_hz : rate_hz / 4;
    struct visrec_antenna *ants = calloc(n_ants, sizeof(*ants));
    struct visrec_baseline *baselines = calloc(n_baselines, sizeof(*baselines));
    size_t b = 0;

    *array = (struct visrec_array){
        .telescope = config->telescope.name,
        .latitude_rad = config->telescope.latitude_deg * RAD_PER_DEG,
        .longitude_rad = config->telescope.longitude_deg * RAD_PER_DEG,
        .altitude_m = config->telescope.altitude_m,
        .ut1_utc_s = config->telescope.ut1_utc_s,
        .n_ants = n_ants,
        .ants = ants,
        .n_baselines = n_baselines,
        .baselines = baselines,
        .n_chan = (size_t)config->stream.n_chan,
        .chan_width_hz = rate_hz / (double)config->stream.samples_between_spectra,
        .integration_s = (double)visrec_config_integration_samples(config) / rate_hz,
        .n_spectra = visrec_config_integration_batches(config) * config->stream.spectra_per_heap,
        .gate = config->stream.gate,
        .real = config->stream.values == VISREC_FLOAT32,
    };
    if (!ants || !baselines) {
        visrec_array_fini(array);
        return -ENOMEM;
    }
    array->first_freq_hz = centre_hz - (double)(array->n_chan / 2) * array->chan_width_hz;
    for (size_t i = 0; i < n_ants; i++) {
        const struct visrec_config_antenna *antenna = visrec_config_antenna(config, i);

        ants[i].name = antenna->name;
        for (int axis = 0; axis < 3; axis++)
            ants[i].enu_m[axis] = antenna->position_m[axis];
        visrec_enu_to_ecef(array->latitude_rad, array->longitude_rad, ants[i].enu_m, ants[i].ecef_m);
    }
    for (unsigned ant_1 = 0; ant_1 < n_ants; ant_1++) {
        for (unsigned ant_2 = ant_1; ant_2 < n_ants; ant_2++)
            baselines[b++] = (struct visrec_baseline){ant_1, ant_2};
    }
    return 0;
}

void visrec_array_fini(struct visrec_array *array)
{
    free(array->ants);
    free(array->baselines);
    *array = (struct visrec_array){0};
}

void visrec_array_uvw(const struct visrec_array *array, struct visrec_baseline baseline, double uvw_m[3])
{
    for (int axis = 0; axis < 3; axis++)
        uvw_m[axis] = array->ants[baseline.ant_2].enu_m[axis] - array->ants[baseline.ant_1].enu_m[axis];
}

double visrec_julian_date(int64_t unix_ns)
{
    int64_t day = floor_div(unix_ns, NS_PER_DAY);
    double fraction = (double)(unix_ns - day * NS_PER_DAY) / (double)NS_PER_DAY;

    return (JD_OF_UNIX_EPOCH + (double)day) + fraction;
}

/* Leading terms of the nutation in longitude, IAU 2000B (McCarthy & Luzum 2003, Celest. Mech. 85, 37).  The argument of
 * each term's sine is a sum of multiples of five angles: the Moon's mean anomaly, the Sun's mean anomaly, the Moon's
 * argument of latitude, the Moon's elongation and the longitude of the Moon's node.  'mas' is the factor of the sine,
 * in milliarcseconds.  The sum of the omitted terms is at most 35 mas. */
static const struct nutation_term {
    signed char moon, sun, from_node, elongation, node;
    double mas;
} nutation_terms[] = {
    {0, 0, 0, 0, 1, -17206.4161}, {0, 0, 2, -2, 2, -1317.0906}, {0, 0, 2, 0, 2, -227.6413}, {0, 0, 0, 0, 2, 207.4554},
    {0, 1, 0, 0, 0, 147.5877},    {0, 1, 2, -2, 2, -51.6821},   {1, 0, 0, 0, 0, 71.1159},   {0, 0, 2, 0, 1, -38.7298},
    {1, 0, 2, 0, 2, -30.1461},    {0, -1, 2, -2, 2, 21.5829},   {0, 0, 2, -2, 1, 12.8227},  {-1, 0, 2, 0, 2, 12.3457},
    {-1, 0, 0, 2, 0, 15.6994},    {1, 0, 0, 0, 1, 6.3110},      {-1, 0, 0, 0, 1, -5.7976},  {-1, 0, 2, 2, 2, -5.9641},
    {1, 0, 2, 0, 1, -5.1613},     {-2, 0, 2, 0, 1, 4.5893},     {0, 0, 0, 2, 0, 6.3384},    {0, 0, 2, 2, 2, -3.8571},
};

/* Returns the equation of the equinoxes, 'centuries' Julian centuries after J2000.  Adds two terms to the nutation,
 * which depend on the longitude of the Moon's node (IERS Conventions 2010, table 5.2e). */
static double equinox_arcsec(double centuries)
{
    double moon_rad = (134.96340251 + 477198.8675605 * centuries) * RAD_PER_DEG;
    double sun_rad = (357.52910918 + 35999.0502911 * centuries) * RAD_PER_DEG;
    double from_node_rad = (93.27209062 + 483202.0174577 * centuries) * RAD_PER_DEG;
    double elongation_rad = (297.85019547 + 445267.1114469 * centuries) * RAD_PER_DEG;
    double node_rad = (125.04455501 - 1934.1362619 * centuries) * RAD_PER_DEG;
    double obliquity_rad = (23.4392794 - 0.0130102 * centuries) * RAD_PER_DEG;
    double nutation_arcsec = 0;

    for (size_t i = 0; i < ARRAY_LEN(nutation_terms); i++) {
        const struct nutation_term *term = &nutation_terms[i];

        nutation_arcsec += term->mas / 1000 *
                           sin(term->moon * moon_rad + term->sun * sun_rad + term->from_node * from_node_rad +
                               term->elongation * elongation_rad + term->node * node_rad);
    }
    return nutation_arcsec * cos(obliquity_rad) + 0.00264096 * sin(node_rad) + 0.00006352 * sin(2 * node_rad);
}

/* The Earth rotation angle is from IERS Conventions 2010, eq. 5.15, and the precession in right ascension from eq.
 * 5.32.  The other terms use UTC instead of TT.  UTC and TT differ by about a minute, in which the precession is 0.1
 * mas. */
double visrec_sidereal_time_rad(int64_t unix_ns, double longitude_rad, double ut1_utc_s)
{
    int64_t day = floor_div(unix_ns, NS_PER_DAY);
    double turns_of_day = ((double)(unix_ns - day * NS_PER_DAY) / (double)NS_PER_S + ut1_utc_s) / 86400;
    double days = (double)day - UNIX_DAY_OF_J2000 + turns_of_day; /* UT1 since J2000 */
    double centuries = days / 36525;
    /* The turns of the current day are a separate term, so the precision does not decrease over decades. */
    double turns = 0.7790572732640 + 0.00273781191135448 * days + (turns_of_day + 0.5);
    double precession_arcsec = 0.014506 + (4612.156534 + 1.3915817 * centuries) * centuries;
    double angle_rad = 2 * M_PI * fmod(turns, 1) +
                       (precession_arcsec + equinox_arcsec(centuries)) / 3600 * RAD_PER_DEG + longitude_rad;

    angle_rad = fmod(angle_rad, 2 * M_PI);
    if (angle_rad < 0)
        angle_rad += 2 * M_PI;
    return angle_rad < 2 * M_PI ? angle_rad : 0;
}
