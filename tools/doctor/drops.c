/* drops.c - reads the counters of the NIC, of softnet and of UDP. */
#include "tools/doctor/drops.h"

#include "common/base/units.h"
#include "tools/doctor/nic.h"
#include "tools/doctor/sys.h"

#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPARE_STATS 1024

static void add(struct drops *drops, enum drops_stage stage, bool loss, const char *name, uint64_t value)
{
    if (drops->n == ARRAY_LEN(drops->items))
        return;
    struct drops_counter *c = &drops->items[drops->n++];
    *c = (struct drops_counter){.stage = stage, .loss = loss, .value = value};
    snprintf(c->name, sizeof(c->name), "%s", name);
}

/* ---- sysfs: counters of every driver ----------------------------------------------------------------------------- */

static void read_statistics(const char *root, const char *interface, struct drops *drops)
{
    static const struct {
        const char *name;
        enum drops_stage stage;
        bool loss;
    } names[] = {
        {"rx_packets", STAGE_NIC, false},       {"rx_crc_errors", STAGE_CABLE, true},
        {"rx_frame_errors", STAGE_CABLE, true}, {"rx_length_errors", STAGE_NIC, true},
        {"rx_missed_errors", STAGE_NIC, true},  {"rx_over_errors", STAGE_NIC, true},
        {"rx_fifo_errors", STAGE_QUEUE, true},  {"rx_dropped", STAGE_QUEUE, true},
    };
    int64_t value;
    char text[96];

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (sys_number(root, &value, "/sys/class/net/%s/statistics/%s", interface, names[i].name)) {
            snprintf(text, sizeof(text), "%.15s %s", interface, names[i].name);
            add(drops, names[i].stage, names[i].loss, text, (uint64_t)value);
        }
}

/* ---- ethtool: counters with the driver's own names --------------------------------------------------------------- */

/* Names of drivers' counters: counters of mlx5 (Documentation/networking/device_drivers/ethernet/mellanox/mlx5), and
 * counters of several other drivers. */
static const struct {
    const char *name;
    enum drops_stage stage;
    bool loss;
} driver_names[] = {
    {"rx_crc_errors_phy", STAGE_CABLE, true},      {"rx_symbol_err_phy", STAGE_CABLE, true},
    {"rx_discards_phy", STAGE_NIC, true},          {"rx_oversize_pkts_phy", STAGE_NIC, true},
    {"rx_out_of_range_len_phy", STAGE_NIC, true},  {"outbound_pci_buffer_overflow", STAGE_NIC, true},
    {"outbound_pci_stalled_wr", STAGE_NIC, false}, {"rx_pause_ctrl_phy", STAGE_NIC, false},
    {"tx_pause_ctrl_phy", STAGE_NIC, false},       {"rx_steer_missed_packets", STAGE_NIC, false},
    {"rx_out_of_buffer", STAGE_QUEUE, true},       {"rx_no_buffer_count", STAGE_QUEUE, true},
    {"rx_no_dma_resources", STAGE_QUEUE, true},
};

static void read_driver(const char *interface, struct drops *drops)
{
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    struct ifreq request = {.ifr_data = (void *)&info};

    if (!nic_ask(interface, SIOCETHTOOL, &request) || info.n_stats == 0 || info.n_stats > 65536)
        return;
    /* space for more counters, because their number may grow before SIOCETHTOOL reads them */
    size_t room = info.n_stats + SPARE_STATS;
    struct ethtool_gstrings *names = calloc(1, sizeof(*names) + room * ETH_GSTRING_LEN);
    struct ethtool_stats *values = calloc(1, sizeof(*values) + room * sizeof(uint64_t));
    bool ok = names && values;
    if (ok) {
        *names = (struct ethtool_gstrings){.cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS, .len = info.n_stats};
        *values = (struct ethtool_stats){.cmd = ETHTOOL_GSTATS, .n_stats = info.n_stats};
        request.ifr_data = (void *)names;
        ok = nic_ask(interface, SIOCETHTOOL, &request);
        request.ifr_data = (void *)values;
        ok = ok && nic_ask(interface, SIOCETHTOOL, &request);
    }
    for (size_t i = 0; ok && i < info.n_stats; i++)
        for (size_t k = 0; k < ARRAY_LEN(driver_names); k++) {
            char name[ETH_GSTRING_LEN + 1] = "", text[96];
            memcpy(name, names->data + i * ETH_GSTRING_LEN, ETH_GSTRING_LEN);
            if (strcmp(name, driver_names[k].name) != 0)
                continue;
            snprintf(text, sizeof(text), "%.15s %s", interface, name);
            add(drops, driver_names[k].stage, driver_names[k].loss, text, values->data[i]);
        }
    free(names);
    free(values);
}

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

static void read_softnet(const char *root, struct drops *drops)
{
    char path[PATH_MAX], line[512];
    unsigned long long dropped = 0, squeezed = 0;

    snprintf(path, sizeof(path), "%s/proc/net/softnet_stat", root);
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    while (fgets(line, sizeof(line), file)) {
        unsigned processed, d, s;
        if (sscanf(line, "%x %x %x", &processed, &d, &s) == 3) {
            dropped += d;
            squeezed += s;
        }
    }
    fclose(file);
    add(drops, STAGE_SOFTNET, true, "softnet_stat dropped", dropped);
    add(drops, STAGE_SOFTNET, false, "softnet_stat time_squeeze", squeezed);
}

/* Reads /proc/net/snmp.  The file has two lines for each protocol: the names and the values of its counters.  Each line
 * begins with the protocol's name. */
static void read_snmp(const char *root, struct drops *drops)
{
    static const struct {
        const char *protocol, *name;
        enum drops_stage stage;
    } wanted[] = {
        {"Ip:", "InHdrErrors", STAGE_IP},   {"Ip:", "InDiscards", STAGE_IP},        {"Ip:", "ReasmFails", STAGE_IP},
        {"Udp:", "InCsumErrors", STAGE_IP}, {"Udp:", "RcvbufErrors", STAGE_SOCKET}, {"Udp:", "MemErrors", STAGE_SOCKET},
    };
    char path[PATH_MAX], names[2048], values[2048];

    snprintf(path, sizeof(path), "%s/proc/net/snmp", root);
    FILE *file = fopen(path, "r");
    while (file && fgets(names, sizeof(names), file) && fgets(values, sizeof(values), file)) {
        char *name_rest, *value_rest, *protocol = strtok_r(names, " \n", &name_rest);
        strtok_r(values, " \n", &value_rest);
        for (;;) {
            char *name = strtok_r(NULL, " \n", &name_rest), *value = strtok_r(NULL, " \n", &value_rest), text[96];
            if (!protocol || !name || !value)
                break;
            for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
                if (strcmp(protocol, wanted[i].protocol) == 0 && strcmp(name, wanted[i].name) == 0) {
                    snprintf(text, sizeof(text), "%s %s, all sockets", protocol, name);
                    add(drops, wanted[i].stage, wanted[i].stage != STAGE_SOCKET, text, strtoull(value, NULL, 10));
                }
        }
    }
    if (file)
        fclose(file);
}

void drops_read(const char *root, const char *interface, struct drops *drops)
{
    drops->n = 0;
    if (interface[0]) {
        read_statistics(root, interface, drops);
        if (!root[0])
            read_driver(interface, drops);
    }
    read_softnet(root, drops);
    read_snmp(root, drops);
}

uint64_t drops_grew(const struct drops *before, const struct drops_counter *after)
{
    for (size_t i = 0; i < before->n; i++)
        if (strcmp(before->items[i].name, after->name) == 0)
            return after->value > before->items[i].value ? after->value - before->items[i].value : 0;
    return 0;
}
