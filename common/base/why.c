/* why.c - formats the sentences about failures. */
#include "common/base/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void why_say(char *why, size_t why_bytes, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, why_bytes, format, args);
    va_end(args);
}

int why_about(int err, const char *about, char *why, size_t why_bytes)
{
    size_t n = strlen(about) + strlen(": ");

    if (!err || n >= why_bytes)
        return err;
    memmove(why + n, why, why_bytes - n);
    why[why_bytes - 1] = '\0';
    memcpy(why, about, n - 2);
    memcpy(why + n - 2, ": ", 2);
    return err;
}
