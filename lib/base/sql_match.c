/*
 * Running a compiled expression over one message's properties.
 *
 *   properties ──one walk──► values of the names that occur ──► operations over a stack ──► TRUE?
 *
 * Three-valued: NULL stands for unknown. Any comparison with NULL is unknown, AND and OR decide
 * when one side suffices, NOT unknown is unknown. A text that has to be a number and is none makes
 * its comparison FALSE (and <> TRUE), as in RocketMQ.
 *
 * Invariants: the parser has counted the stack and checked the kinds; here nothing can overflow or
 * fail. Threads: any; no allocation, no locks.
 */
#include <string.h>
#include <strings.h>

#include "base/sql_internal.h"

static const struct sql_value sql_unknown = {.kind = SQL_NULL};

static struct sql_value truth(bool value)
{
    return (struct sql_value){.kind = SQL_BOOL, .truth = value};
}

/* ---- properties ---- */

/* Index of the name, or -1. */
static int find_name(const struct sql *sql, const struct slice *name)
{
    for (unsigned slot = sql_name_slot(name->ptr, name->len); sql->name_slots[slot];
         slot = (slot + 1) % SQL_NAME_SLOTS) {
        unsigned i = sql->name_slots[slot] - 1u;
        if (sql->names[i].len == name->len && !memcmp(sql->names[i].ptr, name->ptr, name->len))
            return (int)i;
    }
    return -1;
}

/* The last pair of a name counts, as everywhere. */
static void gather(const struct sql *sql, const uint8_t *props, size_t len,
                   struct sql_value *values)
{
    size_t cursor = 0;
    struct slice name;
    struct slice value;
    for (uint32_t i = 0; i < sql->name_count; i++)
        values[i] = sql_unknown;
    while (props_next(props, len, &cursor, &name, &value)) {
        int i = find_name(sql, &name);
        if (i >= 0)
            values[i] =
                (struct sql_value){.kind = SQL_TEXT, .len = (uint32_t)value.len, .text = value.ptr};
    }
}

/* ---- comparing ---- */

static bool text_is_true(const struct sql_value *value)
{
    return value->len == 4 && !strncasecmp((const char *)value->text, "true", 4);
}

static bool as_number(const struct sql_value *value, struct sql_value *out)
{
    *out = *value;
    if (value->kind == SQL_TEXT)
        return sql_number(value->text, value->len, out);
    return value->kind == SQL_INT || value->kind == SQL_REAL;
}

static bool equal(const struct sql_value *a, const struct sql_value *b)
{
    struct sql_value x;
    struct sql_value y;
    if (a->kind == SQL_TEXT && b->kind == SQL_TEXT)
        return a->len == b->len && !memcmp(a->text, b->text, a->len);
    if (a->kind == SQL_BOOL || b->kind == SQL_BOOL) {
        bool left = a->kind == SQL_BOOL ? a->truth : text_is_true(a);
        return left == (b->kind == SQL_BOOL ? b->truth : text_is_true(b));
    }
    return as_number(a, &x) && as_number(b, &y) && sql_compare_numbers(&x, &y) == 0;
}

static struct sql_value compare(enum sql_op_kind kind, const struct sql_value *a,
                                const struct sql_value *b)
{
    struct sql_value x;
    struct sql_value y;
    if (a->kind == SQL_NULL || b->kind == SQL_NULL)
        return sql_unknown;
    if (kind == OP_EQUAL || kind == OP_NOT_EQUAL)
        return truth(equal(a, b) == (kind == OP_EQUAL));
    if (!as_number(a, &x) || !as_number(b, &y))
        return truth(false);
    int order = sql_compare_numbers(&x, &y);
    switch (kind) {
    case OP_LESS:
        return truth(order < 0);
    case OP_LESS_EQUAL:
        return truth(order <= 0);
    case OP_GREATER:
        return truth(order > 0);
    default:
        return truth(order >= 0);
    }
}

/* ---- logic ---- */

static bool is(const struct sql_value *value, bool wanted)
{
    return value->kind == SQL_BOOL && value->truth == wanted;
}

/* decisive: what one side suffices for; FALSE for AND, TRUE for OR. */
static struct sql_value combine(const struct sql_value *a, const struct sql_value *b, bool decisive)
{
    if (is(a, decisive) || is(b, decisive))
        return truth(decisive);
    return a->kind == SQL_NULL || b->kind == SQL_NULL ? sql_unknown : truth(!decisive);
}

static struct sql_value between(const struct sql_value *v, bool inside)
{
    struct sql_value low = compare(inside ? OP_GREATER_EQUAL : OP_LESS, &v[0], &v[1]);
    struct sql_value high = compare(inside ? OP_LESS_EQUAL : OP_GREATER, &v[0], &v[2]);
    return combine(&low, &high, !inside);
}

int sql_compare_members(const void *a, const void *b)
{
    const struct slice *x = a;
    const struct slice *y = b;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(x->ptr, y->ptr, x->len);
}

static struct sql_value in_set(const struct sql *sql, const struct sql_set *set,
                               const struct sql_value *value, bool wanted)
{
    if (value->kind == SQL_NULL)
        return sql_unknown;
    struct slice key = {.ptr = value->text, .len = value->len};
    uint32_t low = set->first;
    uint32_t high = low + set->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = sql_compare_members(&sql->members[middle], &key);
        if (order == 0)
            return truth(wanted);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return truth(!wanted);
}

/* ---- the program ---- */

/* An operation on the values at the end of the stack; returns the new number of values. */
static uint32_t operate(const struct sql *sql, struct sql_op op, struct sql_value *stack,
                        uint32_t n)
{
    struct sql_value *top = &stack[n - 1];
    switch ((enum sql_op_kind)op.kind) {
    case OP_TRUTH:
        *top = top->kind == SQL_NULL ? sql_unknown : truth(text_is_true(top));
        return n;
    case OP_IN:
    case OP_NOT_IN:
        *top = in_set(sql, &sql->sets[op.arg], top, op.kind == OP_IN);
        return n;
    case OP_IS_NULL:
    case OP_IS_NOT_NULL:
        *top = truth((top->kind == SQL_NULL) == (op.kind == OP_IS_NULL));
        return n;
    case OP_NOT:
        if (top->kind != SQL_NULL)
            *top = truth(!top->truth);
        return n;
    case OP_BETWEEN:
    case OP_NOT_BETWEEN:
        top[-2] = between(top - 2, op.kind == OP_BETWEEN);
        return n - 2;
    case OP_AND:
    case OP_OR:
        top[-1] = combine(top - 1, top, op.kind == OP_OR);
        return n - 1;
    default:
        top[-1] = compare((enum sql_op_kind)op.kind, top - 1, top);
        return n - 1;
    }
}

bool sql_match(const struct sql *sql, const uint8_t *props, size_t len)
{
    struct sql_value values[SQL_NAMES_MAX];
    struct sql_value stack[SQL_STACK_MAX];
    uint32_t n = 0;
    gather(sql, props, len, values);
    for (uint32_t pc = 0; pc < sql->op_count; pc++) {
        struct sql_op op = sql->ops[pc];
        if (op.kind == OP_CONSTANT)
            stack[n++] = sql->constants[op.arg];
        else if (op.kind == OP_PROPERTY)
            stack[n++] = values[op.arg];
        else if (op.kind == OP_SKIP_FALSE || op.kind == OP_SKIP_TRUE)
            pc = is(&stack[n - 1], op.kind == OP_SKIP_TRUE) ? op.arg - 1u : pc;
        else
            n = operate(sql, op, stack, n);
    }
    return is(&stack[0], true);
}
