/* page.h - the files of common/page/, which make the status page, as this build embedded them; made by the Makefile. */
#ifndef COMMON_PAGE_H
#define COMMON_PAGE_H

#include <stddef.h>

struct page_text {
    const char *name; /* "common/page/index.html" */
    const char *text;
};

extern const struct page_text page_texts[];
extern const size_t n_page_texts;

#endif
