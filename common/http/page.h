/* page.h - the files of the status page (common/http/page/), embedded in the program.  The Makefile generates the
 * source file. */
#ifndef COMMON_HTTP_PAGE_H
#define COMMON_HTTP_PAGE_H

#include <stddef.h>

struct page_text {
    const char *name; /* path in the source tree, "common/http/page/index.html" */
    const char *text;
};

extern const struct page_text page_texts[];
extern const size_t n_page_texts;

#endif
