/* version.h - the version that --version and build_info show. */
#ifndef COMMON_BASE_VERSION_H
#define COMMON_BASE_VERSION_H

#define CBF_VERSION "0.1.0"

/* Version and build id, as in "0.1.0 (output of git describe)".  Only version.c contains the build id. */
extern const char cbf_build_id[];

#endif
