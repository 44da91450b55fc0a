/* visrec_array.c - geometry and time of the array that is recorded, for the header of the file. */
#include "tools/visrec_array.h"

#include "common/units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define RAD_PER_DEG       (M_PI / 180)
#define NS_PER_DAY        (86400 * NS_PER_S)
#define JD_OF_UNIX_EPOCH  2440587.5
#define UNIX_DAY_OF_J2000 10957.5 /* 2000 January 1, 12 h */

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
    double rate_hz = decimal_to_double(config->time.adc_sample_rate_hz);
    double centre_hz = config->stream.centre_frequency_hz > 0 ? config->stream.centre_frequency_hz : rate_hz / 4;
    struct visrec_antenna *ants = calloc(n_ants, sizeof(*ants));
    struct visrec_baseline *baselines = calloc(n_baselines, sizeof(*baselines));
    size_t b = 0;

    if (!ants || !baselines) {
        free(ants);
        free(baselines);
        return -ENOMEM;
    }
    *array = (struct visrec_array){
        .telescope = config->telescope.name,
        .latitude_rad = config->telescope.latitude_deg * RAD_PER_DEG,
        .longitude_rad = config->telescope.longitude_deg * RAD_PER_DEG,
        .altitude_m = config->telescope.altitude_m,
        .n_ants = n_ants,
        .ants = ants,
        .n_baselines = n_baselines,
        .baselines = baselines,
        .n_chan = (size_t)config->stream.n_chan,
        .chan_width_hz = rate_hz / (double)config->stream.samples_between_spectra,
        .integration_s = (double)visrec_config_integration_samples(config) / rate_hz,
    };
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

/* Mean sidereal time: Aoki et al. 1982 (A&A 105, 359), as rearranged by Meeus, "Astronomical Algorithms", eq. 12.4.
 * Equation of the equinoxes: the two leading terms of nutation in longitude, the same book, chapter 22. */
double visrec_sidereal_time_rad(int64_t unix_ns, double longitude_rad)
{
    int64_t day = floor_div(unix_ns, NS_PER_DAY);
    double turns_of_day = (double)(unix_ns - day * NS_PER_DAY) / (double)NS_PER_DAY;
    double days = (double)day - UNIX_DAY_OF_J2000 + turns_of_day; /* since J2000 */
    double centuries = days / 36525;
    double node_rad = (125.04452 - 0.0529537648 * days) * RAD_PER_DEG; /* of the Moon's orbit */
    double sun_rad = (280.4665 + 0.98564736 * days) * RAD_PER_DEG;     /* its mean longitude */
    double obliquity_rad = (23.4392911 - 0.0130042 * centuries) * RAD_PER_DEG;
    double nutation_deg = (-17.20 * sin(node_rad) - 1.32 * sin(2 * sun_rad)) / 3600;
    double mean_deg;
    double angle_rad;

    /* 360 degrees per day are taken apart as turns of this day, so that decades cost no digits. */
    mean_deg = 280.46061837 + 0.98564736629 * days + 360 * (turns_of_day + 0.5) + 0.000387933 * centuries * centuries;
    angle_rad = (mean_deg + nutation_deg * cos(obliquity_rad)) * RAD_PER_DEG + longitude_rad;
    angle_rad = fmod(angle_rad, 2 * M_PI);
    if (angle_rad < 0)
        angle_rad += 2 * M_PI;
    return angle_rad < 2 * M_PI ? angle_rad : 0;
}
