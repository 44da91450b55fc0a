/* sys.c - reads small files of the kernel. */
#include "tools/doctor/sys.h"

#include "common/base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool path_of(const char *root, char *path, const char *format, va_list args)
{
    int n = snprintf(path, PATH_MAX, "%s", root);

    return n < PATH_MAX && vsnprintf(path + n, (size_t)(PATH_MAX - n), format, args) < PATH_MAX - n;
}

static bool read_line(const char *path, char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "r");
    bool found = file && fgets(text, (int)text_bytes, file);

    if (file)
        fclose(file);
    if (!found)
        return false;
    text[strcspn(text, "\n")] = '\0';
    return true;
}

bool sys_text(const char *root, char *text, size_t text_bytes, const char *path, ...)
{
    char full[PATH_MAX];
    va_list args;

    va_start(args, path);
    bool ok = path_of(root, full, path, args);
    va_end(args);
    return ok && read_line(full, text, text_bytes);
}

bool sys_number(const char *root, int64_t *number, const char *path, ...)
{
    char full[PATH_MAX], text[64], *end;
    va_list args;

    va_start(args, path);
    bool ok = path_of(root, full, path, args);
    va_end(args);
    if (!ok || !read_line(full, text, sizeof(text)))
        return false;
    long long value = strtoll(text, &end, 0);
    if (end == text)
        return false;
    *number = value;
    return true;
}

bool sys_exists(const char *root, const char *path, ...)
{
    char full[PATH_MAX];
    va_list args;

    va_start(args, path);
    bool ok = path_of(root, full, path, args);
    va_end(args);
    return ok && access(full, F_OK) == 0;
}

bool sys_list_has(const char *list, int64_t cpu)
{
    while (isdigit((unsigned char)*list)) {
        char *end;
        long long first = strtoll(list, &end, 10), last = first;
        if (*end == '-')
            last = strtoll(end + 1, &end, 10);
        if (cpu >= first && cpu <= last)
            return true;
        list = *end == ',' ? end + 1 : "";
    }
    return false;
}

/* Returns true if an argument of a process names the file.  A relative name starts from the process's working
 * directory. */
static bool has_argument(const char *pid, const char *path)
{
    char name[PATH_MAX + NAME_MAX + 16], arguments[PATH_MAX];
    bool found = false;

    snprintf(name, sizeof(name), "/proc/%s/cmdline", pid);
    FILE *file = fopen(name, "r");
    size_t n = file ? fread(arguments, 1, sizeof(arguments) - 1, file) : 0;
    if (file)
        fclose(file);
    arguments[n] = '\0';
    for (const char *a = arguments; a < arguments + n && !found; a += strlen(a) + 1) {
        if (a[0] != '/')
            snprintf(name, sizeof(name), "/proc/%s/cwd/%s", pid, a);
        found = files_are_same(a[0] == '/' ? a : name, path);
    }
    return found;
}

/* Finds a process of this name.  If 'file' is not NULL, the process must have been started with the file.  *pid becomes
 * the process's id, unless 'pid' is NULL. */
static bool find_process(const char *root, const char *name, const char *file, int *pid)
{
    char path[PATH_MAX], comm[64];
    bool found = false;

    snprintf(path, sizeof(path), "%s/proc", root);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && !found && (entry = readdir(directory));) {
        const char *id = entry->d_name;
        found = isdigit((unsigned char)id[0]) && sys_text(root, comm, sizeof(comm), "/proc/%s/comm", id) &&
                strcmp(comm, name) == 0 && (!file || has_argument(id, file));
        if (found && pid)
            *pid = atoi(id);
    }
    if (directory)
        closedir(directory);
    return found;
}

bool sys_process(const char *root, const char *name, int *pid)
{
    return find_process(root, name, NULL, pid);
}

bool sys_runs_file(const char *program, const char *path)
{
    return find_process("", program, path, NULL);
}

bool sys_capability(const char *root, int pid, int capability, bool *has)
{
    char path[PATH_MAX];
    unsigned long long mask;

    snprintf(path, sizeof(path), "%s/proc/%d/status", root, pid);
    bool found = file_find_number(path, "CapEff: %llx", &mask);
    if (found)
        *has = mask >> capability & 1;
    return found;
}

bool sys_pcie_link(const char *root, const char *path, char *now, char *max, size_t text_bytes, bool *slower)
{
    char speed[64], speed_max[64];
    int64_t width, width_max;

    if (!sys_text(root, speed, sizeof(speed), "%s/current_link_speed", path) ||
        !sys_text(root, speed_max, sizeof(speed_max), "%s/max_link_speed", path) ||
        !sys_number(root, &width, "%s/current_link_width", path) ||
        !sys_number(root, &width_max, "%s/max_link_width", path))
        return false;
    double rate = strtod(speed, NULL), rate_max = strtod(speed_max, NULL);
    if (rate <= 0 || width <= 0 || width > 255) /* "Unknown" and 255 lanes mean that the device has no real PCIe
                                                 * link */
        return false;
    snprintf(now, text_bytes, "%g GT/s x%lld", rate, (long long)width);
    snprintf(max, text_bytes, "%g GT/s x%lld", rate_max, (long long)width_max);
    *slower = rate < rate_max || width < width_max;
    return true;
}

bool sys_pci_address(const char *text, char address[SYS_PCI_BYTES])
{
    unsigned domain = 0, bus, slot;

    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(text, "%x:%x", &bus, &slot) != 2)
            return false;
    }
    return snprintf(address, SYS_PCI_BYTES, "%04x:%02x:%02x.0", domain, bus, slot) < SYS_PCI_BYTES;
}

static bool is_gpu(const char *root, const char *address)
{
    char vendor[32], class[32];

    return sys_text(root, vendor, sizeof(vendor), "/sys/bus/pci/devices/%s/vendor", address) &&
           sys_text(root, class, sizeof(class), "/sys/bus/pci/devices/%s/class", address) &&
           strcmp(vendor, "0x10de") == 0 && strncmp(class, "0x03", 4) == 0;
}

size_t sys_gpus(const char *root, char addresses[SYS_GPUS_MAX][SYS_PCI_BYTES])
{
    char path[PATH_MAX];
    size_t n = 0;

    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", root);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && n < SYS_GPUS_MAX && (entry = readdir(directory));)
        if (strlen(entry->d_name) < SYS_PCI_BYTES && is_gpu(root, entry->d_name))
            strcpy(addresses[n++], entry->d_name);
    if (directory)
        closedir(directory);
    return n;
}
