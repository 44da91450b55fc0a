/* why.c - beside every function that can fail: its sentence for the operator. */
#include "common/base/why.h"

#include <stdarg.h>
#include <stdio.h>

void why_say(char *why, size_t why_bytes, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, why_bytes, format, args);
    va_end(args);
}
