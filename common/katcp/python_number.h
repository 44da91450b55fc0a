/* python_number.h - parses and writes numbers as Python's float(), complex() and repr() do, because many KATCP clients
 * are written in Python.
 *
 * Threads: pure functions.   Blocking and allocation: none. */
#ifndef COMMON_KATCP_PYTHON_NUMBER_H
#define COMMON_KATCP_PYTHON_NUMBER_H

#include <stdbool.h>

#define PYTHON_FLOAT_BYTES   48 /* room for any text that python_number_float_text() writes */
#define PYTHON_COMPLEX_BYTES 64

/* Parses every text that Python's float(text) accepts: decimal digits with a point and an exponent; inf, infinity and
 * nan.  Single underscores between digits are permitted, and so are blanks around the number.  Returns false if
 * Python would raise ValueError. */
bool python_number_float(const char *text, double *value);

/* Parses every text that Python's complex(text) accepts: "1", "2j", "1-2j", "-j", "(1e3+4j)".  Returns false if Python
 * would raise ValueError. */
bool python_number_complex(const char *text, double *real, double *imaginary);

/* Writes the result of repr(value), the shortest decimal form that converts back to the same number.  Returns
 * 'text'. */
char *python_number_float_text(double value, char text[PYTHON_FLOAT_BYTES]);

/* Writes "real+imaginaryj" with 17 significant digits.  Always writes both parts.  Returns 'text'. */
char *python_number_complex_text(double real, double imaginary, char text[PYTHON_COMPLEX_BYTES]);

#endif
