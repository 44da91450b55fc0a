/* sections.c - the keys of the sections that several programs share. */
#include "common/sections.h"

#include "common/device.h"
#include "common/file.h"
#include "common/http_names.h"
#include "common/katcp_access.h"
#include "common/thread.h"
#include "common/units.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const timebase_choices[] = {"clock", "packets", NULL};
const char *const config_transport_choices[] = {"udp", "ibverbs", NULL}; /* enum transport */
static const char *const device_choices[] = {"auto", "cpu", "cuda", NULL};

#define AT(member) offsetof(struct config_time, member)
const struct config_key config_time_keys[] = {
    {"sync_time", CFG_DECIMAL, UNIT_S, 0, 4e9, NULL, false, AT(sync_time_s), NULL,
     "UNIX time of ADC sample 0, as the digitisers were synchronised.", .example = "1700000000"},
    {"adc_sample_rate", CFG_DECIMAL, UNIT_HZ, 1, 1e11, NULL, false, AT(adc_sample_rate_hz), NULL,
     "Samples per second of each digitiser.", .example = "1712000000"},
    {"timebase", CFG_ENUM, UNIT_NONE, 0, 0, "clock", false, AT(timebase), timebase_choices,
     "How the first 48-bit timestamp is placed: by the host's clock, or as it is (recordings)."},
    {"clock_tolerance", CFG_DOUBLE, UNIT_S, 0, 1e6, "10", false, AT(clock_tolerance_s), NULL,
     "With timebase clock: timestamps do not jump further from the host's clock than this while the kernel calls the "
     "clock synchronised; 0: as far as they like. visrec adds two dumps."},
};
#undef AT

#define AT(member) offsetof(struct config_device, member)
const struct config_key config_device_keys[] = {
    {"kind", CFG_ENUM, UNIT_NONE, 0, 0, "auto", false, AT(kind), device_choices,
     "Where the kernels run; auto takes CUDA where there is a GPU that will do."},
    {"gpu", CFG_STRING, UNIT_NONE, 1, 64, "auto", false, AT(gpu), NULL,
     "Which GPU, by index, UUID (GPU-...) or PCI address (0000:3b:00.0); auto is the first that will do."},
    {"threads", CFG_INT, UNIT_NONE, 0, 1024, "0", false, AT(n_threads), NULL,
     "Threads per kernel on the CPU device; 0 is one per core."},
    {"kernel_cache", CFG_STRING, UNIT_NONE, 0, 4000, "", false, AT(kernel_cache), NULL,
     "Directory that keeps compiled CUDA kernels; empty is the service's (CacheDirectory=) or else the user's."},
};
#undef AT

#define AT(member) offsetof(struct config_send, member)
const struct config_key config_send_keys[CONFIG_N_FGPU_SEND_KEYS] = {
    {"transport", CFG_ENUM, UNIT_NONE, 0, 0, "udp", false, AT(transport), config_transport_choices,
     "How packets leave: through a socket, or by ibverbs from a raw packet queue of the card that interface belongs "
     "to."},
    {"interface", CFG_STRING, UNIT_NONE, 0, 64, "", false, AT(interface), NULL,
     "Interface, by name or address, on which multicast is sent; empty is the kernel's choice."},
    {"pcap_file", CFG_STRING, UNIT_NONE, 0, 4096, "", false, AT(pcap_file), NULL,
     "Write all packets to this capture instead of the network."},
    {"ttl", CFG_INT, UNIT_NONE, 0, 255, "4", false, AT(ttl), NULL, "Time to live of multicast packets."},
    {"buffer", CFG_INT, UNIT_BYTES, 0, 4294967296.0, "1048576", false, AT(buffer_bytes), NULL,
     "Socket buffer of each stream; 0 leaves the kernel's default."},
    {"packet_payload", CFG_INT, UNIT_BYTES, 8, 65000, "8192", false, AT(packet_payload_bytes), NULL,
     "Payload bytes per packet; a multiple of 8."},
    {"rate_factor", CFG_DOUBLE, UNIT_NONE, 0, 100, "1.1", false, AT(rate_factor), NULL,
     "Sending rate over real-time rate; 0 sends without pacing."},
    {"threads", CFG_INT, UNIT_NONE, 1, 256, "1", false, AT(n_threads), NULL,
     "Send threads, among which streams are dealt; in fgpu, where there are more threads, their destinations."},
    {"affinity", CFG_INT_LIST, UNIT_NONE, -1, 4095, "", false, AT(affinity), NULL,
     "CPU of each send thread, repeated as needed; none: not pinned."},
    {"crc", CFG_BOOL, UNIT_NONE, 0, 0, "false", false, AT(crc), NULL,
     "Each packet carries a CRC32C of all its bytes, as an item that katgpucbf does not have; xbgpu and visrec check "
     "it."},
    {"array_size", CFG_INT, UNIT_NONE, 1, 65536, "65536", false, AT(array_size), NULL,
     "Antennas in the array: the step of heap counts; descriptors are sent every 5 s times this."},
    {"gpudirect", CFG_BOOL, UNIT_NONE, 0, 0, "false", false, AT(gpudirect), NULL,
     "With transport ibverbs: the network card reads heaps straight from the GPU's memory, by dma-buf "
     "(docs/operation.md)."},
};
#undef AT

#define AT(member) offsetof(struct config_http, member)
const struct config_key config_http_keys[] = {
    {"listen", CFG_ENDPOINTS, UNIT_NONE, 0, 1, "", false, AT(listen), NULL,
     "Address and port of /metrics and /healthz, and of fgpu, xbgpu and visrec the status page; none: not served."},
    {"allow", CFG_STRING, UNIT_NONE, 0, 4096, "", false, AT(allow), NULL,
     "Networks whose clients are served, 10.0.0.0/8, 192.168.1.7: comma separated; empty: all."},
    {"names", CFG_STRING, UNIT_NONE, 0, 4096, "", false, AT(names), NULL,
     "Names that requests may have in Host:, besides addresses, localhost, the host's name and what /etc/hosts has "
     "beside that: comma separated."},
};
#undef AT

#define AT(member) offsetof(struct config_katcp, member)
const struct config_key config_katcp_keys[] = {
    {"listen", CFG_ENDPOINTS, UNIT_NONE, 0, 1, "", false, AT(listen), NULL,
     "Address and port of KATCP, 127.0.0.1:7147 for this host's programs alone; without a port 7147; none: not "
     "served.",
     .port = KATCP_DEFAULT_PORT},
    {"read_only_listen", CFG_ENDPOINTS, UNIT_NONE, 0, 1, "", false, AT(read_only_listen), NULL,
     "Address and port where KATCP only answers, and changes nothing; without a port 7147; none: not served.",
     .port = KATCP_DEFAULT_PORT},
    {"allow", CFG_STRING, UNIT_NONE, 0, 4096, "", false, AT(allow), NULL,
     "Networks whose clients are served, 10.0.0.0/8, 192.168.1.7: comma separated; any: all. Needed where listen is no "
     "address of 127.0.0.0/8; read_only_listen serves all without it."},
    {"max_clients", CFG_INT, UNIT_NONE, 1, 1000, "100", false, AT(max_clients), NULL,
     "Clients that are served at once by listen, and as many by read_only_listen."},
    {"halt_stays", CFG_BOOL, UNIT_NONE, 0, 0, "false", false, AT(halt_stays), NULL,
     "A ?halt from another host ends the program with 0, after which systemd does not start it again; without this it "
     "acts as ?restart."},
};
#undef AT

void config_check_http(const struct config_http *http, struct config *errors)
{
    struct katcp_access access;
    char why[200];

    if (katcp_access_parse(http->allow, &access, why, sizeof(why)))
        config_error(errors, &http->allow, "allow: %s", why);
    if (http_names_check(http->names, why, sizeof(why)))
        config_error(errors, &http->names, "names: %s", why);
}

/* Two listeners of one program on one port; an error at the second. */
static void check_listeners(const struct endpoint_list *first, const struct endpoint_list *second,
                            struct config *errors)
{
    if (first->n && second->n && endpoints_collide(&first->items[0], &second->items[0]))
        config_error(errors, second, "%s and %s both have port %u: give one of them another port", first->items[0].key,
                     second->items[0].key, (unsigned)second->items[0].port);
}

void config_check_katcp(const struct config_katcp *katcp, const struct config_http *http, struct config *errors)
{
    struct katcp_access access;
    char why[200];

    check_listeners(&katcp->listen, &katcp->read_only_listen, errors);
    check_listeners(&http->listen, &katcp->listen, errors);
    check_listeners(&http->listen, &katcp->read_only_listen, errors);
    if (katcp_access_parse(katcp->allow, &access, why, sizeof(why)))
        config_error(errors, &katcp->allow, "allow: %s", why);
    else if (katcp->listen.n && access.n == 0 && !katcp_access_is_local(katcp->listen.items[0].address))
        config_error(errors, &katcp->listen,
                     "listen can be reached from other hosts, so allow must name the networks that may control this "
                     "program, or say any");
}

#define AT(member) offsetof(struct config_state, member)
const struct config_key config_state_keys[] = {
    {"directory", CFG_STRING, UNIT_NONE, 0, 4000, "", false, AT(directory), NULL,
     "Directory that keeps what is set over KATCP; it goes before what this file says. Empty is the service's "
     "(StateDirectory=), or nothing is kept."},
};
#undef AT

/* Checks the form alone; the start finds whether there is such a GPU. */
static bool is_gpu_name(const char *gpu)
{
    static const char *const formats[] = {"%*x:%*x:%*x.%*x%n", "%*x:%*x:%*x%n", "%*x:%*x.%*x%n", "%*x:%*x%n"};
    const char *dashed = gpu + 4;
    int n;

    if (strcmp(gpu, "auto") == 0 || strspn(gpu, "0123456789") == strlen(gpu))
        return true;
    if (strncasecmp(gpu, "GPU-", 4) == 0)
        return strlen(dashed) == 36 && strspn(dashed, "0123456789abcdefABCDEF-") == 36;
    for (size_t k = 0; k < ARRAY_LEN(formats); k++) {
        n = 0;
        sscanf(gpu, formats[k], &n);
        if (n > 0 && !gpu[n])
            return true;
    }
    return false;
}

void config_check_device(const struct config_device *device, struct config *errors)
{
    if (!is_gpu_name(device->gpu))
        config_error(errors, &device->gpu,
                     "gpu must be auto, an index, a UUID (GPU-...) or a PCI address (0000:3b:00.0), not \"%s\"",
                     device->gpu);
}

/* Keys of recv or send. */
static void check_gpudirect(const bool *gpudirect, int transport, const char *pcap_file,
                            const struct config_device *device, struct config *errors)
{
    if (!*gpudirect)
        return;
    if (transport != TRANSPORT_IBVERBS || pcap_file)
        config_error(errors, gpudirect, "gpudirect needs transport: ibverbs%s", pcap_file ? ", and no pcap_file" : "");
    else if (device->kind == DEVICE_CPU)
        config_error(errors, gpudirect, "gpudirect needs a GPU, and device.kind is cpu");
}

void config_check_direct(const bool *direct, const bool *gpudirect, int transport, const char *pcap_file,
                         const struct config_device *device, struct config *errors)
{
    if (*gpudirect && *direct)
        config_error(errors, direct, "direct and gpudirect exclude each other: who is to write to the GPU's memory?");
    else
        check_gpudirect(gpudirect, transport, pcap_file, device, errors);
}

void config_check_transport(const int *transport, const char *interface, const char *pcap_file, struct config *errors)
{
    if (*transport == TRANSPORT_IBVERBS && !interface && !pcap_file)
        config_error(errors, transport, "transport: ibverbs needs an interface to be named: whose card is meant?");
}

void config_check_multicast(const struct endpoint_list *destinations, struct config *errors)
{
    char text[32];

    for (size_t i = 0; i < destinations->n; i++) {
        if (endpoint_is_multicast(&destinations->items[i]))
            continue;
        config_error(errors, destinations, "%s is not a multicast address, which send.transport ibverbs needs",
                     endpoint_format(&destinations->items[i], text, sizeof(text)));
        return;
    }
}

void config_check_destinations(const struct config_send *send, const struct endpoint_list *destinations,
                               struct config *errors)
{
    if (send->transport == TRANSPORT_IBVERBS && !send->pcap_file)
        config_check_multicast(destinations, errors);
}

void config_check_send(const struct config_send *send, const struct config_device *device, const char *recv_pcap_file,
                       struct config *errors)
{
    if (send->rate_factor > 0 && send->rate_factor < 1)
        config_error(errors, &send->rate_factor,
                     "rate_factor must be at least 1, or 0 for no pacing, not %g: slower than real time loses data",
                     send->rate_factor);
    config_check_transport(&send->transport, send->interface, send->pcap_file, errors);
    check_gpudirect(&send->gpudirect, send->transport, send->pcap_file, device, errors);
    if (send->gpudirect && send->crc)
        config_error(errors, &send->crc, "crc and gpudirect exclude each other: the CPU does not see the payloads");
    if (files_are_same(recv_pcap_file, send->pcap_file))
        config_error(errors, &send->pcap_file, "send.pcap_file would overwrite the capture that is read");
    if (send->packet_payload_bytes % 8 != 0)
        config_error(errors, &send->packet_payload_bytes, "packet_payload must be a multiple of 8, not %lld",
                     (long long)send->packet_payload_bytes);
}

void config_check_from(char *const *from, struct katcp_access *senders, struct config *errors)
{
    char why[200];

    if (katcp_access_parse(*from, senders, why, sizeof(why)))
        config_error(errors, from, "from: %s", why);
}

void config_set_senders(struct endpoint_list *list, const struct katcp_access *senders)
{
    for (size_t i = 0; i < list->n; i++)
        list->items[i].from = senders;
}

bool config_check_loop(const struct endpoint_list *inputs, const struct endpoint_list *destinations,
                       struct config *errors)
{
    char text[32];

    for (size_t d = 0; d < destinations->n; d++)
        for (size_t i = 0; i < inputs->n; i++)
            if (endpoint_equal(&destinations->items[d], &inputs->items[i])) {
                config_error(errors, destinations,
                             "%s is received as %s: the program would receive its own output; send to other addresses",
                             endpoint_format(&destinations->items[d], text, sizeof(text)), inputs->items[i].key);
                return true;
            }
    return false;
}

void config_check_sources(const struct endpoint_list *list, struct config *errors)
{
    char text[32];

    for (size_t i = 0; i < list->n; i++)
        for (size_t j = 0; j < i; j++)
            if (endpoint_equal(&list->items[i], &list->items[j])) {
                config_error(errors, list, "%s is given twice", endpoint_format(&list->items[i], text, sizeof(text)));
                return;
            }
}

int config_check_cpus(const struct config_int_list *recv, const struct config_int_list *send, char *why,
                      size_t why_bytes)
{
    int err = threads_check_cpus(recv->items, recv->n, "recv.affinity", why, why_bytes);

    return err ? err : threads_check_cpus(send->items, send->n, "send.affinity", why, why_bytes);
}
