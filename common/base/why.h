/* why.h - the one sentence that explains a failure.
 *
 * A function has an argument 'why' if the operator can remove the cause of its failure.  The function writes the
 * sentence to 'why', and the caller prints the sentence. */
#ifndef COMMON_BASE_WHY_H
#define COMMON_BASE_WHY_H

#include <errno.h>
#include <stddef.h>

/* Writes the sentence into 'why'.  The value of the macro is 'err', which the caller returns.  why_fail() is a macro,
 * so that the compiler sees that 'err' is not 0. */
#define why_fail(err, ...)                (why_say(__VA_ARGS__), (err))
#define why_out_of_memory(why, why_bytes) why_fail(-ENOMEM, why, why_bytes, "out of memory")

void why_say(char *why, size_t why_bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "about: " before the sentence in 'why', unless 'err' is 0.  Returns 'err'. */
int why_about(int err, const char *about, char *why, size_t why_bytes);

#endif
