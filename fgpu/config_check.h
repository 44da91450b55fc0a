/* config_check.h - checks keys of fgpu that depend on each other. */
#ifndef FGPU_CONFIG_CHECK_H
#define FGPU_CONFIG_CHECK_H

struct config;

/* Checks the alignment of packets with chunks and channels, counts and sizes.  'values' is a struct fgpu_config.  Used
 * by command_line_main(). */
void fgpu_config_check(void *values, struct config *errors);

#endif
