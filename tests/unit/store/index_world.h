/*
 * An index on a simulated disk, with the marks that the store keeps for it, and numbered records.
 */
#ifndef TESTS_UNIT_STORE_INDEX_WORLD_H
#define TESTS_UNIT_STORE_INDEX_WORLD_H

#include "tests/unit/base/unit.h"

#include "broker/store/index_internal.h"
#include "tests/sim/sim_env.h"

#define DIR "/store/index"
#define TOPIC "TopicTest"
#define T0 1700000000000

struct fixture {
    struct sim_env sim;
    struct index_service *index;
    struct tern_error err;
    uint32_t slots, entries;
    int64_t safe_ms;      /* as the checkpoint has it */
    int64_t durable_phys; /* as the flush mark has it */
    int64_t log_end;
    enum index_state state; /* as it was found */
};

struct hits {
    int64_t phys[2000];
    size_t count, limit;
};

/* What a process does at its start; *end_phys: where the store would go on. */
void open_index(struct fixture *f, bool clean, int64_t *end_phys);
/* An empty index of files with so many slots and entries. */
void set_up(struct fixture *f, uint64_t seed, uint32_t slots, uint32_t entries);
void tear_down(struct fixture *f);
/* Everything that was put is in the files. */
void flush(struct fixture *f);
/* One record at phys_off, 100 ms of store time for each. */
enum tern_code try_put(struct fixture *f, int64_t phys_off, const char *uniq, const char *keys,
                       uint32_t sys_flag);
void put(struct fixture *f, int64_t phys_off, const char *uniq, const char *keys);
/* Key n belongs to record n, at 100 × n; it also has the key that all share. */
void put_numbered(struct fixture *f, int from, int end);
/* Notes a hit in a struct hits, up to its limit. */
bool add_hit(void *arg, int64_t phys_off);
/* All records with the key, newest first; overwritten by the next call. */
struct hits *query(struct fixture *f, const char *key, int64_t begin, int64_t end);
/* Every numbered record is found by its own key, and all by the common one, newest first. */
void check_numbered(struct fixture *f, int from, int end);
/* How many files the index has. */
unsigned files(struct fixture *f);
/* The whole file `number` as it lies on the disk. */
uint8_t *read_file(struct fixture *f, uint32_t number, size_t *size);

#endif
