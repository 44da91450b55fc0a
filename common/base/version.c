/* version.c - the build id, in a separate file, so that make recompiles only this file after a commit. */
#include "common/base/version.h"

#ifndef CBF_BUILD_ID
#define CBF_BUILD_ID "release"
#endif

const char cbf_build_id[] = CBF_VERSION " (" CBF_BUILD_ID ")";
