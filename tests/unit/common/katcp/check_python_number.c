/* check_python_number - against Python's own text of numbers.  The test asks Python while it runs. */
#include "common/katcp/python_number.h"
#include "common/base/units.h"
#include "tests/unit/test_file.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <math.h>
#include <string.h>

#define N 3000

/* Numbers of all sizes, from the bits and from decimal forms. */
static double any_number(void)
{
    double value;
    uint64_t bits = random_u64();

    switch (random_below(4)) {
    case 0: memcpy(&value, &bits, sizeof(value)); return value;
    case 1: return (double)(int64_t)random_below(2000000) / 1000.0 - 1000.0;
    case 2: return ldexp(random_between(-1, 1), (int)random_below(120) - 60);
    default: return (double)((int64_t)bits >> random_below(64));
    }
}

/* Texts that may or may not be numbers: of pieces, joined at random. */
static void any_text(char text[256])
{
    static const char *const pieces[] = {"1",        "23",  "0",   ".",   "e",   "E",  "+",     "-",
                                         "j",        "J",   "_",   "inf", "nan", " ",  "\t",    "4.5",
                                         "infinity", "e-3", "e+7", "(",   ")",   "0x", "1_000", "-2j"};
    size_t n = 1 + random_below(6);

    text[0] = '\0';
    for (size_t i = 0; i < n; i++)
        strcat(text, pieces[random_below(ARRAY_LEN(pieces))]);
}

static const char program[] = "import sys\n"
                              "bad = 0\n"
                              "def show(f, t):\n"
                              "    try: return repr(f(t))\n"
                              "    except ValueError: return 'refused'\n"
                              "for line in sys.stdin:\n"
                              "    kind, text, got = line.rstrip('\\n').split('|')\n"
                              "    if kind == 'text':\n"
                              "        want = repr(float.fromhex(text))\n"
                              "    elif kind == 'cplx':\n"
                              "        z = complex(*map(float.fromhex, text.split()))\n"
                              "        want = f'{z.real:.17g}{z.imag:+.17g}j'\n"
                              "    else:\n"
                              "        want = show(float if kind == 'float' else complex, eval(text))\n"
                              "    if got != want:\n"
                              "        bad += 1\n"
                              "        print(kind, text, 'is', got, 'not', want, file=sys.stderr)\n"
                              "sys.exit(bad > 0)\n";

/* As repr() shows a complex number: (1+2j), but 2j where the real part is +0. */
static void show_complex(FILE *python, double real, double imaginary)
{
    char a[PYTHON_FLOAT_BYTES], b[PYTHON_FLOAT_BYTES];

    python_number_float_text(real, a);
    python_number_float_text(imaginary, b);
    for (char *part = a;; part = b) {
        size_t n = strlen(part);
        if (n > 2 && strcmp(part + n - 2, ".0") == 0)
            part[n - 2] = '\0';
        if (part == b)
            break;
    }
    if (real == 0 && !signbit(real))
        fprintf(python, "%sj\n", b);
    else
        fprintf(python, "(%s%s%sj)\n", a, b[0] == '-' ? "" : "+", b);
}

TEST(as_python_says)
{
    static const double special[] = {0.0,
                                     -0.0,
                                     1,
                                     -1,
                                     0.1,
                                     1e16,
                                     9999999999999998.0,
                                     1e15,
                                     123456789012345680.0,
                                     1e-4,
                                     9.999e-5,
                                     5e-324,
                                     1.7976931348623157e308,
                                     INFINITY,
                                     -INFINITY,
                                     NAN};
    char path[] = "/tmp/check_python_number-XXXXXX", command[64], text[256], number[PYTHON_COMPLEX_BYTES];

    write_file(path, program);
    snprintf(command, sizeof(command), "python3 %s", path);
    FILE *python = popen(command, "w");
    ck_assert_ptr_nonnull(python);
    for (size_t i = 0; i < N; i++) {
        double x = i < ARRAY_LEN(special) ? special[i] : any_number(), y = any_number(), value, imaginary;
        fprintf(python, "text|%a|%s\n", x, python_number_float_text(x, number));
        fprintf(python, "cplx|%a %a|%s\n", x, y, python_number_complex_text(x, y, number));
        any_text(text);
        if (i % 2) /* the forms that are meant */
            snprintf(text, sizeof(text), "%.*g%+.*gj", 1 + (int)random_below(17), x, 1 + (int)random_below(17), y);
        char quoted[600] = "", *q = quoted;
        for (char *c = text; *c; c++)
            q += sprintf(q, *c == '\t' ? "\\t" : "%c", *c);
        fprintf(python, "float|'%s'|%s\n", quoted,
                python_number_float(text, &value) ? python_number_float_text(value, number) : "refused");
        fprintf(python, "complex|'%s'|", quoted);
        if (python_number_complex(text, &value, &imaginary))
            show_complex(python, value, imaginary);
        else
            fprintf(python, "refused\n");
    }
    ck_assert_int_eq(pclose(python), 0);
    unlink(path);
}

SUITE(.timeout_s = 60, .start = random_start);
