/* gnss_config.h - the satellites that a stream follows, and the sizes of a stream, from the configuration.
 *
 * Pure arithmetic on a checked configuration, except fgpu_gnss_check(). */
#ifndef FGPU_GNSS_GNSS_CONFIG_H
#define FGPU_GNSS_GNSS_CONFIG_H

#include "fgpu/config/config.h"
#include "kernels/gnss/gnss_acquire.h"
#include "kernels/gnss/gnss_codes.h"

#define FGPU_GNSS_MAX_SATELLITES 64 /* maximum number of satellites of a stream */
#define FGPU_GNSS_N_BUFFERS      4
#define FGPU_GNSS_NAME_BYTES     16
/* number of code periods in a narrow search's block, if the data bits allow more than one period */
#define FGPU_GNSS_NARROW_PERIODS 4
#define FGPU_GNSS_NARROW_STEPS   3 /* half width of a narrow search, in Doppler steps of the wide search */

/* A satellite's signal that a stream may follow. */
struct fgpu_gnss_satellite {
    enum gnss_signal signal;
    unsigned prn;
    const struct fgpu_config_satellite *config; /* entry of the configuration that names the satellite */
    enum gnss_subcarrier subcarrier;            /* subcarrier of the replica */
    /* frequency of the carrier in the baseband at zero Doppler, after an inversion of the band has been undone */
    double carrier_hz;
};

/* Returns the rate of a stream's complex samples. */
double fgpu_gnss_sample_rate_hz(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss);

/* Writes the satellites whose carriers lie in the stream's band, in the order of the configuration.  Writes at most
 * FGPU_GNSS_MAX_SATELLITES satellites, but returns the number of all satellites in the band. */
size_t fgpu_gnss_satellites(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss,
                            struct fgpu_gnss_satellite *satellites);

/* Writes a name like "L1CA-7".  Returns 'text'. */
const char *fgpu_gnss_name(const struct fgpu_gnss_satellite *satellite, char text[FGPU_GNSS_NAME_BYTES]);

/* Writes the chips of a satellite's code, generated or read from the stream's file.  Returns 0 or negative errno
 * with one sentence in 'why'. */
int fgpu_gnss_chips(const struct fgpu_config_gnss *gnss, const struct fgpu_gnss_satellite *satellite, int8_t *chips,
                    char *why, size_t why_bytes);

/* Returns the number of code periods in a narrow search's block.  'wide_periods' is the number in a wide search's
 * block. */
uint32_t fgpu_gnss_narrow_periods(const struct gnss_signal_facts *facts, uint32_t wide_periods);

/* Returns the half width of the search of an antenna near the Doppler that other antennas follow. */
double fgpu_gnss_join_hz(const struct gnss_signal_facts *facts);

struct fgpu_gnss_sizes {
    size_t n_satellites;
    size_t chunk_samples;  /* maximum number of complex samples from one chunk */
    int64_t delay_samples; /* largest delay between two antennas; 0 for a single antenna */
    size_t pitch_samples;  /* length of a row: earlier samples (2 delay_samples) and the samples of one chunk */
    size_t n_slots;        /* number of chunks of an antenna that can wait for chunks of other antennas */
    size_t max_pieces;     /* maximum number of pieces of integrations in a chunk */
    size_t heap_bytes;     /* max_pieces records */
    size_t search_samples; /* number of samples per polarisation in the longest block of a search */
    size_t table_bytes;    /* bytes of the tables of all codes */
};

/* Returns the number of chunks by which an antenna may be ahead before a round without an absent antenna is computed.  An
 * antenna that loses packets is up to recv.window chunks late.  The worker may process LANE_N_INPUTS chunks of an antenna
 * before a chunk of another antenna. */
unsigned fgpu_gnss_wait_chunks(const struct fgpu_config *config);

struct fgpu_gnss_sizes fgpu_gnss_sizes(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss);

/* Raises the limits to those of a stream's searches. */
void fgpu_gnss_add_limits(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss,
                          struct gnss_acquire_limits *limits);

/* Returns the bytes per second at which one antenna's stream is sent; 0: the stream is written to a file, and not
 * paced. */
double fgpu_gnss_rate(const struct fgpu_config *config, const struct fgpu_config_gnss *gnss);

/* Checks the keys 'gnss' and 'satellites'.  Does not check the filters of the bands. */
void fgpu_gnss_check(const struct fgpu_config *config, struct config *errors);

#endif
