/* keys.c - checks of keys that recv sections have. */
#include "common/recv/keys.h"

#include "common/device/keys.h"
#include "common/net/endpoint.h"
#include "common/net/access.h"

void recv_keys_check_direct(const bool *direct, const bool *gpudirect, int transport, const char *pcap_file,
                            const struct config_device *device, struct config *errors)
{
    if (*gpudirect && *direct)
        config_error(errors, direct, "direct and gpudirect exclude each other: who is to write to the GPU's memory?");
    else
        device_keys_check_gpudirect(gpudirect, transport, pcap_file, device, errors);
}

void recv_keys_check_from(char *const *from, struct access *senders, struct config *errors)
{
    char why[200];

    if (access_parse(*from, senders, why, sizeof(why)))
        config_error(errors, from, "from: %s", why);
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
