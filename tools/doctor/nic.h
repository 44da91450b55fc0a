/* nic.h - finds the interfaces that configurations name, by name or address, and reads their properties. */
#ifndef TOOLS_DOCTOR_NIC_H
#define TOOLS_DOCTOR_NIC_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Finds this host's interface with the name or address 'name_or_address', and writes its name to 'name'.  If
 * 'name_or_address' is NULL, finds the interface of the route to multicast groups.  Returns false if there is
 * none. */
bool nic_name(const char *name_or_address, char name[IF_NAMESIZE]);

/* Queries the kernel about an interface with the ioctl 'what', which writes the answer to *request.  The interface is
 * in this process's network namespace, which may differ from the namespace of /sys. */
bool nic_ask(const char *name, unsigned long what, struct ifreq *request);

/* Read the flags (IFF_UP and so on) and the MTU of an interface.  IFF_RUNNING means that the link is up.  If 'root' is
 * "", the interface is in this process's network namespace.  Otherwise its properties are files below 'root'. */
bool nic_flags(const char *root, const char *name, int64_t *flags);
bool nic_mtu(const char *root, const char *name, int64_t *mtu);

/* Lists the interfaces of 'root', for example "eth0, lo".  'up_only': lists only interfaces that are up. */
void nic_list(const char *root, bool up_only, char *text, size_t text_bytes);

#endif
