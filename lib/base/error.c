/* Error texts and the table of codes. */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const char *text;
    bool retriable;
} codes[] = {
#define ROW_(name, text, retriable) [TERN_##name] = {#name, text, retriable},
    TERN_ERROR_TABLE(ROW_)
#undef ROW_
};

const char *tern_code_text(enum tern_code code)
{
    return (unsigned)code < TERN_CODE_COUNT ? codes[code].text : "unknown error code";
}

const char *tern_code_name(enum tern_code code)
{
    return (unsigned)code < TERN_CODE_COUNT ? codes[code].name : "UNKNOWN";
}

bool tern_code_retriable(enum tern_code code)
{
    return (unsigned)code < TERN_CODE_COUNT && codes[code].retriable;
}

enum tern_code error_set(struct tern_error *err, enum tern_code code, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        err->code = code;
        vsnprintf(err->text, sizeof err->text, fmt, args);
        va_end(args);
    }
    return code;
}

enum tern_code error_set_errno(struct tern_error *err, enum tern_code code, int errno_value,
                               const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        err->code = code;
        int used = vsnprintf(err->text, sizeof err->text, fmt, args);
        va_end(args);
        if (used > 0 && (size_t)used < sizeof err->text) {
            char reason[128];
            snprintf(err->text + used, sizeof err->text - (size_t)used, ": %s",
                     strerror_r(errno_value, reason, sizeof reason));
        }
    }
    return code;
}

/* Puts `text` behind what err holds, as far as it fits. */
static void append_text(struct tern_error *err, const char *text)
{
    size_t used = strnlen(err->text, sizeof err->text - 1);
    size_t len = strnlen(text, sizeof err->text - 1 - used);
    memcpy(err->text + used, text, len);
    err->text[used + len] = 0;
}

enum tern_code error_prefix(struct tern_error *err, enum tern_code code, const char *fmt, ...)
{
    if (!err)
        return code;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    old[sizeof old - 1] = 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    append_text(err, ": ");
    append_text(err, old);
    return err->code;
}

const char *error_text(const struct tern_error *err, enum tern_code code)
{
    return err && err->text[0] ? err->text : tern_code_text(code);
}

enum tern_code error_from_errno(int errno_value)
{
    switch (errno_value) {
    case 0:
        return TERN_OK;
    case ENOSPC:
    case EDQUOT:
        return TERN_NO_SPACE;
    case ENOENT:
    case ENOTDIR:
        return TERN_NOT_FOUND;
    case EEXIST:
        return TERN_EXISTS;
    case ENOMEM:
        return TERN_NO_MEMORY;
    case EAGAIN:
        return TERN_AGAIN;
    case EACCES:
    case EPERM:
        return TERN_NO_PERMISSION;
    case EMFILE:
    case ENFILE:
        return TERN_LIMIT;
    default:
        return TERN_IO;
    }
}

_Noreturn void error_ensure_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "fatal: %s:%d: this must hold and does not: %s\n", file, line, condition);
    abort();
}
