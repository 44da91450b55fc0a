/* crc32c.h - the cyclic redundancy check of Castagnoli's polynomial, as in RFC 3720 (iSCSI), appendix B.4.
 *
 * The processor's instruction where there is one (SSE 4.2, Armv8 CRC), with three streams at a time, as the instruction
 * takes three cycles and can begin in each.  Elsewhere eight tables ("slicing by 8").
 *
 * Threads: any.   Blocking and allocation: none; the first call makes the tables. */
#ifndef COMMON_NET_CRC32C_H
#define COMMON_NET_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of what has the CRC 'crc' (0: nothing yet) with 'n' bytes more. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t n);

/* The same by the tables alone; tests hold one against the other. */
uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t n);

#endif
