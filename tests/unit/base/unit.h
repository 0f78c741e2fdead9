/* What every cmocka test of this folder includes, in the order that cmocka wants. */
#ifndef TESTS_UNIT_BASE_UNIT_H
#define TESTS_UNIT_BASE_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

#define assert_ok(expr) assert_int_equal((expr), TERN_OK)
#define assert_contains(text, part) assert_non_null(strstr((text), (part)))

/* Puts the value of hex digits (blanks ignored) into out; returns the number of bytes. */
static inline size_t from_hex(const char *hex, uint8_t *out)
{
    size_t n = 0;
    unsigned high = 0;
    unsigned digits = 0;
    for (; *hex; hex++) {
        if (*hex == ' ')
            continue;
        unsigned digit = *hex <= '9' ? (unsigned)(*hex - '0') : (unsigned)(*hex - 'A') + 10;
        if (digits++ % 2 == 0)
            high = digit;
        else
            out[n++] = (uint8_t)(high << 4 | digit);
    }
    return n;
}

#endif
