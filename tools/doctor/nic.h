/* nic.h - finds interfaces by the names and addresses of configurations. */
#ifndef TOOLS_DOCTOR_NIC_H
#define TOOLS_DOCTOR_NIC_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Finds the name of this machine's interface with this name or address.  If 'name_or_address' is NULL, finds the
 * interface of the route to multicast groups.  Returns false if there is none. */
bool nic_name(const char *name_or_address, char name[IF_NAMESIZE]);

/* Asks the kernel about an interface of this process's network namespace, which may differ from the namespace of /sys.
 * Uses an ioctl, which writes the answer to *request. */
bool nic_ask(const char *name, unsigned long what, struct ifreq *request);

/* Read the flags (IFF_UP and so on) and the MTU of an interface.  IFF_RUNNING means that the link is up.  The interface
 * belongs to this process's network or, if 'root' is not "", to the files below 'root'. */
bool nic_flags(const char *root, const char *name, int64_t *flags);
bool nic_mtu(const char *root, const char *name, int64_t *mtu);

/* Lists the interfaces of 'root', for example "eth0, lo".  'up_only': lists only interfaces that are up. */
void nic_list(const char *root, bool up_only, char *text, size_t text_bytes);

#endif
