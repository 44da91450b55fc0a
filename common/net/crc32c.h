/* crc32c.h - the cyclic redundancy check of Castagnoli's polynomial, as in RFC 3720 (iSCSI), appendix B.4.
 *
 * The processor's instruction is used if there is one (SSE 4.2, Armv8 CRC).  The instruction takes three cycles and can
 * begin in each cycle, so three streams run at a time.  Other processors use eight tables ("slicing by 8").
 *
 * Threads: any.   Blocking and allocation: none; the first call makes the tables. */
#ifndef COMMON_NET_CRC32C_H
#define COMMON_NET_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of data whose first part has the CRC 'crc' (0: no first part), followed by 'n' bytes. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t n);

/* Returns the same CRC, computed by the tables only.  Tests compare both functions. */
uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t n);

#endif
