/*
 * Building error texts. The enum itself is public: <tern/error.h>, the one header of include/ that
 * the ground floor may use.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdarg.h>

#include <tern/error.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* Sets *err (may be NULL) to code and text, and returns code. The text must not repeat the code's
 * own text. */
enum tern_code error_set(struct tern_error *err, enum tern_code code, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* Like error_set, and appends ": " and strerror(errno_value). */
enum tern_code error_set_errno(struct tern_error *err, enum tern_code code, int errno_value,
                               const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Puts "<prefix>: " before the text of *err (may be NULL); returns err's code, or `code` when err
 * is NULL. */
enum tern_code error_prefix(struct tern_error *err, enum tern_code code, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* The text of *err when it has one, else the code's own text. err may be NULL. */
const char *error_text(const struct tern_error *err, enum tern_code code);

/* The code that best describes an errno of a file operation (ENOSPC -> TERN_NO_SPACE, …, else
 * TERN_IO). */
enum tern_code error_from_errno(int errno_value);

/*
 * A bug, not an environment: asserted in every build, also in release. Prints where and aborts.
 */
#define ENSURE(condition)                                                                          \
    ((condition) ? (void)0 : error_ensure_failed(#condition, __FILE__, __LINE__))
_Noreturn void error_ensure_failed(const char *condition, const char *file, int line);

#endif
