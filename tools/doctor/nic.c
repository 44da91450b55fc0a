/* nic.c - finds the interface that a configuration names, and reads its properties from the kernel. */
#include "tools/doctor/nic.h"

#include "common/net/endpoint.h"
#include "tools/doctor/sys.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Finds the interface that has the address 'address'. */
static bool name_of_address(struct in_addr address, char name[IF_NAMESIZE])
{
    struct ifaddrs *list;
    bool found = false;

    if (getifaddrs(&list))
        return false;
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
        const struct sockaddr_in *a = (const void *)i->ifa_addr;
        found = a && a->sin_family == AF_INET && a->sin_addr.s_addr == address.s_addr;
        if (found)
            snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
    }
    freeifaddrs(list);
    return found;
}

/* Finds the interface of the route to multicast groups.  Asks the kernel for the source address of packets to a
 * group, and finds the interface with this address. */
static bool name_of_route(char name[IF_NAMESIZE])
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(SPEAD_DEFAULT_PORT)}, from = {0};
    socklen_t length = sizeof(from);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, "239.0.0.1", &to.sin_addr);
    bool ok = fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
              getsockname(fd, (struct sockaddr *)&from, &length) == 0;
    if (fd >= 0)
        close(fd);
    return ok && name_of_address(from.sin_addr, name);
}

bool nic_name(const char *name_or_address, char name[IF_NAMESIZE])
{
    struct in_addr address;

    if (!name_or_address)
        return name_of_route(name);
    if (inet_pton(AF_INET, name_or_address, &address) == 1)
        return name_of_address(address, name);
    if (strlen(name_or_address) >= IF_NAMESIZE)
        return false;
    snprintf(name, IF_NAMESIZE, "%s", name_or_address);
    return true;
}

/* ---- Flags and sizes --------------------------------------------------------------------------------------------- */

bool nic_ask(const char *name, unsigned long what, struct ifreq *request)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    memcpy(request->ifr_name, name, strnlen(name, IFNAMSIZ - 1));
    bool ok = fd >= 0 && ioctl(fd, what, request) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

bool nic_flags(const char *root, const char *name, int64_t *flags)
{
    struct ifreq request = {0};
    int64_t carrier;

    if (!root[0]) {
        bool ok = nic_ask(name, SIOCGIFFLAGS, &request);
        *flags = (unsigned short)request.ifr_flags;
        return ok;
    }
    if (!sys_number(root, flags, "/sys/class/net/%s/flags", name))
        return false;
    if (!sys_number(root, &carrier, "/sys/class/net/%s/carrier", name) || carrier)
        *flags |= IFF_RUNNING;
    return true;
}

bool nic_mtu(const char *root, const char *name, int64_t *mtu)
{
    struct ifreq request = {0};

    if (root[0])
        return sys_number(root, mtu, "/sys/class/net/%s/mtu", name);
    bool ok = nic_ask(name, SIOCGIFMTU, &request);
    *mtu = request.ifr_mtu;
    return ok;
}

static void add_name(char *text, size_t text_bytes, const char *root, const char *name, bool up_only)
{
    size_t at = strlen(text);
    int64_t flags;

    if (nic_flags(root, name, &flags) && (!up_only || (flags & IFF_UP)))
        snprintf(text + at, text_bytes - at, "%s%s", at ? ", " : "", name);
}

void nic_list(const char *root, bool up_only, char *text, size_t text_bytes)
{
    char path[PATH_MAX];

    text[0] = '\0';
    if (!root[0]) {
        struct if_nameindex *names = if_nameindex();
        for (struct if_nameindex *i = names; i && i->if_name; i++)
            add_name(text, text_bytes, root, i->if_name, up_only);
        if_freenameindex(names);
        return;
    }
    snprintf(path, sizeof(path), "%s/sys/class/net", root);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (entry->d_name[0] != '.')
            add_name(text, text_bytes, root, entry->d_name, up_only);
    if (directory)
        closedir(directory);
}
