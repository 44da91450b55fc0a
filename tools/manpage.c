/* manpage.c - writes the manual pages when the packages are built: "manpage fgpu.1 docs/reference/fgpu.txt", "manpage
 * fgpu.yaml.5".
 *
 * What programs have in common, and every key, comes from the tables, and requests, sensors and metrics from what a
 * running program said of them (tests/system/reference.py); here is what neither says.  The pages are mdoc. */
#include "common/config/config.h"
#include "common/daemon/service.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "fgpu/config.h"
#include "tools/dsim/config.h"
#include "tools/fsim/config.h"
#include "tools/visrec/config.h"
#include "xbgpu/config.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINE_COLUMNS 78

struct manual {
    const struct config_table *table;
    const char *what;        /* "the F-engine", for the configuration's page */
    const char *summary;     /* of the program, for NAME */
    const char *description; /* mdoc */
    bool is_engine;          /* has a device, and a unit of systemd */
    const char *see_also;    /* mdoc, each line ends with a comma */
};

static const struct manual manuals[] = {
    {&fgpu_config_table, "the F-engine fgpu", "F-engine of a radio telescope's correlator",
     "receives the digitiser packets of antennas (SPEAD over UDP multicast), channelises both polarisations with a\n"
     "polyphase filter bank, applies delays and gains, and sends the quantised voltages as SPEAD heaps, over the "
     "whole\n"
     "band and in narrow bands within it.\n"
     "It runs on an NVIDIA GPU where there is one, and else on the CPU.\n"
     ".Pp\n"
     "On a GPU\n"
     ".Fl Fl tune\n"
     "measures for each size of output how the work is best cut, a minute for each, and keeps the choice beside the\n"
     "compiled kernels, where the next start finds it.\n",
     true, ".Xr dsim 1 ,\n.Xr xbgpu 1 ,\n"},
    {&xbgpu_config_table, "the X-engine xbgpu", "X-engine of a radio telescope's correlator",
     "receives one slice of the band from the F-engines of all antennas (SPEAD over UDP multicast), correlates all\n"
     "baselines, accumulates exactly, and sends the visibilities as SPEAD heaps, with several integration times at "
     "once,\n"
     "of all spectra or of those that a gate takes.\n"
     "For every dump it sums a few products again on the host and compares them bit for bit.\n"
     "It runs on an NVIDIA GPU where there is one, and else on the CPU.\n",
     true, ".Xr fgpu 1 ,\n.Xr fsim 1 ,\n.Xr visrec 1 ,\n"},
    {&dsim_config_table, "the digitiser simulator dsim", "simulator of a radio telescope's digitisers",
     "sends what the digitisers of many antennas would: computed tones, combs, noise and delays, also such that drift, "
     "or\n"
     "recordings, raw or VDIF.\n",
     false, ".Xr fgpu 1 ,\n"},
    {&fsim_config_table, "the F-engine simulator fsim", "simulator of the F-engines of a whole array",
     "sends what the F-engines of an array would send to an X-engine: patterns whose visibilities are known, noise, "
     "or\n"
     "recordings of channels.\n",
     false, ".Xr xbgpu 1 ,\n"},
    {&visrec_config_table, "the recorder visrec", "recorder of visibilities",
     "receives the visibilities of all X-engines, joins the slices of the band, and writes them to a UVH5 file, which\n"
     "pyuvdata reads.\n"
     "The file is complete up to the last dump at any time, and it ends with the streams, with\n"
     ".Ic output.max_dumps ,\n"
     "or with a signal.\n",
     false, ".Xr xbgpu 1 ,\n"},
};

/* The day of the build, or of $SOURCE_DATE_EPOCH, as mdoc has it. */
static void print_date(FILE *out)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t now = epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    struct tm utc;
    char month[32];

    gmtime_r(&now, &utc);
    strftime(month, sizeof(month), "%B", &utc);
    fprintf(out, ".Dd %s %d, %d\n", month, utc.tm_mday, utc.tm_year + 1900);
}

static void print_title(const char *name, int section, FILE *out)
{
    print_date(out);
    fputs(".Dt ", out);
    for (const char *c = name; *c; c++)
        fputc(toupper((unsigned char)*c), out);
    fprintf(out, " %d\n.Os gpucbf %s\n", section, CBF_VERSION);
}

/* ---- The program's page ------------------------------------------------------------------------------------------ */

static void print_synopsis(const struct manual *manual, FILE *out)
{
    const char *program = manual->table->program;

    fprintf(out, ".Sh NAME\n.Nm %s\n.Nd %s\n", program, manual->summary);
    fprintf(out, ".Sh SYNOPSIS\n.Nm %s\n.Op Fl Fl check-config | Fl Fl print-config%s\n.Ar file\n", program,
            manual->table->tunes ? " | Fl Fl tune" : "");
    fprintf(out, ".Nm %s\n.Fl Fl print-schema | Fl Fl print-example | Fl Fl version | Fl Fl help\n", program);
}

static void print_description(const struct manual *manual, FILE *out)
{
    fprintf(out,
            ".Sh DESCRIPTION\n.Nm\n%s.Pp\n"
            "The configuration\n.Ar file\nis YAML;\n.Xr %s.yaml 5\ndescribes it.\n"
            "Without an option\n.Nm\nruns until a signal ends it%s.\nWith one it does something else instead:\n",
            manual->description, manual->table->program, manual->is_engine ? "" : ", or what it has to do is done");
    config_print_man_options(manual->table, out);
    fprintf(out,
            ".Pp\nA start that fails says one sentence, with the key to look at, its line and what to do, and leaves "
            "nothing behind.\n"
            "Messages go to the journal where systemd started the program, else to standard error.\n"
            "With\n.Ic http.listen\nset,\n.Pa /metrics\nserves counters to Prometheus and\n.Pa /healthz\n"
            "says whether all is well.\n");
    fputs(".Sh SIGNALS\n.Bl -tag -width Ds\n.It Dv SIGTERM , SIGINT\n", out);
    fputs(manual->is_engine ? "Drains: what has been received is processed and sent, then a stop heap leaves on every "
                              "stream.\n"
                              "A second signal ends the process at once, with exit status 1.\n"
                            : "Ends what is under way in good order.\n"
                              "A second signal ends the process at once, with exit status 1.\n",
          out);
    fputs(".El\n", out);
}

static void print_environment(const struct manual *manual, FILE *out)
{
    fputs(".Sh ENVIRONMENT\n.Bl -tag -width Ds\n"
          ".It Ev NOTIFY_SOCKET , WATCHDOG_USEC\n"
          "As systemd sets them for\n.Cm Type=notify\nand\n.Cm WatchdogSec= :\n"
          "readiness and status are reported, and the watchdog is fed while every thread passes its loop.\n",
          out);
    if (manual->is_engine)
        fputs(".It Ev CACHE_DIRECTORY , XDG_CACHE_HOME , HOME\n"
              "Where compiled kernels are kept unless\n.Ic device.kernel_cache\nsays so: in the first that is set, in "
              ".cache/cbf of the last.\n"
              ".It Ev STATE_DIRECTORY\n"
              "Where settings made while running are kept.\n"
              ".It Ev CUDA_VISIBLE_DEVICES , CUDA_DEVICE_ORDER\n"
              "Which GPUs CUDA shows, and in which order.\n",
              out);
    fputs(".El\n", out);
}

static void print_files(const struct manual *manual, FILE *out)
{
    const char *program = manual->table->program;

    fputs(".Sh FILES\n.Bl -tag -width Ds\n", out);
    if (manual->is_engine)
        fprintf(out,
                ".It Pa /etc/cbf/NAME.yaml\nThe configuration of the service\n.Cm %s@NAME .\n"
                ".It Pa /var/lib/cbf/NAME\nIts state.\n"
                ".It Pa /var/cache/cbf/NAME\nIts compiled kernels.\n",
                program);
    fprintf(out, ".It Pa /usr/share/cbf/config\nExamples.\n.El\n");
}

static void print_end(const struct manual *manual, FILE *out)
{
    const char *program = manual->table->program;

    fprintf(
        out,
        ".Sh EXIT STATUS\n.Bl -tag -width Ds\n"
        ".It 0\nA clean end.\n"
        ".It %d\nAsked to by\n.Ic \"?restart\"\nover KATCP, where the program has it: the service is started again.\n"
        ".It %d\nA restart will not help: a mistake in the file or on the command line, an interface, address, "
        "capture or CPU that does not exist.\n"
        "The service is not restarted.\n"
        ".It 1\nEverything else: a port in use, an interface that is down, too little memory, a device that failed.\n"
        ".El\n",
        EXIT_RESTART, EXIT_CONFIG);
    fprintf(
        out,
        ".Sh EXAMPLES\nA configuration with every key explained, its check, and a run:\n.Bd -literal -offset indent\n"
        "%s --print-example > my.yaml\n%s --check-config my.yaml\n%s my.yaml\n.Ed\n",
        program, program, program);
    if (manual->is_engine)
        fprintf(out,
                ".Pp\nThe same as a service, from now on and after every boot:\n.Bd -literal -offset indent\n"
                "cp my.yaml /etc/cbf/gpu0.yaml\nsystemctl enable --now %s@gpu0 gpucbf.target\nsystemctl status "
                "%s@gpu0\n.Ed\n",
                program, program);
}

/* ---- Its requests, sensors and metrics --------------------------------------------------------------------------- */

static void print_item(const char *item, FILE *out)
{
    fputs(".It Ic \"", out); /* quoted, so that no word of it is a macro */
    for (const char *c = item; *c; c++)
        fprintf(out, "%s%c", *c == '-' ? "\\" : "", *c); /* "\-" is what can be copied to a command line */
    fputs("\"\n", out);
}

/* Prints what was gathered of a text, if anything. */
static void print_text(char *text, FILE *out)
{
    if (text[0])
        config_print_man_text(text, out);
    text[0] = '\0';
}

/* Lines in the first column are sections, in capitals, and their items; text is indented. */
static void print_lines(FILE *reference, FILE *out)
{
    char line[512], text[4096] = "";
    bool in_list = false;

    while (fgets(line, sizeof(line), reference)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == ' ') {
            size_t n = strlen(text);
            int added = snprintf(text + n, sizeof(text) - n, "%s%s", n ? " " : "", line + strspn(line, " "));
            assert(n + (size_t)added < sizeof(text));
            continue;
        }
        print_text(text, out);
        if (line[0] == '\0')
            continue;
        bool is_section = line[strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] == '\0';
        if (is_section)
            fprintf(out, "%s.Sh %s\n", in_list ? ".El\n" : "", line);
        else if (!in_list)
            fputs(".Bl -tag -width Ds\n", out);
        in_list = !is_section;
        if (!is_section)
            print_item(line, out);
    }
    print_text(text, out);
    fputs(in_list ? ".El\n" : "", out);
}

static int print_reference(const char *path, FILE *out)
{
    FILE *reference = fopen(path, "r");

    if (!reference) {
        perror(path);
        return -EIO;
    }
    print_lines(reference, out);
    fclose(reference);
    return 0;
}

static int print_program(const struct manual *manual, const char *reference, FILE *out)
{
    print_title(manual->table->program, 1, out);
    print_synopsis(manual, out);
    print_description(manual, out);
    print_environment(manual, out);
    print_files(manual, out);
    print_end(manual, out);
    int err = print_reference(reference, out);
    fprintf(out, ".Sh SEE ALSO\n%s.Xr %s.yaml 5\n", manual->see_also, manual->table->program);
    return err;
}

/* ---- The configuration's page ------------------------------------------------------------------------------------ */

static int print_configuration(const struct manual *manual, const char *reference, FILE *out)
{
    const char *program = manual->table->program;
    char name[64];

    snprintf(name, sizeof(name), "%s.yaml", program);
    print_title(name, 5, out);
    fprintf(out, ".Sh NAME\n.Nm %s\n.Nd configuration of %s\n", name, manual->what);
    fprintf(
        out,
        ".Sh DESCRIPTION\nThe file is YAML: a mapping of sections, each of which is a mapping of keys, or a list of "
        "such mappings.\n"
        "A key that is unknown, missing or out of range is an error, and\n.Ql %s --check-config\nreports all errors of "
        "a file with their places.\n"
        "A number is written without its unit.\n"
        "Addresses are\n.Ar a.b.c.d Ns Op Cm + Ns Ar n Ns Op Cm \\&: Ns Ar port :\n"
        ".Cm + Ns Ar n\nstands for that address and the\n.Ar n\nthat follow; several are separated by commas.\n",
        program);
    config_print_man_keys(manual->table, out);
    fprintf(out, ".Sh EXAMPLES\nWhat must be given, and little more:\n");
    config_print_man_example(manual->table, out);
    fprintf(out, ".Sh SEE ALSO\n.Xr %s 1\n", program);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------------------ */

/* Writes a page with its lines of text broken between words: nobody reads the source, but whoever checks it asks. */
static void print_wrapped(const char *page)
{
    bool literal = false;

    while (*page) {
        size_t n = strcspn(page, "\n");
        if (!strncmp(page, ".Bd", 3) || !strncmp(page, ".Ed", 3))
            literal = page[1] == 'B';
        while (n > LINE_COLUMNS && page[0] != '.' && !literal) {
            size_t here = LINE_COLUMNS;
            while (here > 0 && page[here] != ' ')
                here--;
            here = here ? here : strcspn(page, " \n");
            printf("%.*s\n", (int)here, page);
            page += here + (page[here] == ' ');
            n -= here + (n > here);
            if (page[0] == '.' || page[0] == '\'')
                fputs("\\&", stdout); /* else it would be a macro */
        }
        printf("%.*s\n", (int)n, page);
        page += n + (page[n] == '\n');
    }
}

int main(int argc, char **argv)
{
    int (*print)(const struct manual *, const char *, FILE *) = NULL;
    const struct manual *manual = manuals;
    char program[64], configuration[64], *page;
    size_t page_bytes;

    for (; argc >= 2 && manual < manuals + ARRAY_LEN(manuals); manual++) {
        snprintf(program, sizeof(program), "%s.1", manual->table->program);
        snprintf(configuration, sizeof(configuration), "%s.yaml.5", manual->table->program);
        print = argc == 3 && !strcmp(argv[1], program)         ? print_program
                : argc == 2 && !strcmp(argv[1], configuration) ? print_configuration
                                                               : NULL;
        if (print)
            break;
    }
    FILE *out = print ? open_memstream(&page, &page_bytes) : NULL;
    if (!out) {
        fputs("usage: manpage PROGRAM.1 REFERENCE | manpage PROGRAM.yaml.5\n", stderr);
        return 1;
    }
    int err = print(manual, argv[2], out);
    fclose(out);
    if (!err)
        print_wrapped(page);
    free(page);
    return err ? 1 : 0;
}
