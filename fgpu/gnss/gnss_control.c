/* gnss_control.c - converts the arguments of requests about satellites to orders. */
#include "fgpu/gnss/gnss_control.h"

#include "common/base/units.h"
#include "common/katcp/server.h"
#include "common/net/spead.h"
#include "fgpu/gnss/gnss_config.h"
#include "fgpu/gnss/gnss_track.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool find_stream(const struct fgpu_config *config, struct katcp_call *call, size_t *stream)
{
    for (*stream = 0; *stream < config->gnss.n; (*stream)++)
        if (strcmp(fgpu_config_gnss(config, *stream)->name, katcp_arg(call, 0)) == 0)
            return true;
    katcp_fail(call, "there is no stream of satellites '%.64s'", katcp_arg(call, 0));
    return false;
}

static bool find_satellite(const struct fgpu_config *config, struct katcp_call *call, struct fgpu_gnss_order *order,
                           struct fgpu_gnss_satellite *satellite)
{
    const struct fgpu_config_gnss *gnss = fgpu_config_gnss(config, order->stream);
    struct fgpu_gnss_satellite satellites[FGPU_GNSS_MAX_SATELLITES];
    const size_t n = fgpu_gnss_satellites(config, gnss, satellites);
    char name[FGPU_GNSS_NAME_BYTES];

    for (size_t i = 0; i < n; i++)
        if (strcmp(fgpu_gnss_name(&satellites[i], name), katcp_arg(call, 1)) == 0) {
            order->satellite = i;
            *satellite = satellites[i];
            return true;
        }
    katcp_fail(call, "stream %s has no satellite '%.64s'; satellites have names like %s", gnss->name,
               katcp_arg(call, 1), fgpu_gnss_name(&satellites[0], name));
    return false;
}

static bool find_antenna(const struct fgpu_config *config, struct katcp_call *call, size_t *ant)
{
    for (*ant = 0; *ant < config->antennas.n; (*ant)++)
        if (strcmp(fgpu_config_antenna(config, *ant)->name, katcp_arg(call, 2)) == 0)
            return true;
    katcp_fail(call, "there is no antenna '%.64s'", katcp_arg(call, 2));
    return false;
}

/* Reads argument 'i', a number in [min, max].  If the argument is wrong, fails the call and returns false. */
static bool read_number(struct katcp_call *call, int i, const char *what, double min, double max, double *value)
{
    const char *text = katcp_arg(call, i);
    char *end;

    *value = strtod(text, &end);
    if (*text && !*end && *value >= min && *value <= max)
        return true;
    katcp_fail(call, "%s must be a number from %.15g to %.15g, not '%.64s'", what, min, max, text);
    return false;
}

bool fgpu_gnss_order_of_call(const struct fgpu_config *config, struct katcp_call *call, enum fgpu_gnss_action action,
                             struct fgpu_gnss_order *order)
{
    struct fgpu_gnss_satellite satellite;
    double timestamp = 0;

    *order = (struct fgpu_gnss_order){.action = action, .ant = FGPU_GNSS_ALL_ANTENNAS};
    if (!find_stream(config, call, &order->stream) || !find_satellite(config, call, order, &satellite))
        return false;
    if (katcp_n_args(call) > 2 && !find_antenna(config, call, &order->ant))
        return false;
    if (action != FGPU_GNSS_STEER)
        return true;
    const double n_chips = gnss_signal_facts(satellite.signal)->n_chips;
    if (!read_number(call, 3, "the timestamp", 0, (double)SPEAD_VALUE_MASK, &timestamp) ||
        !read_number(call, 4, "the code phase", 0, n_chips, &order->code_chips) ||
        !read_number(call, 5, "the Doppler", -FGPU_GNSS_MAX_DOPPLER_HZ, FGPU_GNSS_MAX_DOPPLER_HZ, &order->doppler_hz))
        return false;
    order->timestamp_samples = (int64_t)timestamp;
    return true;
}
