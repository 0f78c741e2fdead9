/*
 * The parser of SQL92 expressions: operator precedence by binding powers (Pratt), operations
 * emitted in the order of evaluation.
 *
 *   OR < AND < NOT < {= <> IS NULL} < {< <= > >= BETWEEN IN} < sign < (…), names, literals
 *
 * The kinds of operands are checked here, so that a message can only meet what has a meaning: an
 * expression that could never match is refused when it is subscribed, not silently unmatched.
 *
 * Invariants: recursion is bounded: parse() calls itself with a higher binding power, or below a
 * parenthesis or NOT, which count as depth (SQL_DEPTH_MAX). Threads: any, no state. Failure modes:
 * TERN_SUBSCRIPTION_PARSE_FAILED with position and cause, TERN_NO_MEMORY.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sql_internal.h"

/* What an operand is, as far as the text tells. */
enum kind { KIND_CONDITION, KIND_PROPERTY, KIND_NUMBER, KIND_STRING };

enum power {
    POWER_NONE,
    POWER_OR,
    POWER_AND,
    POWER_NOT,
    POWER_EQUALITY,
    POWER_COMPARISON,
    POWER_SIGN
};

struct operand {
    enum kind kind;
    size_t position;
    const struct sql_value *constant; /* NULL: none */
};

struct parser {
    struct sql *sql;
    struct sql_lexer lexer;
    struct sql_token token; /* the current one */
    unsigned depth;
    uint32_t stack; /* values there would be now */
    struct tern_error *err;
};

/* ---- errors ---- */

static size_t position_of(const struct parser *p, const struct sql_token *token)
{
    return (size_t)(token->text - p->lexer.text);
}

static enum tern_code fail(const struct parser *p, size_t position, const char *cause)
{
    return error_set(p->err, TERN_SUBSCRIPTION_PARSE_FAILED, "SQL92: %s at position %zu", cause,
                     position);
}

/* Something else was expected than the current token. */
static enum tern_code unexpected(const struct parser *p, const char *wanted)
{
    size_t position = position_of(p, &p->token);
    if (p->token.kind == TOKEN_END)
        return error_set(p->err, TERN_SUBSCRIPTION_PARSE_FAILED,
                         "SQL92: %s expected at position %zu, where the expression ends", wanted,
                         position);
    if (p->token.kind == TOKEN_TEXT)
        return error_set(p->err, TERN_SUBSCRIPTION_PARSE_FAILED,
                         "SQL92: %s expected at position %zu, found a text", wanted, position);
    return error_set(p->err, TERN_SUBSCRIPTION_PARSE_FAILED,
                     "SQL92: %s expected at position %zu, found \"%.*s\"", wanted, position,
                     p->token.len < 64 ? (int)p->token.len : 64, p->token.text);
}

static enum tern_code advance(struct parser *p)
{
    return sql_next(&p->lexer, &p->token, p->err);
}

static enum tern_code expect(struct parser *p, enum sql_token_kind kind, const char *wanted)
{
    return p->token.kind == kind ? advance(p) : unexpected(p, wanted);
}

/* ---- emitting ---- */

/* pushes: how many values more there are afterwards. */
static uint32_t emit(struct parser *p, enum sql_op_kind kind, uint32_t arg, int pushes)
{
    struct sql *sql = p->sql;
    sql->ops[sql->op_count] = (struct sql_op){.kind = (uint16_t)kind, .arg = (uint16_t)arg};
    p->stack = (uint32_t)((int)p->stack + pushes);
    ENSURE(p->stack <= SQL_STACK_MAX); /* follows from SQL_DEPTH_MAX */
    return sql->op_count++;
}

static struct slice keep_text(struct sql *sql, const char *text, size_t len)
{
    char *at = sql->texts + sql->texts_used;
    memcpy(at, text, len);
    sql->texts_used += len;
    return (struct slice){.ptr = (const uint8_t *)at, .len = len};
}

/* The literal without its quotes, '' as one quote. */
static struct slice keep_literal(struct sql *sql, const struct sql_token *token)
{
    char *at = sql->texts + sql->texts_used;
    size_t len = 0;
    for (size_t i = 1; i + 1 < token->len; i++) {
        at[len++] = token->text[i];
        i += token->text[i] == '\'';
    }
    sql->texts_used += len;
    return (struct slice){.ptr = (const uint8_t *)at, .len = len};
}

static const struct sql_value *emit_constant(struct parser *p, const struct sql_value *value)
{
    struct sql_value *constant = &p->sql->constants[p->sql->constant_count];
    *constant = *value;
    emit(p, OP_CONSTANT, p->sql->constant_count++, 1);
    return constant;
}

static void enter_name(struct sql *sql, const struct slice *name)
{
    unsigned slot = sql_name_slot(name->ptr, name->len);
    while (sql->name_slots[slot])
        slot = (slot + 1) % SQL_NAME_SLOTS;
    sql->names[sql->name_count++] = *name;
    sql->name_slots[slot] = (uint8_t)sql->name_count;
}

static enum tern_code emit_property(struct parser *p)
{
    struct sql *sql = p->sql;
    uint32_t i = 0;
    while (i < sql->name_count && (sql->names[i].len != p->token.len ||
                                   memcmp(sql->names[i].ptr, p->token.text, p->token.len) != 0))
        i++;
    if (i == SQL_NAMES_MAX)
        return error_set(p->err, TERN_SUBSCRIPTION_PARSE_FAILED,
                         "SQL92: more than %d different properties, at position %zu",
                         (int)SQL_NAMES_MAX, position_of(p, &p->token));
    if (i == sql->name_count) {
        struct slice name = keep_text(sql, p->token.text, p->token.len);
        enter_name(sql, &name);
    }
    emit(p, OP_PROPERTY, i, 1);
    return advance(p);
}

/* ---- checks ---- */

/* Makes the operand a condition, or says why it is none. */
static enum tern_code want_condition(struct parser *p, struct operand *operand)
{
    switch (operand->kind) {
    case KIND_CONDITION:
        return TERN_OK;
    case KIND_PROPERTY: /* as if "= TRUE" stood behind */
        emit(p, OP_TRUTH, 0, 0);
        operand->kind = KIND_CONDITION;
        return TERN_OK;
    case KIND_NUMBER:
        return fail(p, operand->position, "a number is no condition");
    case KIND_STRING:
        break;
    }
    return fail(p, operand->position, "a text is no condition");
}

/* < > BETWEEN take numbers and properties. */
static enum tern_code want_ordered(struct parser *p, const struct operand *operand)
{
    if (operand->kind == KIND_STRING)
        return fail(p, operand->position, "a text has no order (only = and <> compare texts)");
    if (operand->kind == KIND_CONDITION)
        return fail(p, operand->position, "a condition has no order");
    return TERN_OK;
}

static enum tern_code want_comparable(struct parser *p, const struct operand *left,
                                      const struct operand *right)
{
    bool literal = left->kind == KIND_NUMBER || left->kind == KIND_STRING;
    bool other = right->kind == KIND_NUMBER || right->kind == KIND_STRING;
    if ((left->kind == KIND_CONDITION && other) || (literal && right->kind == KIND_CONDITION))
        return fail(p, right->position, "a condition is compared with a number or text");
    return TERN_OK;
}

/* ---- operands ---- */

static enum tern_code parse(struct parser *p, enum power least, struct operand *out);

static enum tern_code enter(struct parser *p)
{
    if (++p->depth <= SQL_DEPTH_MAX)
        return TERN_OK;
    return error_set(p->err, TERN_SUBSCRIPTION_PARSE_FAILED,
                     "SQL92: nested %u deep at position %zu, allowed are %d levels of ( and NOT",
                     p->depth, position_of(p, &p->token), (int)SQL_DEPTH_MAX);
}

static enum tern_code parse_group(struct parser *p, struct operand *out)
{
    enum tern_code code = enter(p);
    if (!code)
        code = advance(p);
    if (!code)
        code = parse(p, POWER_OR, out);
    if (!code)
        code = expect(p, TOKEN_CLOSE, "an operator or \")\"");
    p->depth--;
    return code;
}

static enum tern_code parse_not(struct parser *p, struct operand *out)
{
    enum tern_code code = enter(p);
    if (!code)
        code = advance(p);
    if (!code)
        code = parse(p, POWER_EQUALITY, out);
    if (!code)
        code = want_condition(p, out);
    if (!code)
        emit(p, OP_NOT, 0, 0);
    p->depth--;
    return code;
}

static enum tern_code check_number(struct parser *p, const struct sql_value *value)
{
    size_t position = position_of(p, &p->token);
    bool written_integer = !memchr(p->token.text, '.', p->token.len) &&
                           !memchr(p->token.text, 'e', p->token.len) &&
                           !memchr(p->token.text, 'E', p->token.len);
    if (written_integer && value->kind != SQL_INT)
        return error_set(p->err, TERN_SUBSCRIPTION_PARSE_FAILED,
                         "SQL92: the integer at position %zu is not in %" PRId64 "..%" PRId64,
                         position, INT64_MIN, INT64_MAX);
    if (value->kind == SQL_REAL && isinf(value->real))
        return fail(p, position, "a number too large for a double");
    bool zero = true; /* as written */
    for (size_t i = 0; i < p->token.len && (p->token.text[i] | 0x20) != 'e'; i++)
        zero = zero && (p->token.text[i] < '1' || p->token.text[i] > '9');
    if (value->kind == SQL_REAL && fpclassify(value->real) == FP_ZERO && !zero)
        return fail(p, position, "a number too small for a double");
    return TERN_OK;
}

/* Any signs, then a number. */
static enum tern_code parse_number(struct parser *p, struct operand *out)
{
    bool minus = false;
    enum tern_code code = TERN_OK;
    while (!code && (p->token.kind == TOKEN_PLUS || p->token.kind == TOKEN_MINUS)) {
        minus ^= p->token.kind == TOKEN_MINUS;
        code = advance(p);
    }
    if (code)
        return code;
    if (p->token.kind != TOKEN_NUMBER)
        return unexpected(p, "a number behind the sign");
    struct sql_value value;
    char signed_text[64];
    size_t len = p->token.len;
    if (len + 1 > sizeof signed_text)
        return fail(p, position_of(p, &p->token), "a number of more than 63 characters");
    signed_text[0] = minus ? '-' : '+';
    memcpy(signed_text + 1, p->token.text, len);
    ENSURE(sql_number((const uint8_t *)signed_text, len + 1, &value));
    code = check_number(p, &value);
    if (code)
        return code;
    out->kind = KIND_NUMBER;
    out->constant = emit_constant(p, &value);
    return advance(p);
}

static enum tern_code parse_literal(struct parser *p, struct operand *out)
{
    struct sql_value value = {.kind = SQL_BOOL, .truth = p->token.kind == TOKEN_TRUE};
    out->kind = KIND_CONDITION;
    if (p->token.kind == TOKEN_TEXT) {
        struct slice text = keep_literal(p->sql, &p->token);
        value = (struct sql_value){.kind = SQL_TEXT, .len = (uint32_t)text.len, .text = text.ptr};
        out->kind = KIND_STRING;
    }
    emit_constant(p, &value);
    return advance(p);
}

/* What stands before any operator. */
static enum tern_code parse_operand(struct parser *p, struct operand *out)
{
    *out = (struct operand){.kind = KIND_PROPERTY, .position = position_of(p, &p->token)};
    switch (p->token.kind) {
    case TOKEN_OPEN:
        return parse_group(p, out);
    case TOKEN_NOT:
        return parse_not(p, out);
    case TOKEN_NAME:
        return emit_property(p);
    case TOKEN_NUMBER:
    case TOKEN_PLUS:
    case TOKEN_MINUS:
        return parse_number(p, out);
    case TOKEN_TEXT:
    case TOKEN_TRUE:
    case TOKEN_FALSE:
        return parse_literal(p, out);
    case TOKEN_NULL:
        return fail(p, out->position, "NULL compares with nothing (write IS NULL)");
    default:
        return unexpected(p, "a property, a literal or \"(\"");
    }
}

/* ---- operators ---- */

/* AND, OR: the right side is jumped over when the left one decides. */
static enum tern_code parse_logic(struct parser *p, bool is_and, struct operand *left)
{
    struct operand right;
    enum tern_code code = want_condition(p, left);
    if (code)
        return code;
    uint32_t skip = emit(p, is_and ? OP_SKIP_FALSE : OP_SKIP_TRUE, 0, 0);
    code = advance(p);
    if (!code)
        code = parse(p, is_and ? POWER_NOT : POWER_AND, &right);
    if (!code)
        code = want_condition(p, &right);
    if (code)
        return code;
    emit(p, is_and ? OP_AND : OP_OR, 0, -1);
    p->sql->ops[skip].arg = (uint16_t)p->sql->op_count;
    return TERN_OK;
}

static enum tern_code parse_equality(struct parser *p, enum sql_op_kind kind, struct operand *left)
{
    struct operand right;
    enum tern_code code = advance(p);
    if (!code)
        code = parse(p, POWER_COMPARISON, &right);
    if (!code)
        code = want_comparable(p, left, &right);
    if (code)
        return code;
    emit(p, kind, 0, -1);
    left->kind = KIND_CONDITION;
    return TERN_OK;
}

static enum tern_code parse_order(struct parser *p, enum sql_op_kind kind, struct operand *left)
{
    struct operand right;
    enum tern_code code = want_ordered(p, left);
    if (!code)
        code = advance(p);
    if (!code)
        code = parse(p, POWER_SIGN, &right);
    if (!code)
        code = want_ordered(p, &right);
    if (code)
        return code;
    emit(p, kind, 0, -1);
    left->kind = KIND_CONDITION;
    return TERN_OK;
}

static enum tern_code parse_is(struct parser *p, struct operand *left)
{
    enum tern_code code = advance(p);
    bool negated = !code && p->token.kind == TOKEN_NOT;
    if (negated)
        code = advance(p);
    if (!code)
        code = expect(p, TOKEN_NULL, "NULL");
    if (code)
        return code;
    emit(p, negated ? OP_IS_NOT_NULL : OP_IS_NULL, 0, 0);
    left->kind = KIND_CONDITION;
    return TERN_OK;
}

static enum tern_code parse_between(struct parser *p, bool negated, struct operand *left)
{
    struct operand low;
    struct operand high;
    enum tern_code code = want_ordered(p, left);
    if (!code)
        code = advance(p);
    if (!code)
        code = parse(p, POWER_SIGN, &low);
    if (!code)
        code = want_ordered(p, &low);
    if (!code)
        code = expect(p, TOKEN_AND, "AND of BETWEEN");
    if (!code)
        code = parse(p, POWER_SIGN, &high);
    if (!code)
        code = want_ordered(p, &high);
    if (code)
        return code;
    if (low.constant && high.constant && sql_compare_numbers(low.constant, high.constant) > 0)
        return fail(p, low.position, "BETWEEN with the larger bound first");
    emit(p, negated ? OP_NOT_BETWEEN : OP_BETWEEN, 0, -2);
    left->kind = KIND_CONDITION;
    return TERN_OK;
}

/* Sorts the set's texts and drops those that are there twice. */
static void finish_set(struct sql *sql, struct sql_set *set)
{
    struct slice *members = &sql->members[set->first];
    size_t count = sql->member_count - set->first;
    size_t kept = 0;
    qsort(members, count, sizeof *members, sql_compare_members);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || sql_compare_members(&members[kept - 1], &members[i]) != 0)
            members[kept++] = members[i];
    set->count = (uint16_t)kept;
    sql->member_count = set->first + (uint32_t)kept;
}

static enum tern_code parse_in(struct parser *p, bool negated, struct operand *left)
{
    struct sql *sql = p->sql;
    struct sql_set *set = &sql->sets[sql->set_count];
    if (left->kind != KIND_PROPERTY)
        return fail(p, left->position, "only a property can be IN a list: what stands");
    set->first = (uint16_t)sql->member_count;
    enum tern_code code = advance(p);
    if (!code)
        code = expect(p, TOKEN_OPEN, "\"(\"");
    while (!code) {
        if (p->token.kind != TOKEN_TEXT)
            return unexpected(p, "a text in single quotes");
        sql->members[sql->member_count++] = keep_literal(sql, &p->token);
        code = advance(p);
        if (code || p->token.kind != TOKEN_COMMA)
            break;
        code = advance(p);
    }
    if (!code)
        code = expect(p, TOKEN_CLOSE, "\",\" or \")\"");
    if (code)
        return code;
    finish_set(sql, set);
    emit(p, negated ? OP_NOT_IN : OP_IN, sql->set_count++, 0);
    left->kind = KIND_CONDITION;
    return TERN_OK;
}

/* NOT behind an operand: NOT BETWEEN, NOT IN. */
static enum tern_code parse_negated(struct parser *p, struct operand *left)
{
    enum tern_code code = advance(p);
    if (code)
        return code;
    if (p->token.kind == TOKEN_BETWEEN)
        return parse_between(p, true, left);
    if (p->token.kind == TOKEN_IN)
        return parse_in(p, true, left);
    return unexpected(p, "BETWEEN or IN");
}

/* How strongly the token binds to the operand before it; POWER_NONE: it does not go on from one. */
static enum power power_of(enum sql_token_kind kind)
{
    switch (kind) {
    case TOKEN_OR:
        return POWER_OR;
    case TOKEN_AND:
        return POWER_AND;
    case TOKEN_EQUAL:
    case TOKEN_NOT_EQUAL:
    case TOKEN_IS:
        return POWER_EQUALITY;
    case TOKEN_LESS:
    case TOKEN_LESS_EQUAL:
    case TOKEN_GREATER:
    case TOKEN_GREATER_EQUAL:
    case TOKEN_BETWEEN:
    case TOKEN_IN:
    case TOKEN_NOT:
        return POWER_COMPARISON;
    default:
        return POWER_NONE;
    }
}

static enum tern_code parse_operator(struct parser *p, struct operand *left)
{
    left->constant = NULL;
    switch (p->token.kind) {
    case TOKEN_OR:
        return parse_logic(p, false, left);
    case TOKEN_AND:
        return parse_logic(p, true, left);
    case TOKEN_EQUAL:
        return parse_equality(p, OP_EQUAL, left);
    case TOKEN_NOT_EQUAL:
        return parse_equality(p, OP_NOT_EQUAL, left);
    case TOKEN_IS:
        return parse_is(p, left);
    case TOKEN_LESS:
        return parse_order(p, OP_LESS, left);
    case TOKEN_LESS_EQUAL:
        return parse_order(p, OP_LESS_EQUAL, left);
    case TOKEN_GREATER:
        return parse_order(p, OP_GREATER, left);
    case TOKEN_GREATER_EQUAL:
        return parse_order(p, OP_GREATER_EQUAL, left);
    case TOKEN_BETWEEN:
        return parse_between(p, false, left);
    case TOKEN_IN:
        return parse_in(p, false, left);
    default:
        return parse_negated(p, left);
    }
}

/* An operand and all operators behind it that bind at least as strongly as `least`. */
static enum tern_code parse(struct parser *p, enum power least, struct operand *out)
{
    enum tern_code code = parse_operand(p, out);
    while (!code && power_of(p->token.kind) >= least && power_of(p->token.kind) != POWER_NONE)
        code = parse_operator(p, out);
    return code;
}

/* ---- the whole ---- */

enum tern_code sql_parse(struct sql *sql, const char *text, size_t len, struct tern_error *err)
{
    struct parser p = {.sql = sql, .lexer = {.text = text, .len = len}, .err = err};
    struct operand whole;
    enum tern_code code = advance(&p);
    if (!code)
        code = parse(&p, POWER_OR, &whole);
    if (!code)
        code = want_condition(&p, &whole);
    if (!code && p.token.kind != TOKEN_END)
        code = unexpected(&p, "the end, or an operator");
    return code;
}
