/* crc32c.h - the cyclic redundancy check CRC-32C with Castagnoli's polynomial, as in RFC 3720 (iSCSI), appendix B.4.
 *
 * The functions use the processor's CRC instruction if it has one (SSE 4.2, Armv8 CRC).  The instruction has a latency
 * of three cycles and can start in every cycle, so three independent computations are interleaved.  On other processors
 * the functions use eight tables ("slicing by 8").
 *
 * Threads: any.   Blocking and allocation: none; the first call makes the tables. */
#ifndef COMMON_NET_CRC32C_H
#define COMMON_NET_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of earlier data followed by the 'n' bytes at 'bytes'.  'crc' is the CRC of the earlier data, or 0 if
 * there are no earlier data. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t n);

/* Returns the same CRC as crc32c().  This function always uses the tables, even if the processor has a CRC instruction.
 * Tests compare the two functions. */
uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t n);

#endif
