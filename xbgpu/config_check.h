/* config_check.h - checks keys of xbgpu that depend on each other. */
#ifndef XBGPU_CONFIG_CHECK_H
#define XBGPU_CONFIG_CHECK_H

struct config;

/* Checks channels and substreams, integration lengths, beams and memory.  'values' is a struct xbgpu_config.  Used by
 * command_line_main(). */
void xbgpu_config_check(void *values, struct config *errors);

#endif
