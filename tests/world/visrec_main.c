/* visrec_main.c - the recorder's main(), under another name. */
int visrec_main(int argc, char **argv);

#define main visrec_main
#include "tools/visrec/main.c"
