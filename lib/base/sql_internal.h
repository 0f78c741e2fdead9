/*
 * The inside of SQL92 expressions, for sql_*.c: tokens, values, and the program.
 *
 * A program is a list of operations over a stack of values, in the order of evaluation. What comes
 * behind AND and OR is jumped over when the left side decides. Example, a > 5 AND b IN ('x'):
 *
 *   0 PROPERTY a   1 CONSTANT 5   2 GREATER   3 SKIP_FALSE ─┐
 *   4 PROPERTY b   5 IN {x}       6 AND                     │
 *   7 (end) ◄───────────────────────────────────────────────┘
 */
#ifndef BASE_SQL_INTERNAL_H
#define BASE_SQL_INTERNAL_H

#include "base/props.h"
#include "base/sql.h"

/* x OR y AND z = a BETWEEN b AND ( … : five values may wait at each level. */
enum { SQL_STACK_MAX = 6 * SQL_DEPTH_MAX + 8, SQL_NAME_SLOTS = 256 };

/* ---- values ---- */

enum sql_kind { SQL_NULL, SQL_BOOL, SQL_INT, SQL_REAL, SQL_TEXT };

struct sql_value {
    enum sql_kind kind;
    uint32_t len; /* of text */
    union {
        bool truth;
        int64_t number;
        double real;
        const uint8_t *text;
    };
};

/*
 * A decimal number, the whole of the text: sign, digits, fraction, exponent. SQL_INT when it is
 * written as an integer and fits into 64 bits, else SQL_REAL (which may be infinite). The first 19
 * digits count. false: it is none.
 */
bool sql_number(const uint8_t *text, size_t len, struct sql_value *out);
/* -1, 0, 1. Both are numbers. Exact, also between integers and reals. */
int sql_compare_numbers(const struct sql_value *a, const struct sql_value *b);

/* ---- tokens ---- */

enum sql_token_kind {
    TOKEN_END,
    TOKEN_NAME,
    TOKEN_NUMBER,
    TOKEN_TEXT,
    TOKEN_EQUAL,
    TOKEN_NOT_EQUAL,
    TOKEN_LESS,
    TOKEN_LESS_EQUAL,
    TOKEN_GREATER,
    TOKEN_GREATER_EQUAL,
    TOKEN_OPEN,
    TOKEN_CLOSE,
    TOKEN_COMMA,
    TOKEN_PLUS,
    TOKEN_MINUS,
    TOKEN_AND,
    TOKEN_OR,
    TOKEN_NOT,
    TOKEN_BETWEEN,
    TOKEN_IN,
    TOKEN_IS,
    TOKEN_NULL,
    TOKEN_TRUE,
    TOKEN_FALSE
};

struct sql_token {
    enum sql_token_kind kind;
    const char *text; /* as written, quotes included */
    size_t len;
};

struct sql_lexer {
    const char *text;
    size_t len, at;
};

/* The next token, TOKEN_END at the end. */
MUST_CHECK enum tern_code sql_next(struct sql_lexer *lexer, struct sql_token *out,
                                   struct tern_error *err);

/* ---- the program ---- */

enum sql_op_kind {
    OP_CONSTANT, /* pushes constants[arg] */
    OP_PROPERTY, /* pushes the value of names[arg] */
    OP_TRUTH,    /* a property that stands as a condition */
    OP_EQUAL,
    OP_NOT_EQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_BETWEEN,
    OP_NOT_BETWEEN,
    OP_IN, /* sets[arg] */
    OP_NOT_IN,
    OP_IS_NULL,
    OP_IS_NOT_NULL,
    OP_NOT,
    OP_AND,
    OP_OR,
    OP_SKIP_FALSE, /* to operation arg when the top is FALSE, which stays */
    OP_SKIP_TRUE
};

struct sql_op {
    uint16_t kind;
    uint16_t arg;
};

/* Texts of an IN: members[first] to members[first + count - 1], sorted, unique. */
struct sql_set {
    uint16_t first, count;
};

/* One allocation: the arrays and the texts they point to follow. */
struct sql {
    struct sql_op *ops;
    struct sql_value *constants;
    struct sql_set *sets;
    struct slice *members;
    struct slice names[SQL_NAMES_MAX];
    uint8_t name_slots[SQL_NAME_SLOTS]; /* by sql_name_slot(): index + 1 into names; probed on */
    uint32_t op_count, constant_count, set_count, member_count, name_count;
    char *texts; /* of literals and names, unquoted */
    size_t texts_used;
    char *normal;
};

static inline unsigned sql_name_slot(const uint8_t *name, size_t len)
{
    return (unsigned)(len * 7u + name[0] * 31u + name[len - 1] * 131u + name[len / 2] * 17u) %
           SQL_NAME_SLOTS;
}

/* Fills sql, whose arrays have room for all tokens of the text. As sql_compile(). */
MUST_CHECK enum tern_code sql_parse(struct sql *sql, const char *text, size_t len,
                                    struct tern_error *err);

/* By length, then bytes. */
int sql_compare_members(const void *a, const void *b);

#endif
