/* version.h - the version that --version and build_info show. */
#ifndef COMMON_BASE_VERSION_H
#define COMMON_BASE_VERSION_H

#define CBF_VERSION "0.1.0"

/* "0.1.0 (git describe of the tree that was built)"; defined in version.c, the one file that knows the build id. */
extern const char cbf_build_id[];

#endif
