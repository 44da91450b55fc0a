/* keys.c - checks the keys of the section recv. */
#include "common/recv/keys.h"

#include "common/device/keys.h"
#include "common/net/endpoint.h"
#include "common/net/access.h"
#include "common/base/units.h"
#include "common/recv/source.h"

void recv_keys_check_from(char *const *from, struct access *senders, struct config *errors)
{
    char why[200];

    if (access_parse(*from, senders, why, sizeof(why)))
        config_error(errors, from, "from: %s", why);
}

void recv_keys_check(struct config_recv *recv, const struct config_device *device, struct config *errors)
{
    recv_keys_check_from(&recv->from, &recv->senders, errors);
    if (recv->gpudirect && recv->direct)
        config_error(errors, &recv->direct, "direct and gpudirect exclude each other: set only one of them");
    else if (device)
        device_keys_check_gpudirect(&recv->gpudirect, recv->transport, recv->pcap_file, device, errors);
    config_check_transport(&recv->transport, recv->interface, recv->pcap_file, errors);
}

struct recv_source_config recv_keys_source(const struct config_recv *recv, const struct endpoint_list *endpoints,
                                           size_t t, struct device *device)
{
    return (struct recv_source_config){
        .endpoints = endpoints,
        .interface = recv->interface,
        .buffer_bytes = (size_t)recv->buffer_bytes,
        .transport = recv->transport,
        .device = recv->gpudirect ? device : NULL,
        .comp_vector = recv->comp_vector < 0 ? -1 : (int)recv->comp_vector + (int)t,
        .busy_poll_ns = recv->busy_poll_us * NS_PER_US,
        .pcap_file = recv->pcap_file,
    };
}

void recv_keys_set_senders(struct endpoint_list *list, const struct access *senders)
{
    for (size_t i = 0; i < list->n; i++)
        list->items[i].from = senders;
}

void recv_keys_check_sources(const struct endpoint_list *list, struct config *errors)
{
    char text[32];

    for (size_t i = 0; i < list->n; i++)
        for (size_t j = 0; j < i; j++)
            if (endpoint_equal(&list->items[i], &list->items[j])) {
                config_error(errors, list, "%s is given twice", endpoint_format(&list->items[i], text, sizeof(text)));
                return;
            }
}
