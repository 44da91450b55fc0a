/* check_endpoint.c - endpoint lists as a configuration file may contain them. */
#include "common/net/endpoint.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The list as text, as endpoint_format() shows it; or NULL where it must be refused. */
static const struct {
    const char *text;
    const char *expected;
} lists[] = {
    {"239.1.2.3", "239.1.2.3:7148"},
    {"239.1.2.3:9000", "239.1.2.3:9000"},
    {"239.1.2.3+3:7148", "239.1.2.3:7148 239.1.2.4:7148 239.1.2.5:7148 239.1.2.6:7148"},
    {"239.1.2.255+1", "239.1.2.255:7148 239.1.3.0:7148"},
    {"239.1.2.3+0", "239.1.2.3:7148"},
    {" 1.2.3.4:1, 5.6.7.8:65535\n9.9.9.9,", "1.2.3.4:1 5.6.7.8:65535 9.9.9.9:7148"},
    {"255.255.255.254+1:1", "255.255.255.254:1 255.255.255.255:1"},
    {"255.255.255.254+2:1", NULL},
    {"", NULL},
    {" , ", NULL},
    {"239.1.2", NULL},
    {"239.1.2.256", NULL},
    {"host:7148", NULL},
    {"239.1.2.3:0", NULL},
    {"239.1.2.3:65536", NULL},
    {"239.1.2.3:18446744073709551617", NULL},
    {"239.1.2.3:", NULL},
    {"239.1.2.3:71a", NULL},
    {"239.1.2.3:-1", NULL},
    {"239.1.2.3+", NULL},
    {"239.1.2.3+-1", NULL},
    {"239.1.2.3+4096", NULL},
    {"239.1.2.3:7148+3", NULL},
    {"1.2.3.4, 239.1.2.3+4095", NULL},
    {"1.2.3.4 5", NULL},
    {"239.001.002.003.000000000000000000000000000000000000000000000000000000000000000000000000000001", NULL},
};

TEST(one_list, .end = ARRAY_LEN(lists))
{
    struct endpoint_list list = {77, NULL};
    char why[256] = "";
    int err = endpoint_list_parse(lists[_i].text, &list, why, sizeof(why));
    char text[1024] = "";

    if (!lists[_i].expected) {
        ck_assert_msg(err == -EINVAL, "\"%s\" is accepted", lists[_i].text);
        ck_assert_str_ne(why, "");
        ck_assert_uint_eq(list.n, 77); /* untouched */
        return;
    }
    ck_assert_msg(err == 0, "\"%s\": %s", lists[_i].text, why);
    for (size_t i = 0; i < list.n; i++) {
        char one[22];

        strcat(text, i ? " " : "");
        strcat(text, endpoint_format(&list.items[i], one, sizeof(one)));
    }
    ck_assert_str_eq(text, lists[_i].expected);
    endpoint_list_fini(&list);
    ck_assert_uint_eq(list.n, 0);
    endpoint_list_fini(&list);
}

TEST(longest_list)
{
    struct endpoint_list list;
    char why[256];
    struct endpoint last = {{0}, 7};

    ck_assert_int_eq(endpoint_list_parse("239.0.0.0+4094:7 1.2.3.4", &list, why, sizeof(why)), 0);
    ck_assert_uint_eq(list.n, ENDPOINT_LIST_MAX);
    inet_pton(AF_INET, "239.0.15.254", &last.address);
    ck_assert(endpoint_equal(&list.items[4094], &last));
    ck_assert(!endpoint_equal(&list.items[4093], &last));
    last.port = 8;
    ck_assert(!endpoint_equal(&list.items[4094], &last));
    ck_assert(endpoint_is_multicast(&list.items[0]));
    ck_assert(!endpoint_is_multicast(&list.items[4095]));
    endpoint_list_fini(&list);
}

TEST(interfaces)
{
    struct interface interface = {0};
    char why[256] = "";

    ck_assert_int_eq(endpoint_find_interface("lo", &interface, why, sizeof(why)), 0);
    ck_assert_uint_eq(ntohl(interface.address.s_addr), INADDR_LOOPBACK);
    ck_assert_int_eq(interface.index, (int)if_nametoindex("lo"));
    interface = (struct interface){0};
    ck_assert_int_eq(endpoint_find_interface("127.0.0.1", &interface, why, sizeof(why)), 0);
    ck_assert_uint_eq(ntohl(interface.address.s_addr), INADDR_LOOPBACK);
    ck_assert_int_eq(endpoint_find_interface("no-such-if", &interface, why, sizeof(why)), -ENODEV);
    ck_assert_ptr_nonnull(strstr(why, "no-such-if"));
    ck_assert_int_eq(endpoint_find_interface("192.0.2.1", &interface, why, sizeof(why)), -ENODEV);
    ck_assert_ptr_nonnull(strstr(why, "192.0.2.1"));
    ck_assert_uint_eq(ntohl(interface.address.s_addr), INADDR_LOOPBACK);
}
