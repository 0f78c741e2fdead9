/*
 * Tokens of SQL92 expressions, and decimal numbers.
 *
 * Blank characters and comments, "--" to the end of the line and slash-star to star-slash, only
 * separate. Keywords are known in any case; names are not folded. Numbers are read without strtod:
 * the locale of the application must not change what an expression means, and equal decimals must
 * give equal values.
 *
 * Threads: any, no state. Failure modes: TERN_SUBSCRIPTION_PARSE_FAILED with position and cause.
 */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/sql_internal.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

static bool is_name_part(char c)
{
    return is_name_start(c) || is_digit(c);
}

static char peek(const struct sql_lexer *lexer, size_t ahead)
{
    return lexer->at + ahead < lexer->len ? lexer->text[lexer->at + ahead] : 0;
}

static enum tern_code fail(struct tern_error *err, size_t position, const char *cause)
{
    return error_set(err, TERN_SUBSCRIPTION_PARSE_FAILED, "SQL92: %s at position %zu", cause,
                     position);
}

/* Over blanks and comments. */
static enum tern_code skip(struct sql_lexer *lexer, struct tern_error *err)
{
    for (;;) {
        char c = peek(lexer, 0);
        size_t start = lexer->at;
        if (c == ' ' || (c >= '\t' && c <= '\r')) {
            lexer->at++;
        } else if (c == '-' && peek(lexer, 1) == '-') {
            while (lexer->at < lexer->len && lexer->text[lexer->at] != '\n')
                lexer->at++;
        } else if (c == '/' && peek(lexer, 1) == '*') {
            const char *end = memmem(lexer->text + start + 2, lexer->len - start - 2, "*/", 2);
            if (!end)
                return fail(err, start, "a comment does not end that begins");
            lexer->at = (size_t)(end - lexer->text) + 2;
        } else {
            return TERN_OK;
        }
    }
}

static enum sql_token_kind keyword(const char *text, size_t len)
{
    static const struct {
        const char *text;
        enum sql_token_kind kind;
    } words[] = {{"AND", TOKEN_AND},   {"OR", TOKEN_OR},           {"NOT", TOKEN_NOT},
                 {"IN", TOKEN_IN},     {"BETWEEN", TOKEN_BETWEEN}, {"IS", TOKEN_IS},
                 {"NULL", TOKEN_NULL}, {"TRUE", TOKEN_TRUE},       {"FALSE", TOKEN_FALSE}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].text) == len && !strncasecmp(words[i].text, text, len))
            return words[i].kind;
    return TOKEN_NAME;
}

/* 'it''s'; the token has the quotes. */
static enum tern_code lex_text(struct sql_lexer *lexer, struct sql_token *out,
                               struct tern_error *err)
{
    size_t start = lexer->at;
    for (lexer->at++; lexer->at < lexer->len; lexer->at++) {
        if (lexer->text[lexer->at] != '\'')
            continue;
        if (peek(lexer, 1) != '\'') {
            lexer->at++;
            out->kind = TOKEN_TEXT;
            out->len = lexer->at - start;
            return TERN_OK;
        }
        lexer->at++;
    }
    return fail(err, start, "a text does not end that begins");
}

static void over_digits(struct sql_lexer *lexer)
{
    while (is_digit(peek(lexer, 0)))
        lexer->at++;
}

/* 12, 12L, 1.5, .5, 5., 1e3. The L is no part of the token. */
static enum tern_code lex_number(struct sql_lexer *lexer, struct sql_token *out,
                                 struct tern_error *err)
{
    size_t start = lexer->at;
    bool real = false;
    over_digits(lexer);
    if (peek(lexer, 0) == '.') {
        real = true;
        lexer->at++;
        over_digits(lexer);
    }
    if ((peek(lexer, 0) | 0x20) == 'e') {
        size_t sign = peek(lexer, 1) == '+' || peek(lexer, 1) == '-';
        if (is_digit(peek(lexer, 1 + sign))) {
            real = true;
            lexer->at += 1 + sign;
            over_digits(lexer);
        }
    }
    out->kind = TOKEN_NUMBER;
    out->len = lexer->at - start;
    if (!real && out->len > 1 && out->text[0] == '0')
        return fail(err, start, "an integer with a leading 0");
    if (!real && (peek(lexer, 0) | 0x20) == 'l')
        lexer->at++;
    if (is_name_part(peek(lexer, 0)) || peek(lexer, 0) == '.')
        return fail(err, lexer->at, "a number is followed by what is no operator");
    return TERN_OK;
}

/* Operators of one or two characters, and what people write instead of them. */
static enum tern_code lex_operator(struct sql_lexer *lexer, struct sql_token *out,
                                   struct tern_error *err)
{
    static const struct {
        const char *text;
        enum sql_token_kind kind;
        const char *instead; /* it is no operator: what is */
    } rows[] = {{"<>", TOKEN_NOT_EQUAL, NULL},
                {"<=", TOKEN_LESS_EQUAL, NULL},
                {">=", TOKEN_GREATER_EQUAL, NULL},
                {"!=", TOKEN_END, "\"!=\" (write \"<>\")"},
                {"==", TOKEN_END, "\"==\" (write \"=\")"},
                {"&&", TOKEN_END, "\"&&\" (write AND)"},
                {"||", TOKEN_END, "\"||\" (write OR; tags need the type TAG)"},
                {"<", TOKEN_LESS, NULL},
                {">", TOKEN_GREATER, NULL},
                {"=", TOKEN_EQUAL, NULL},
                {"(", TOKEN_OPEN, NULL},
                {")", TOKEN_CLOSE, NULL},
                {",", TOKEN_COMMA, NULL},
                {"+", TOKEN_PLUS, NULL},
                {"-", TOKEN_MINUS, NULL},
                {"!", TOKEN_END, "\"!\" (write NOT)"},
                {"*", TOKEN_END, "\"*\" (there is no arithmetic)"},
                {"/", TOKEN_END, "\"/\" (there is no arithmetic)"},
                {"\"", TOKEN_END, "a double quote (texts stand in single ones)"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t len = strlen(rows[i].text);
        if (lexer->len - lexer->at < len || memcmp(lexer->text + lexer->at, rows[i].text, len) != 0)
            continue;
        if (rows[i].instead)
            return fail(err, lexer->at, rows[i].instead);
        out->kind = rows[i].kind;
        out->len = len;
        lexer->at += len;
        return TERN_OK;
    }
    return fail(err, lexer->at, "a character that begins nothing");
}

enum tern_code sql_next(struct sql_lexer *lexer, struct sql_token *out, struct tern_error *err)
{
    enum tern_code code = skip(lexer, err);
    if (code)
        return code;
    *out = (struct sql_token){.kind = TOKEN_END, .text = lexer->text + lexer->at};
    if (lexer->at == lexer->len)
        return TERN_OK;
    char c = peek(lexer, 0);
    if (is_name_start(c)) {
        while (is_name_part(peek(lexer, 0)))
            lexer->at++;
        out->len = (size_t)(lexer->text + lexer->at - out->text);
        out->kind = keyword(out->text, out->len);
        return TERN_OK;
    }
    if (c == '\'')
        return lex_text(lexer, out, err);
    if (is_digit(c) || (c == '.' && is_digit(peek(lexer, 1))))
        return lex_number(lexer, out, err);
    return lex_operator(lexer, out, err);
}

/* ---- numbers ---- */

/* mantissa × 10^scale. Same arguments, same result; exact where a double can be. */
static double scaled(uint64_t mantissa, int scale)
{
    enum { FAR = 400 /* beyond it everything is 0 or infinite */ };
    if (mantissa == 0 || scale < -FAR)
        return 0;
    if (scale > FAR)
        return HUGE_VAL;
    while (mantissa % 10 == 0) { /* so that 1e1, 10.0 and 10 are one */
        mantissa /= 10;
        scale++;
    }
    long double power = 1;
    long double base = 10;
    for (unsigned n = (unsigned)(scale < 0 ? -scale : scale); n; n >>= 1, base *= base)
        if (n & 1)
            power *= base;
    long double value = (long double)mantissa;
    return (double)(scale < 0 ? value / power : value * power);
}

/* Digits at *at into the mantissa as far as it holds them; *scale for each that stands behind the
 * point or does not fit. */
static size_t take_digits(const uint8_t *text, size_t len, size_t *at, bool fraction,
                          uint64_t *mantissa, int *scale)
{
    size_t digits = 0;
    for (; *at < len && is_digit((char)text[*at]); (*at)++, digits++) {
        bool fits = *mantissa <= (UINT64_MAX - 9) / 10;
        if (fits)
            *mantissa = *mantissa * 10 + (uint64_t)(text[*at] - '0');
        *scale += (fits ? 0 : 1) - (fraction ? 1 : 0);
    }
    return digits;
}

/* e[+-]digits at *at; false: there is an e and no exponent. */
static bool take_exponent(const uint8_t *text, size_t len, size_t *at, int *scale)
{
    enum { EXPONENT_MAX = 100000 };
    if (*at == len || (text[*at] | 0x20) != 'e')
        return true;
    (*at)++;
    bool minus = *at < len && text[*at] == '-';
    if (*at < len && (text[*at] == '-' || text[*at] == '+'))
        (*at)++;
    size_t first = *at;
    int exponent = 0;
    for (; *at < len && is_digit((char)text[*at]); (*at)++)
        if (exponent < EXPONENT_MAX)
            exponent = exponent * 10 + (text[*at] - '0');
    *scale += minus ? -exponent : exponent;
    return *at > first;
}

bool sql_number(const uint8_t *text, size_t len, struct sql_value *out)
{
    enum { NUMBER_MAX = 1024 /* characters */ };
    uint64_t mantissa = 0;
    int scale = 0;
    size_t at = 0;
    if (len == 0 || len > NUMBER_MAX)
        return false;
    bool minus = text[0] == '-';
    at += minus || text[0] == '+';
    size_t digits = take_digits(text, len, &at, false, &mantissa, &scale);
    bool integer = at == len && scale == 0;
    if (at < len && text[at] == '.') {
        at++;
        digits += take_digits(text, len, &at, true, &mantissa, &scale);
    }
    if (digits == 0 || !take_exponent(text, len, &at, &scale) || at != len)
        return false;
    if (integer && mantissa <= (uint64_t)INT64_MAX + minus) {
        out->kind = SQL_INT;
        out->number = minus ? (int64_t)(0 - mantissa) : (int64_t)mantissa;
        return true;
    }
    double real = scaled(mantissa, scale);
    out->kind = SQL_REAL;
    out->real = minus ? -real : real;
    return true;
}

static int compare_int_real(int64_t a, double b)
{
    const double limit = 9223372036854775808.0; /* 2^63 */
    if (b >= limit)
        return -1;
    if (b < -limit)
        return 1;
    int64_t whole = (int64_t)b;
    if (a != whole)
        return a < whole ? -1 : 1;
    double rest = b - (double)whole;
    return (rest < 0) - (rest > 0);
}

int sql_compare_numbers(const struct sql_value *a, const struct sql_value *b)
{
    if (a->kind == SQL_INT && b->kind == SQL_INT)
        return (a->number > b->number) - (a->number < b->number);
    if (a->kind == SQL_INT)
        return compare_int_real(a->number, b->real);
    if (b->kind == SQL_INT)
        return -compare_int_real(b->number, a->real);
    return (a->real > b->real) - (a->real < b->real);
}
