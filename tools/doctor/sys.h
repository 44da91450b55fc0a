/* sys.h - reads facts from /proc and /sys, below a root that tests may provide.
 *
 * Errors: a function returns false if a fact does not exist or cannot be read.  The caller then reports that the fact
 * is not visible. */
#ifndef TOOLS_DOCTOR_SYS_H
#define TOOLS_DOCTOR_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the first line of a file, without the newline.  Cuts a line that does not fit. */
bool sys_text(const char *root, char *text, size_t text_bytes, const char *path, ...)
    __attribute__((format(printf, 4, 5)));

bool sys_number(const char *root, int64_t *number, const char *path, ...) __attribute__((format(printf, 3, 4)));

bool sys_exists(const char *root, const char *path, ...) __attribute__((format(printf, 2, 3)));

/* Returns true if 'cpu' is in a list as the kernel writes it ("0-3,8"). */
bool sys_list_has(const char *list, int64_t cpu);

/* Returns true if a process of this name runs.  Writes the process's id to *pid, unless 'pid' is NULL. */
bool sys_process(const char *root, const char *name, int *pid);

/* Checks whether a process has a capability now, and writes the result to *has.  Returns false if the process's
 * capabilities are not visible. */
bool sys_capability(const char *root, int pid, int capability, bool *has);

/* Returns true if a process of this host runs 'program' with the configuration file 'path'. */
bool sys_runs_file(const char *program, const char *path);

#define SYS_PCI_BYTES 24
#define SYS_GPUS_MAX  64

/* Converts a PCI address to the form of /sys, 0000:3b:00.0.  Accepts the forms that device.gpu accepts: 3b:00.0, and
 * nvidia-smi's 00000000:3B:00.0.  Returns false if the text is no address. */
bool sys_pci_address(const char *text, char address[SYS_PCI_BYTES]);

/* Lists the addresses of NVIDIA's GPUs.  Returns their number. */
size_t sys_gpus(const char *root, char addresses[SYS_GPUS_MAX][SYS_PCI_BYTES]);

/* Compares a PCI device's link with the best link of the device, for example "8.0 GT/s x8".  'path' is the device's
 * directory.  Returns false if there is no link.  Sets *slower to true if the link is narrower or slower than the best
 * link. */
bool sys_pcie_link(const char *root, const char *path, char *now, char *max, size_t text_bytes, bool *slower);

#endif
