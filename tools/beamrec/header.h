/* header.h - headers of files: SIGPROC filterbank (D. Lorimer, "SIGPROC v3.7") and PSRDADA (W. van Straten, "PSRDADA",
 * a header of 4096 bytes of text). */
#ifndef TOOLS_BEAMREC_HEADER_H
#define TOOLS_BEAMREC_HEADER_H

#include "tools/beamrec/product.h"

#define BEAMREC_DADA_BYTES 4096

/* Offset of the number of data bytes in a PSRDADA header, and the width of this number in characters. */
#define BEAMREC_DADA_SIZE_OFFSET 72
#define BEAMREC_DADA_SIZE_WIDTH  20

struct beamrec_header {
    const char *telescope, *source;
    const char *state; /* value of STATE in a PSRDADA file: PSRCHIVE's name for the kind of data */
    int64_t start_ns;  /* UNIX time of the first sample */
    double sample_s;   /* seconds from one row to the next row */
    double centre_hz;  /* sky frequency of the centre of channel n_chan / 2 */
    double channel_hz; /* bandwidth of one channel before channels are summed */
};

/* Write a file's header to 'text', and return the number of bytes written. */
size_t beamrec_header_sigproc(const struct beamrec_header *header, const struct beamrec_product_shape *shape,
                              char text[BEAMREC_DADA_BYTES]);
size_t beamrec_header_dada(const struct beamrec_header *header, const struct beamrec_product_shape *shape,
                           char text[BEAMREC_DADA_BYTES]);

#endif
