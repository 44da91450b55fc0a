/* nic.h - interfaces by the names and addresses that configurations give. */
#ifndef TOOLS_DOCTOR_NIC_H
#define TOOLS_DOCTOR_NIC_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Finds the name of this machine's interface with this name or address.  NULL stands for the interface of the route to
 * multicast groups.  Returns false if there is none. */
bool nic_name(const char *name_or_address, char name[IF_NAMESIZE]);

/* Asks the kernel about an interface of this process's network, which may be another than that of /sys: an ioctl whose
 * answer is in *request. */
bool nic_ask(const char *name, unsigned long what, struct ifreq *request);

/* IFF_UP and so on; IFF_RUNNING means that the link is up.  The interface is one of this process's network or, if
 * 'root' is not "", of the files below 'root'. */
bool nic_flags(const char *root, const char *name, int64_t *flags);
bool nic_mtu(const char *root, const char *name, int64_t *mtu);

/* The interfaces of 'root', "eth0, lo", of which those that are up, if 'up_only'. */
void nic_list(const char *root, bool up_only, char *text, size_t text_bytes);

#endif
