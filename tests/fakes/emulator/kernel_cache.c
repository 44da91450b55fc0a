/* kernel_cache.c - see kernel_cache.h.  An entry is build-emulated/<kernel>-<hash>.so.  The .so.d file beside the entry
 * lists the files that the entry depends on. */
#include "tests/fakes/emulator/kernel_cache.h"

#include "common/base/hash.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY "build-emulated"

struct entry {
    char object[200], depends[210]; /* object with .d behind it */
};

static char version[200]; /* of g++, in a line */

bool kernel_cache_has_compiler(void)
{
    FILE *said = version[0] ? NULL : popen("g++ --version 2>/dev/null", "r");

    if (said) {
        if (!fgets(version, sizeof(version), said))
            version[0] = '\0';
        pclose(said);
    }
    return version[0];
}

static struct entry entry_of(const char *name, const char *command)
{
    struct hash key = HASH_START;
    struct entry entry;

    hash_text(&key, version);
    hash_text(&key, command);
    snprintf(entry.object, sizeof(entry.object), DIRECTORY "/%s-%016" PRIx64 "%016" PRIx64 ".so", name, key.high,
             key.low);
    snprintf(entry.depends, sizeof(entry.depends), "%s.d", entry.object);
    return entry;
}

static bool is_after(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/* The object is there, and no older than any file of its list ("target: file file \<newline> file"). */
static bool is_fresh(const struct entry *entry)
{
    FILE *depends = fopen(entry->depends, "r");
    struct stat object, file;
    unsigned n_files = 0;
    char word[500];
    bool fresh;

    if (!depends)
        return false;
    fresh = stat(entry->object, &object) == 0 && fscanf(depends, "%499s", word) == 1; /* the target */
    while (fresh && fscanf(depends, "%499s", word) == 1) {
        if (strcmp(word, "\\") == 0)
            continue;
        fresh = stat(word, &file) == 0 && !is_after(file.st_mtim, object.st_mtim);
        n_files++;
    }
    fclose(depends);
    return fresh && n_files > 0;
}

/* The entry is as old as the start of its compilation: a file that is saved meanwhile is newer. */
static bool compile_to(const struct entry *temporary, const char *command)
{
    struct stat begin;
    char *whole = NULL;
    bool compiled = false;

    if (stat(temporary->object, &begin) == 0 &&
        asprintf(&whole, "%s -MMD -MF %s -o %s", command, temporary->depends, temporary->object) >= 0)
        compiled = system(whole) == 0 &&
                   utimensat(AT_FDCWD, temporary->object, (struct timespec[]){begin.st_mtim, begin.st_mtim}, 0) == 0;
    free(whole);
    return compiled;
}

static bool compile(const struct entry *entry, const char *command)
{
    struct entry temporary;
    bool compiled = false;
    int fd;

    if (mkdir(DIRECTORY, 0777) && errno != EEXIST) {
        perror(DIRECTORY);
        return false;
    }
    snprintf(temporary.object, sizeof(temporary.object), DIRECTORY "/new-XXXXXX.so");
    fd = mkstemps(temporary.object, 3);
    if (fd < 0) {
        perror(temporary.object);
        return false;
    }
    close(fd);
    snprintf(temporary.depends, sizeof(temporary.depends), "%s.d", temporary.object);
    compiled = compile_to(&temporary, command) && rename(temporary.depends, entry->depends) == 0 &&
               rename(temporary.object, entry->object) == 0;
    if (!compiled) {
        unlink(temporary.object);
        unlink(temporary.depends);
    }
    return compiled;
}

bool kernel_cache_compile(const char *name, const char *command)
{
    struct entry entry = entry_of(name, command);

    return is_fresh(&entry) || compile(&entry, command);
}

void *kernel_cache_load(const char *name, const char *command)
{
    struct entry entry = entry_of(name, command);
    void *object;

    if (!kernel_cache_compile(name, command))
        return NULL;
    object = dlopen(entry.object, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        fprintf(stderr, "%s\n", dlerror());
    return object;
}
