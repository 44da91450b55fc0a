/* sys.h - facts out of /proc and /sys, below a root that tests may plant.
 *
 * Errors: what is not there or cannot be read is 'false', and the caller says that it could not see it. */
#ifndef TOOLS_DOCTOR_SYS_H
#define TOOLS_DOCTOR_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file's first line without its end, or as much of it as fits. */
bool sys_text(const char *root, char *text, size_t text_bytes, const char *path, ...)
    __attribute__((format(printf, 4, 5)));

bool sys_number(const char *root, int64_t *number, const char *path, ...) __attribute__((format(printf, 3, 4)));

bool sys_exists(const char *root, const char *path, ...) __attribute__((format(printf, 2, 3)));

/* True if 'cpu' is in a list as the kernel writes it ("0-3,8"). */
bool sys_list_has(const char *list, int64_t cpu);

/* True if a process of this name runs; its id in *pid (may be NULL). */
bool sys_process(const char *root, const char *name, int *pid);

/* Whether a process has a capability now.  Returns false if that cannot be seen. */
bool sys_capability(const char *root, int pid, int capability, bool *has);

/* True if a process of this machine is that program, run with that file. */
bool sys_runs_file(const char *program, const char *path);

#define SYS_PCI_BYTES 24
#define SYS_GPUS_MAX  64

/* A PCI address in any form that device.gpu may have (3b:00.0, 00000000:3B:00.0 as of nvidia-smi) as /sys has that GPU:
 * 0000:3b:00.0.  Returns false if it is none. */
bool sys_pci_address(const char *text, char address[SYS_PCI_BYTES]);

/* The addresses of NVIDIA's GPUs.  Returns how many there are. */
size_t sys_gpus(const char *root, char addresses[SYS_GPUS_MAX][SYS_PCI_BYTES]);

/* A PCI device's link against what both ends could do: "8.0 GT/s x8".  'path' is its directory.  Returns false if there
 * is no link; *slower tells if it is narrower or slower than the device allows. */
bool sys_pcie_link(const char *root, const char *path, char *now, char *max, size_t text_bytes, bool *slower);

#endif
