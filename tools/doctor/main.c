/* main.c - main() of cbf-doctor, which finds faults and names remedies.
 *
 * Exit codes: 0: all is well; 1: warnings; 2: failures; 78: wrong command line. */
#include "tools/doctor/doctor.h"

#include "common/daemon/command_line.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/daemon/service.h"
#include "common/base/units.h"
#include "common/base/version.h"

#include <getopt.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECONDS_DEFAULT 5
#define SECONDS_MAX     3600

static const struct {
    const char *name;
    enum doctor_topic topic;
} topics[] = {
    {"host", TOPIC_HOST}, {"config", TOPIC_CONFIG}, {"streams", TOPIC_STREAMS},
    {"loss", TOPIC_LOSS}, {"all", TOPIC_ALL},       {"bundle", TOPIC_BUNDLE},
};

enum { OPTION_JSON = 256, OPTION_QUIET, OPTION_MEMORY_MAX, OPTION_SECONDS, OPTION_ROOT, OPTION_VERSION, OPTION_HELP };

static const struct option options[] = {
    {"json", no_argument, NULL, OPTION_JSON},
    {"seconds", required_argument, NULL, OPTION_SECONDS},
    {"root", required_argument, NULL, OPTION_ROOT},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"help", no_argument, NULL, OPTION_HELP},
    {"quiet", no_argument, NULL, OPTION_QUIET},
    {"memory-max", no_argument, NULL, OPTION_MEMORY_MAX},
    {NULL, 0, NULL, 0},
};

static void print_help(FILE *out)
{
    fprintf(out,
            "Usage: cbf-doctor [host|config|streams|loss|all] [FILE.yaml ...] [OPTION ...]\n       cbf-doctor bundle "
            "OUT.tar.gz [FILE.yaml ...] [OPTION ...]\n       cbf-doctor --memory-max FILE.yaml\nReports faults of a "
            "host, of configurations of fgpu, xbgpu, visrec and beamrec, and of their streams,\nwith a remedy for "
            "each.  Without files, cbf-doctor reads the files in /etc/cbf.  It changes nothing and\nneeds neither root "
            "nor a GPU.\n\n  host     this host and the files that run on it: kernel, CPUs, NICs, GPUs, memory, ports, "
            "time\n  config   compares F-engines' files with X-engines' files\n  streams  joins the groups of the "
            "files and reports senders, rates, delays, and swapped or mixed inputs\n  loss     the troubles of running "
            "engines, and where packets are lost on their way into them\n  all      all of these (the default)\n  "
            "bundle   an archive of all of these, with files, metrics and facts of the kernel, to send to an "
            "expert\n\n  --seconds N  watch streams and losses for N seconds (%d)\n  --memory-max print a systemd "
            "drop-in with the MemoryMax= of a file's daemon\n  --quiet      only warnings, failures and the count of "
            "each\n  --json       JSON instead of text\n  --root DIR   look at /proc, /sys and /etc/cbf below DIR "
            "(also $CBF_DOCTOR_ROOT)\n  --version    print the version\n  --help       print this help\n\nExits with 0 if "
            "all is well, 1 with warnings, 2 with failures, %d if the command line is wrong.\n",
            SECONDS_DEFAULT, EXIT_CONFIG);
}

struct command {
    enum doctor_topic topic;
    const char *bundle; /* NULL: no bundle */
    bool json, quiet, memory_max;
    char **paths;
    size_t n_paths;
};

/* Parses the options.  Returns CONFIG_RUN, or the exit code after printing the reason. */
static int parse_options(int argc, char **argv, struct doctor *doctor, struct command *command)
{
    int option;
    char *end;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case OPTION_JSON: command->json = true; break;
        case OPTION_QUIET: command->quiet = true; break;
        case OPTION_MEMORY_MAX: command->memory_max = true; break;
        case OPTION_ROOT: doctor->root = optarg; break;
        case OPTION_SECONDS:
            doctor->seconds = strtod(optarg, &end);
            if (*end || !(doctor->seconds > 0 && doctor->seconds <= SECONDS_MAX)) {
                fprintf(stderr, "cbf-doctor: --seconds must be a number up to %d, not '%s'\n", SECONDS_MAX, optarg);
                return EXIT_CONFIG;
            }
            break;
        case OPTION_VERSION: printf("cbf-doctor %s\n", cbf_build_id); return 0;
        case OPTION_HELP: print_help(stdout); return 0;
        default: fprintf(stderr, "Try 'cbf-doctor --help'.\n"); return EXIT_CONFIG;
        }
    return CONFIG_RUN;
}

static int parse_command_line(int argc, char **argv, struct doctor *doctor, struct command *command)
{
    int code = parse_options(argc, argv, doctor, command);

    if (code != CONFIG_RUN)
        return code;
    command->topic = TOPIC_ALL;
    for (size_t t = 0; optind < argc && t < ARRAY_LEN(topics); t++)
        if (strcmp(argv[optind], topics[t].name) == 0) {
            command->topic = topics[t].topic;
            optind++;
            break;
        }
    if (command->topic == TOPIC_BUNDLE) {
        if (optind == argc || strstr(argv[optind], ".yaml")) {
            fprintf(stderr,
                    "cbf-doctor: bundle needs the archive's name: cbf-doctor bundle OUT.tar.gz [FILE.yaml ...]\n");
            return EXIT_CONFIG;
        }
        command->bundle = argv[optind++];
    }
    command->paths = argv + optind;
    command->n_paths = (size_t)(argc - optind);
    if (command->memory_max && command->n_paths != 1) {
        fprintf(stderr, "cbf-doctor: --memory-max needs one file\n");
        return EXIT_CONFIG;
    }
    for (size_t i = 0; i < command->n_paths; i++)
        if (access(command->paths[i], F_OK) && !strpbrk(command->paths[i], "./")) {
            fprintf(stderr, "cbf-doctor: '%s' is neither a topic nor a file; try 'cbf-doctor --help'\n",
                    command->paths[i]);
            return EXIT_CONFIG;
        }
    return CONFIG_RUN;
}

static void load_files(struct doctor *doctor, char **paths, size_t n_paths)
{
    doctor->files = calloc(n_paths + 1, sizeof(*doctor->files));
    if (!doctor->files)
        abort();
    for (size_t i = 0; i < n_paths; i++)
        doctor_file_load(doctor, &doctor->files[doctor->n_files++], paths[i]);
}

static void run_checks(struct doctor *doctor, enum doctor_topic topic)
{
    doctor->topics = topic;
    if (topic & TOPIC_HOST) {
        doctor_check_kernel(doctor);
        doctor_check_sockets(doctor);
        doctor_check_cpu(doctor);
        doctor_check_nics(doctor);
        doctor_check_verbs(doctor);
        doctor_check_gpu(doctor);
        doctor_check_direct(doctor);
        doctor_check_memory(doctor);
        doctor_check_time(doctor);
    }
    if (topic & TOPIC_CONFIG)
        doctor_check_config(doctor);
    doctor_check_recorders(doctor, topic & TOPIC_HOST, topic & TOPIC_CONFIG, topic & TOPIC_LOSS);
    doctor_check_beam_recorders(doctor, topic & TOPIC_HOST, topic & TOPIC_CONFIG, topic & TOPIC_LOSS);
    if (topic & TOPIC_STREAMS)
        doctor_check_streams(doctor);
    if (topic & TOPIC_LOSS) {
        doctor_check_loss(doctor);
        doctor_check_engines(doctor);
    }
}

/* Prints a systemd drop-in with the MemoryMax= of the first file.  Returns the exit code. */
static int print_memory_max(const struct doctor *doctor)
{
    const struct doctor_file *file = &doctor->files[0];

    if (!file->ok) {
        report_print(&doctor->report, false, false, stderr);
        return EXIT_CONFIG;
    }
    printf("# Generated from %s; generate this file again when that file changes.\n[Service]\nMemoryMax=%llu\n",
           file->path, (unsigned long long)doctor_memory_max(doctor, file));
    return 0;
}

int main(int argc, char **argv)
{
    const char *root = getenv("CBF_DOCTOR_ROOT");
    struct doctor doctor = {.root = root ? root : "", .seconds = SECONDS_DEFAULT};
    struct command command = {0};
    char pattern[PATH_MAX];
    glob_t found = {0};

    int code = parse_command_line(argc, argv, &doctor, &command);
    if (code != CONFIG_RUN)
        return code;
    log_init("cbf-doctor", LOG_LEVEL_ERROR);
    files_raise_limit();
    snprintf(pattern, sizeof(pattern), "%s/etc/cbf/*.yaml", doctor.root);
    if (command.n_paths == 0 && glob(pattern, 0, NULL, &found) == 0)
        load_files(&doctor, found.gl_pathv, found.gl_pathc);
    else
        load_files(&doctor, command.paths, command.n_paths);
    if (!command.memory_max)
        run_checks(&doctor, command.topic);
    code = report_exit_code(&doctor.report);
    if (command.memory_max)
        code = print_memory_max(&doctor);
    else if (command.bundle)
        code = doctor_bundle(&doctor, command.bundle);
    else if (command.json)
        doctor_print_json(&doctor, stdout);
    else
        report_print(&doctor.report, command.quiet, isatty(STDOUT_FILENO) && !getenv("NO_COLOR"), stdout);
    for (size_t i = 0; i < doctor.n_files; i++)
        doctor_file_free(&doctor.files[i]);
    free(doctor.files);
    report_fini(&doctor.report);
    globfree(&found);
    return code;
}
