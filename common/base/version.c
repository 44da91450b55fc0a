/* version.c - the build id, in a file of its own so that a new commit recompiles only this file. */
#include "common/base/version.h"

#ifndef CBF_BUILD_ID
#define CBF_BUILD_ID "release"
#endif

const char cbf_build_id[] = CBF_VERSION " (" CBF_BUILD_ID ")";
