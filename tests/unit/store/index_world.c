#include "tests/unit/store/index_world.h"

#include "base/props.h"

void open_index(struct fixture *f, bool clean, int64_t *end_phys)
{
    const struct index_recovery input = {.clean = clean,
                                         .safe_ms = f->safe_ms,
                                         .durable_phys = f->durable_phys,
                                         .log_end = f->log_end};
    assert_ok(index_service_create(&f->sim.env, DIR, f->slots, f->entries, false, &f->index));
    assert_ok(index_service_load(f->index, &input, &f->state, &f->err));
    if (f->state == INDEX_LOST)
        f->durable_phys = 0;
    assert_ok(index_service_mend(f->index, &input, end_phys, &f->err));
}

void set_up(struct fixture *f, uint64_t seed, uint32_t slots, uint32_t entries)
{
    int64_t end_phys = -1;
    memset(f, 0, sizeof *f);
    sim_env_init(&f->sim, seed);
    f->slots = slots;
    f->entries = entries;
    f->log_end = INT64_MAX;
    open_index(f, true, &end_phys);
    assert_int_equal(end_phys, 0);
}

void tear_down(struct fixture *f)
{
    index_service_destroy(f->index);
    assert_int_equal(sim_fs_open_handles(f->sim.fs), 0);
    sim_env_fini(&f->sim);
}

void flush(struct fixture *f)
{
    assert_ok(index_service_finish(f->index, &f->safe_ms, &f->err));
}

enum tern_code try_put(struct fixture *f, int64_t phys_off, const char *uniq, const char *keys,
                       uint32_t sys_flag)
{
    uint8_t props[512];
    size_t len = 0;
    if (uniq)
        assert_ok(props_append(props, &len, sizeof props, PROP_UNIQ_KEY, 8, uniq, strlen(uniq)));
    if (keys)
        assert_ok(props_append(props, &len, sizeof props, PROP_KEYS, 4, keys, strlen(keys)));
    const struct record record = {.phys_off = phys_off,
                                  .store_ms = T0 + phys_off,
                                  .sys_flag = sys_flag,
                                  .topic = (const uint8_t *)TOPIC,
                                  .topic_len = sizeof TOPIC - 1,
                                  .props = props,
                                  .props_len = (uint16_t)len};
    return index_service_put(f->index, &record);
}

void put(struct fixture *f, int64_t phys_off, const char *uniq, const char *keys)
{
    assert_ok(try_put(f, phys_off, uniq, keys, 0));
}

void put_numbered(struct fixture *f, int from, int end)
{
    for (int n = from; n < end; n++) {
        char uniq[32];
        snprintf(uniq, sizeof uniq, "U%d", n);
        put(f, n * 100, uniq, "common");
    }
}

bool add_hit(void *arg, int64_t phys_off)
{
    struct hits *hits = arg;
    hits->phys[hits->count++] = phys_off;
    return hits->count < hits->limit;
}

struct hits *query(struct fixture *f, const char *key, int64_t begin, int64_t end)
{
    static struct hits hits;
    hits.count = 0;
    hits.limit = 2000;
    assert_ok(index_service_query(f->index, TOPIC, key, begin, end, add_hit, &hits));
    return &hits;
}

void check_numbered(struct fixture *f, int from, int end)
{
    for (int n = from; n < end; n++) {
        char uniq[32];
        snprintf(uniq, sizeof uniq, "U%d", n);
        struct hits *hits = query(f, uniq, 0, INT64_MAX);
        bool found = false;
        for (size_t i = 0; i < hits->count; i++)
            found |= hits->phys[i] == n * 100;
        if (!found)
            fail_msg("record %d is not found", n);
    }
    struct hits *hits = query(f, "common", 0, INT64_MAX);
    int n = end;
    for (size_t i = 0; i < hits->count; i++)
        if (n > from && hits->phys[i] == (n - 1) * 100)
            n--;
    assert_int_equal(n, from);
}

static bool count_file(void *arg, const char *name, bool is_dir)
{
    (void)name;
    (void)is_dir;
    ++*(unsigned *)arg;
    return true;
}

unsigned files(struct fixture *f)
{
    unsigned count = 0;
    (void)!fs_list(f->sim.env.fs, DIR, count_file, &count);
    return count;
}

uint8_t *read_file(struct fixture *f, uint32_t number, size_t *size)
{
    struct file *file;
    *size = (size_t)index_file_bytes(f->slots, f->entries);
    uint8_t *bytes = malloc(*size);
    size_t got;
    assert_ok(index_file_open(f->index->files[number], f->sim.env.fs, DIR, FS_READ, &file));
    assert_ok(file_pread(file, bytes, *size, 0, &got));
    assert_int_equal(got, *size);
    file_close(file);
    return bytes;
}
