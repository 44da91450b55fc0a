/* python_number.c - converts numbers from and to the text of requests and sensors. */
#include "common/katcp/python_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_TEXT_BYTES 512 /* longest text of a number, with the blanks around the number */

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Copies the text without surrounding blanks and without underscores between digits.  Returns false if an underscore is
 * not between two digits, or if the text is too long. */
static bool clean(const char *text, char cleaned[MAX_TEXT_BYTES])
{
    size_t n;

    while (is_blank(*text))
        text++;
    for (n = strlen(text); n > 0 && is_blank(text[n - 1]); n--)
        ;
    if (n >= MAX_TEXT_BYTES)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '_')
            *cleaned++ = text[i];
        else if (i == 0 || !is_digit(text[i - 1]) || !is_digit(text[i + 1]))
            return false;
    }
    *cleaned = '\0';
    return true;
}

/* Returns a pointer past the digits at 'text'. */
static const char *skip_digits(const char *text)
{
    while (is_digit(*text))
        text++;
    return text;
}

/* Returns a pointer past the unsigned number at 'text', or NULL if there is no number. */
static const char *skip_unsigned(const char *text)
{
    static const char *const words[] = {"infinity", "inf", "nan"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strncasecmp(text, words[i], strlen(words[i])) == 0)
            return text + strlen(words[i]);
    const char *end = skip_digits(text);
    size_t n_digits = (size_t)(end - text);
    if (*end == '.') {
        n_digits += (size_t)(skip_digits(end + 1) - end - 1);
        end = skip_digits(end + 1);
    }
    if (n_digits == 0)
        return NULL;
    const char *exponent = end + 1;
    if (*end != 'e' && *end != 'E')
        return end;
    if (*exponent == '+' || *exponent == '-')
        exponent++;
    return is_digit(*exponent) ? skip_digits(exponent) : end;
}

/* Reads the number at 'text', if strtod() and Python agree about its length.  Returns a pointer past the number, or
 * NULL. */
static const char *read_number(const char *text, double *value)
{
    const char *end = skip_unsigned(text + (*text == '+' || *text == '-'));
    char *parsed;

    if (!end)
        return NULL;
    *value = strtod(text, &parsed);
    return parsed == end ? end : NULL;
}

bool python_number_float(const char *text, double *value)
{
    char cleaned[MAX_TEXT_BYTES];

    if (!clean(text, cleaned))
        return false;
    const char *end = read_number(cleaned, value);
    return end && *end == '\0';
}

static bool is_j(const char *text)
{
    return (*text == 'j' || *text == 'J') && text[1] == '\0';
}

/* Reads an imaginary number: "j", "+j", "-j", or a number and j.  Returns false if the text is anything else. */
static bool read_imaginary(const char *text, bool needs_sign, double *value)
{
    bool has_sign = *text == '+' || *text == '-';

    if (needs_sign && !has_sign)
        return false;
    if (is_j(text + has_sign)) {
        *value = *text == '-' ? -1.0 : 1.0;
        return true;
    }
    text = read_number(text, value);
    return text && is_j(text);
}

bool python_number_complex(const char *text, double *real, double *imaginary)
{
    char cleaned[MAX_TEXT_BYTES], inner[MAX_TEXT_BYTES];

    if (!clean(text, cleaned))
        return false;
    size_t n = strlen(cleaned);
    if (n >= 2 && cleaned[0] == '(' && cleaned[n - 1] == ')') {
        cleaned[n - 1] = '\0';
        if (!clean(cleaned + 1, inner))
            return false;
        strcpy(cleaned, inner);
    }
    *real = 0.0;
    *imaginary = 0.0;
    if (read_imaginary(cleaned, false, imaginary))
        return true;
    *imaginary = 0.0;
    const char *end = read_number(cleaned, real);
    return end && (*end == '\0' || read_imaginary(end, true, imaginary));
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Writes the digits of the shortest decimal form of 'value', without a point.  Returns the power of ten of the first
 * digit. */
static int shortest_digits(double value, char digits[24])
{
    char text[40];
    int n = 1;

    do
        snprintf(text, sizeof(text), "%.*e", n - 1, value);
    while (strtod(text, NULL) != value && n++ < 17);
    char *exponent = strchr(text, 'e');
    size_t length = 0;
    for (char *c = text; c < exponent; c++)
        if (is_digit(*c))
            digits[length++] = *c;
    digits[length] = '\0';
    return atoi(exponent + 1);
}

char *python_number_float_text(double value, char text[PYTHON_FLOAT_BYTES])
{
    const char *sign = signbit(value) && !isnan(value) ? "-" : "";
    char digits[24];

    if (!isfinite(value)) {
        snprintf(text, PYTHON_FLOAT_BYTES, "%s%s", sign, isnan(value) ? "nan" : "inf");
        return text;
    }
    int power = shortest_digits(fabs(value), digits), n = (int)strlen(digits);
    if (power < -4 || power >= 16)
        snprintf(text, PYTHON_FLOAT_BYTES, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1,
                 power < 0 ? '-' : '+', abs(power));
    else if (power < 0)
        snprintf(text, PYTHON_FLOAT_BYTES, "%s0.%.*s%s", sign, -power - 1, "000", digits);
    else if (n <= power + 1)
        snprintf(text, PYTHON_FLOAT_BYTES, "%s%s%.*s.0", sign, digits, power + 1 - n, "0000000000000000");
    else
        snprintf(text, PYTHON_FLOAT_BYTES, "%s%.*s.%s", sign, power + 1, digits, digits + power + 1);
    return text;
}

char *python_number_complex_text(double real, double imaginary, char text[PYTHON_COMPLEX_BYTES])
{
    if (isnan(real)) /* repr() writes NaN without a sign */
        real = fabs(real);
    if (isnan(imaginary))
        imaginary = fabs(imaginary);
    snprintf(text, PYTHON_COMPLEX_BYTES, "%.17g%+.17gj", real, imaginary);
    return text;
}
