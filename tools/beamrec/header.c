/* header.c - writes the headers of SIGPROC and PSRDADA files. */
#include "tools/beamrec/header.h"

#include "common/base/units.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define UNIX_MJD   40587
#define NS_PER_DAY (86400 * NS_PER_S)

struct sigproc {
    char *text;
    size_t n;
};

static void put(struct sigproc *s, const void *data, size_t bytes)
{
    memcpy(s->text + s->n, data, bytes);
    s->n += bytes;
}

static void put_text(struct sigproc *s, const char *text)
{
    int32_t length = (int32_t)strlen(text);

    put(s, &length, sizeof(length));
    put(s, text, (size_t)length);
}

static void put_int(struct sigproc *s, const char *name, int32_t value)
{
    put_text(s, name);
    put(s, &value, sizeof(value));
}

static void put_double(struct sigproc *s, const char *name, double value)
{
    put_text(s, name);
    put(s, &value, sizeof(value));
}

/* Returns the sky frequency of the centre of channel 'chan'.  'chan' need not be a whole number. */
static double chan_mhz(const struct beamrec_header *header, const struct beamrec_product_shape *shape, double chan)
{
    return (header->centre_hz + (chan - (double)(shape->n_chan / 2)) * header->channel_hz) / 1e6;
}

size_t beamrec_header_sigproc(const struct beamrec_header *header, const struct beamrec_product_shape *shape,
                              char text[BEAMREC_DADA_BYTES])
{
    struct sigproc s = {.text = text};
    double highest = (double)(shape->n_chan - shape->sum_channels) + (double)(shape->sum_channels - 1) / 2;

    put_text(&s, "HEADER_START");
    put_int(&s, "telescope_id", 0);
    put_int(&s, "machine_id", 0);
    put_int(&s, "data_type", 1);
    put_text(&s, "source_name");
    put_text(&s, header->source);
    put_int(&s, "barycentric", 0);
    put_int(&s, "pulsarcentric", 0);
    put_double(&s, "src_raj", 0);
    put_double(&s, "src_dej", 0);
    put_double(&s, "tstart", (double)(UNIX_MJD + (long double)header->start_ns / (long double)NS_PER_DAY));
    put_double(&s, "tsamp", header->sample_s);
    put_double(&s, "fch1", chan_mhz(header, shape, highest));
    put_double(&s, "foff", -header->channel_hz * (double)shape->sum_channels / 1e6);
    put_int(&s, "nchans", (int32_t)(shape->n_chan / shape->sum_channels));
    put_int(&s, "nbits", shape->bits);
    put_int(&s, "nifs", (int32_t)shape->n_products);
    put_text(&s, "HEADER_END");
    return s.n;
}

size_t beamrec_header_dada(const struct beamrec_header *header, const struct beamrec_product_shape *shape,
                           char text[BEAMREC_DADA_BYTES])
{
    time_t start_s = (time_t)(header->start_ns / NS_PER_S);
    int64_t day_ns = header->start_ns % NS_PER_DAY;
    size_t n_dim = beamrec_product_has_voltages(shape) ? 2 : 1, n_chan = shape->n_chan / shape->sum_channels;
    struct tm utc;
    char start[32];

    gmtime_r(&start_s, &utc);
    strftime(start, sizeof(start), "%Y-%m-%d-%H:%M:%S", &utc);
    memset(text, 0, BEAMREC_DADA_BYTES);
    int n = snprintf(text, BEAMREC_DADA_BYTES,
                     "HEADER DADA\nHDR_VERSION 1.0\nHDR_SIZE %d\nDADA_VERSION 1.0\nFILE_SIZE    %-*d\n",
                     BEAMREC_DADA_BYTES, BEAMREC_DADA_SIZE_WIDTH, 0);
    assert(n == BEAMREC_DADA_SIZE_OFFSET + BEAMREC_DADA_SIZE_WIDTH + 1);
    n += snprintf(text + n, BEAMREC_DADA_BYTES - (size_t)n,
                  "TELESCOPE %s\nSOURCE %s\nINSTRUMENT beamrec\nRECEIVER unknown\nMODE SEARCH\n"
                  "UTC_START %s\nMJD_START %" PRId64 ".%016" PRId64 "\nPICOSECONDS %" PRId64 "\nOBS_OFFSET 0\n"
                  "FREQ %.12g\nBW %.12g\nTSAMP %.17g\nNBIT %d\nNDIM %zu\nNPOL %zu\nNCHAN %zu\nRESOLUTION %zu\n"
                  "STATE %s\nORDER TPF\nDSB 0\n",
                  header->telescope, header->source, start, UNIX_MJD + header->start_ns / NS_PER_DAY,
                  (int64_t)((long double)day_ns * 1e16L / (long double)NS_PER_DAY), header->start_ns % NS_PER_S * 1000,
                  chan_mhz(header, shape, (double)shape->n_chan / 2 - 0.5),
                  header->channel_hz * (double)shape->n_chan / 1e6, header->sample_s * 1e6, shape->bits, n_dim,
                  shape->n_products, n_chan, n_chan * shape->n_products * n_dim * (size_t)shape->bits / 8,
                  header->state);
    assert(n < BEAMREC_DADA_BYTES);
    return BEAMREC_DADA_BYTES;
}
