/* fuzz_katcp.c - KATCP's grammar on any bytes.  The parser refuses lines that are no message.  A message can be written
 * again. */
#include "common/katcp/message.h"
#include "tests/fuzz/fuzz_input.h"

/* What was read, written again, reads the same. */
static void check_round_trip(const struct katcp_message *message)
{
    struct katcp_message again = {0};
    struct katcp_text text = {0};

    katcp_text_begin(&text, message->type, message->name, message->mid);
    for (size_t i = 0; i < message->n_args; i++)
        katcp_text_add_arg(&text, message->args[i]);
    katcp_text_end(&text);
    assert(text.bytes[text.n - 1] == '\n');
    assert(!katcp_message_parse(text.bytes, text.n - 1, &again));
    assert(again.type == message->type && again.mid == message->mid && !strcmp(again.name, message->name));
    assert(again.n_args == message->n_args && !again.has_nul);
    for (size_t i = 0; i < again.n_args; i++)
        assert(!strcmp(again.args[i], message->args[i]));
    katcp_message_fini(&again);
    katcp_text_fini(&text);
}

/* The whole input as one line, with the one byte behind it that there must be. */
static void parse(const uint8_t *data, size_t n_bytes)
{
    struct katcp_message message = {0};
    char *line = (char *)fuzz_exact(n_bytes + 1);

    if (n_bytes > 0)
        memcpy(line, data, n_bytes);
    if (!memchr(line, '\n', n_bytes) && !memchr(line, '\r', n_bytes) && !katcp_message_parse(line, n_bytes, &message) &&
        message.type)
        check_round_trip(&message);
    katcp_message_fini(&message);
    free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    parse(data, n_bytes);
    return 0;
}
