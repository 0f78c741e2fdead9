/* Between config.c (tables), config_value.c (one value) and config_yaml.c (files). */
#ifndef BASE_CONFIG_INTERNAL_H
#define BASE_CONFIG_INTERNAL_H

#include "base/config.h"

/* Checks the text and stores it in the row's field; the error says what is allowed, not where. */
MUST_CHECK enum tern_code config_value_store(const struct config_row *row, void *config,
                                             const char *text, size_t len, struct tern_error *err);
/* What the row allows, for people: "1KiB..1GiB", "true, false". */
void config_value_allowed(const struct config_row *row, char *out, size_t size);
const char *config_type_name(enum config_type type);

/* Finds the row and stores; errors begin with "where: key: ". */
MUST_CHECK enum tern_code config_assign(const struct config_table *table, void *config,
                                        const char *key, size_t key_len, const char *value,
                                        size_t value_len, const char *where,
                                        struct tern_error *err);
/* Text from outside made fit for one line of an error: cut, control characters replaced. */
const char *config_show(const char *text, size_t len, char out[64]);

#endif
