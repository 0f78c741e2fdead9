/*
 * The index by message key: files of 40 + slots×4 + entries×20 bytes named by their creation time,
 * hash chains newest first (facts 1.11). Internal to the store.
 */
#ifndef STORE_INDEX_SERVICE_H
#define STORE_INDEX_SERVICE_H

#include "broker/store/store.h"

struct index_service;

/* dir is ROOT/index. */
MUST_CHECK enum tern_code index_service_create(const struct env *env, const char *dir,
                                               uint32_t slots, uint32_t entries, bool read_only,
                                               struct index_service **out);
void index_service_destroy(struct index_service *index);

/*
 * Finds the files. After a crash (`clean` false) those whose endTimestamp is beyond safe_ms (the
 * checkpoint's) were not synced: removed, the replay builds them again. *end_phys: indexed up to
 * here, 0 when empty.
 */
MUST_CHECK enum tern_code index_service_recover(struct index_service *index, bool clean,
                                                int64_t safe_ms, int64_t *end_phys,
                                                struct tern_error *err);

/* Indexes one record's UNIQ_KEY and KEYS; records before the indexed end are skipped. @thread
 * dispatch token */
MUST_CHECK enum tern_code index_service_put(struct index_service *index,
                                            const struct record *record);

/* Whether the next puts may have to wait for the disk; then the appender leaves its records to the
 * task. */
bool index_service_busy(const struct index_service *index);

/* Candidates, newest first: physical offsets whose key hash matches; return false to stop. @thread
 * any */
MUST_CHECK enum tern_code index_service_query(struct index_service *index, const char *topic,
                                              const char *key, int64_t begin_ms, int64_t end_ms,
                                              bool (*on_hit)(void *arg, int64_t phys_off),
                                              void *arg);
void index_service_range(struct index_service *index, int64_t *begin_ms, int64_t *end_ms,
                         int64_t *end_phys);
/* Syncs everything; *safe_ms is what the checkpoint may say then. */
MUST_CHECK enum tern_code index_service_flush(struct index_service *index, int64_t *safe_ms,
                                              struct tern_error *err);
MUST_CHECK enum tern_code index_service_expire(struct index_service *index, int64_t log_min,
                                               struct tern_error *err);
/* After a cut of the log: forgets files that index at or beyond log_end. */
MUST_CHECK enum tern_code index_service_cut(struct index_service *index, int64_t log_end,
                                            struct tern_error *err);

#endif
