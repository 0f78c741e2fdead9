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

/* What recovery knows when it comes to the index. */
struct index_recovery {
    bool clean;      /* no abort mark */
    int64_t safe_ms; /* the checkpoint's */
    int64_t
        durable_phys; /* records before are indexed on the disk, by the flush mark; 0: unknown */
    int64_t log_end;
};
enum index_state {
    INDEX_WHOLE,  /* all that was dispatched is in it */
    INDEX_BEHIND, /* all before durable_phys is */
    INDEX_LOST    /* it ends where mending says, and not even the flush mark is right any more */
};
/*
 * Finds the files and decides about each; nothing is changed. INDEX_LOST: the caller takes back
 * what the flush mark says of the index, durably, before mending.
 */
MUST_CHECK enum tern_code index_service_load(struct index_service *index,
                                             const struct index_recovery *input,
                                             enum index_state *state, struct tern_error *err);
/* Mends and removes. *end_phys: position of the last record in the files, 0 when there is none. */
MUST_CHECK enum tern_code index_service_mend(struct index_service *index,
                                             const struct index_recovery *input, int64_t *end_phys,
                                             struct tern_error *err);

/* Indexes one record's UNIQ_KEY and KEYS; records before the indexed end are skipped. @thread
 * dispatch token */
MUST_CHECK enum tern_code index_service_put(struct index_service *index,
                                            const struct record *record);

/* From now on keys that find no room on the disk stay in memory, up to a limit; false: no more.
 * @thread dispatch token */
void index_service_keep(struct index_service *index, bool keep);

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
/*
 * Brings every key put until now to the disk, while puts go on. *safe_ms is what the checkpoint may
 * say then; noted_ms is what it says already.
 */
MUST_CHECK enum tern_code index_service_sync(struct index_service *index, int64_t noted_ms,
                                             int64_t *safe_ms, struct tern_error *err);
/* The same at the end, when nobody puts: no file keeps the unfinished mark. */
MUST_CHECK enum tern_code index_service_finish(struct index_service *index, int64_t *safe_ms,
                                               struct tern_error *err);
/*
 * The log was cut: nothing of records at or behind `at` stays; durable when it returns. Before, the
 * flush mark was lowered. clear: nothing stays. @thread who holds the dispatch token @blocks on the
 * disk
 */
MUST_CHECK enum tern_code index_service_cut(struct index_service *index, int64_t at,
                                            struct tern_error *err);
MUST_CHECK enum tern_code index_service_clear(struct index_service *index, struct tern_error *err);
MUST_CHECK enum tern_code index_service_expire(struct index_service *index, int64_t log_min,
                                               struct tern_error *err);

#endif
