/* fake_trouble.c - the requests of environment variables: failures, limits, a trace.  See README.md. */
#include "fake_verbs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rule {
    char name[64];
    int value;
    long at; /* the number of the call; 0: each */
    atomic_long n_calls;
};

static struct rule rules[32];
static size_t n_rules;
static bool has_completion_rules;
static FILE *trace;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
    const char *name;
    int value;
} values[] = {
    {"ENOMEM", ENOMEM},
    {"EINVAL", EINVAL},
    {"EPERM", EPERM},
    {"EACCES", EACCES},
    {"ENODEV", ENODEV},
    {"EIO", EIO},
    {"EBUSY", EBUSY},
    {"EFAULT", EFAULT},
    {"EAGAIN", EAGAIN},
    {"ENOSYS", ENOSYS},
    {"EOPNOTSUPP", EOPNOTSUPP},
    {"EADDRNOTAVAIL", EADDRNOTAVAIL},
    {"IBV_WC_LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},
    {"IBV_WC_LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
    {"IBV_WC_LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},
    {"IBV_WC_WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR},
    {"IBV_WC_RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},
    {"IBV_WC_FATAL_ERR", IBV_WC_FATAL_ERR},
    {"IBV_WC_GENERAL_ERR", IBV_WC_GENERAL_ERR},
    {"removal", 1},
};

static int value_of(const char *name)
{
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        if (strcmp(values[i].name, name) == 0)
            return values[i].value;
    fprintf(stderr, "fake verbs: CBF_FAKE_VERBS_FAIL: '%s' is not known\n", name);
    abort();
}

/* "NAME:VALUE@N", or "removal@N". */
static void read_rule(const char *text)
{
    struct rule *rule = &rules[n_rules];
    char value[64] = "removal";
    int n = sscanf(text, "%63[^:@]:%63[^@]@%ld", rule->name, value, &rule->at);

    if (n == 1)
        sscanf(text, "%*[^@]@%ld", &rule->at);
    rule->value = value_of(n == 1 ? rule->name : value);
    has_completion_rules |= strcmp(rule->name, "completion") == 0 || strcmp(rule->name, "removal") == 0;
    n_rules++;
}

static void begin(void)
{
    const char *path = getenv("CBF_FAKE_VERBS_TRACE"), *text = getenv("CBF_FAKE_VERBS_FAIL");
    char *copy = text ? strdup(text) : NULL, *rest = copy;

    if (path && !(trace = fopen(path, "ae")))
        fprintf(stderr, "fake verbs: %s: %m\n", path);
    for (char *part; (part = strsep(&rest, ",")) && n_rules < sizeof(rules) / sizeof(rules[0]);)
        if (*part)
            read_rule(part);
    free(copy);
}

/* What the rule of 'name' has for this call; counts it. */
static int due(const char *name)
{
    int value = 0;

    pthread_once(&once, begin);
    for (size_t i = 0; i < n_rules; i++) {
        if (strcmp(rules[i].name, name))
            continue;
        long n = atomic_fetch_add(&rules[i].n_calls, 1) + 1;
        if (rules[i].at == 0 || rules[i].at == n)
            value = rules[i].value;
    }
    return value;
}

int fake_fails(const char *name)
{
    int error = due(name);

    if (error)
        fake_trace("%s fails as asked: %s", name, strerror(error));
    return error;
}

enum ibv_wc_status fake_completion_status(void)
{
    pthread_once(&once, begin);
    return has_completion_rules ? (enum ibv_wc_status)due("completion") : IBV_WC_SUCCESS;
}

bool fake_is_removal_due(void)
{
    pthread_once(&once, begin);
    return has_completion_rules && due("removal");
}

long fake_limit(const char *name, long otherwise)
{
    const char *at = getenv("CBF_FAKE_VERBS_LIMITS");
    size_t n = strlen(name);

    for (; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return atol(at + n + 1);
    return otherwise;
}

static void write_line(FILE *to, const char *prefix, const char *format, va_list args)
{
    flockfile(to);
    fprintf(to, "%s", prefix);
    vfprintf(to, format, args);
    fprintf(to, "\n");
    fflush(to);
    funlockfile(to);
}

void fake_trace(const char *format, ...)
{
    va_list args;

    pthread_once(&once, begin);
    if (!trace)
        return;
    va_start(args, format);
    write_line(trace, "", format, args);
    va_end(args);
}

void fake_complain(const char *format, ...)
{
    va_list args;

    pthread_once(&once, begin);
    va_start(args, format);
    write_line(stderr, "fake verbs: ", format, args);
    va_end(args);
    if (!trace)
        return;
    va_start(args, format);
    write_line(trace, "complaint: ", format, args);
    va_end(args);
}
