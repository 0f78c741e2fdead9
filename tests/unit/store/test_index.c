/*
 * The index on a simulated disk: bytes against RocketMQ's rules put one by one, which keys,
 * queries, expiry, cuts.
 */
#include "tests/unit/store/index_world.h"

#include "base/bytes.h"
#include "base/names.h"

/* ---- bytes ---- */

static void one_key_has_rocketmqs_bytes(void **state)
{
    (void)state;
    struct fixture f;
    uint8_t expected[40];
    uint8_t raw[40];
    struct file *file;
    size_t got;
    set_up(&f, 1, 5000000, 20000000);
    put(&f, 4096, NULL, "KeyA");
    flush(&f);
    assert_ok(index_file_open(f.index->files[0], f.sim.env.fs, DIR, FS_READ, &file));
    int64_t size;
    assert_ok(file_size(file, &size));
    assert_int_equal(size, 420000040);
    assert_ok(file_pread(file, raw, 40, 0, &got));
    put_be64(expected, T0 + 4096);
    put_be64(expected + 8, T0 + 4096);
    from_hex("0000000000001000 0000000000001000 00000001 00000002", expected + 16);
    assert_memory_equal(raw, expected, 40);
    assert_ok(file_pread(file, raw, 4, 40 + 4 * 1937756, &got));
    from_hex("00000001", expected);
    assert_memory_equal(raw, expected, 4);
    assert_ok(file_pread(file, raw, 20, 40 + 4 * 5000000 + 20, &got));
    put_be32(expected, 1656937756);
    from_hex("0000000000001000 00000000 00000000", expected + 4);
    assert_memory_equal(raw, expected, 20);
    file_close(file);
    assert_int_equal(strlen(f.index->files[0]->name), 17);
    tear_down(&f);
}

static void hashes_are_javas_made_positive(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 7, 5, 10);
    assert_int_equal(index_key_hash(TOPIC, 9, "KeyA", 4), 1656937756);
    assert_int_equal(index_key_hash(TOPIC, 9, "Aa", 2), 2744770);
    assert_int_equal(index_key_hash(TOPIC, 9, "tbaekxa", 7), 0); /* its hash is INT_MIN */
    for (int i = 0; i < 2000; i++) {
        char text[128] = "TopicTest#";
        size_t len = 10 + rng_below(f.sim.env.rng, 60);
        for (size_t k = 10; k < len; k++)
            text[k] = (char)(' ' + rng_below(f.sim.env.rng, i % 4 ? 95 : 224));
        int32_t h = java_hash(text, len);
        assert_int_equal(index_key_hash(TOPIC, 9, text + 10, len - 10), h == INT32_MIN ? 0
                                                                        : h < 0        ? -h
                                                                                       : h);
    }
    tear_down(&f);
}

/* IndexFile#putKey, as RocketMQ does it: one entry at a time. */
struct model {
    uint8_t *bytes;
    struct index_header h;
};

static void model_begin(struct model *m, const struct fixture *f, const struct model *before)
{
    m->bytes = calloc(1, (size_t)index_file_bytes(f->slots, f->entries));
    m->h = (struct index_header){.count = 1};
    if (before) {
        m->h.begin_ms = m->h.end_ms = before->h.end_ms;
        m->h.begin_phys = m->h.end_phys = before->h.end_phys;
    }
}

static void model_put(struct model *m, const struct fixture *f, uint32_t hash, int64_t phys,
                      int64_t ms)
{
    uint8_t *slot = m->bytes + 40 + (size_t)(hash % f->slots) * 4;
    uint8_t *entry = m->bytes + 40 + (size_t)f->slots * 4 + (size_t)m->h.count * 20;
    uint32_t prev = get_be32(slot);
    int64_t diff = m->h.begin_ms > 0 ? (ms - m->h.begin_ms) / 1000 : 0;
    put_be32(entry, hash);
    put_be64(entry + 4, (uint64_t)phys);
    put_be32(entry + 12, (uint32_t)diff);
    put_be32(entry + 16, prev);
    put_be32(slot, m->h.count);
    if (m->h.count == 1) {
        m->h.begin_ms = ms;
        m->h.begin_phys = phys;
    }
    m->h.slots_used += prev == 0;
    m->h.count++;
    m->h.end_ms = ms;
    m->h.end_phys = phys;
    put_be64(m->bytes, (uint64_t)m->h.begin_ms);
    put_be64(m->bytes + 8, (uint64_t)m->h.end_ms);
    put_be64(m->bytes + 16, (uint64_t)m->h.begin_phys);
    put_be64(m->bytes + 24, (uint64_t)m->h.end_phys);
    put_be32(m->bytes + 32, m->h.slots_used);
    put_be32(m->bytes + 36, m->h.count);
}

static void batches_give_the_bytes_of_single_puts(void **state)
{
    (void)state;
    static const uint32_t slot_counts[] = {1, 7, 1014, 1015, 20000, 40000};
    for (size_t s = 0; s < sizeof slot_counts / sizeof slot_counts[0]; s++) {
        struct fixture f;
        struct model models[16];
        size_t count = 0;
        set_up(&f, s + 1, slot_counts[s], 300);
        for (int n = 0; n < 2000; n++) {
            char key[32];
            int64_t phys = n * 500;
            snprintf(key, sizeof key, "K%d", (int)rng_below(f.sim.env.rng, 100));
            put(&f, phys, NULL, key);
            if (count == 0 || models[count - 1].h.count >= 300) {
                model_begin(&models[count], &f, count ? &models[count - 1] : NULL);
                count++;
            }
            model_put(&models[count - 1], &f, index_key_hash(TOPIC, 9, key, strlen(key)), phys,
                      T0 + phys);
            if (rng_below(f.sim.env.rng, 40) == 0)
                assert_ok(index_apply(f.index));
            if (rng_below(f.sim.env.rng, 300) == 0)
                flush(&f);
        }
        flush(&f);
        assert_int_equal(f.index->file_count, count);
        for (uint32_t i = 0; i < count; i++) {
            size_t size;
            uint8_t *bytes = read_file(&f, i, &size);
            assert_memory_equal(bytes, models[i].bytes, size);
            free(bytes);
            free(models[i].bytes);
        }
        tear_down(&f);
    }
}

/* ---- which keys ---- */

static void uniq_key_and_each_word_of_keys_are_indexed(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 100, 100);
    put(&f, 100, "U1", "a  b c ");
    put(&f, 200, NULL, "a");
    put(&f, 300, NULL, NULL);
    assert_ok(try_put(&f, 400, "prepared", NULL, SYS_TX_PREPARED));
    assert_ok(try_put(&f, 500, "rolled_back", NULL, SYS_TX_ROLLBACK));
    assert_ok(try_put(&f, 600, "committed", NULL, SYS_TX_COMMIT));
    assert_int_equal(query(&f, "U1", 0, INT64_MAX)->count, 1);
    struct hits *hits = query(&f, "a", 0, INT64_MAX);
    assert_int_equal(hits->count, 2);
    assert_int_equal(hits->phys[0], 200); /* newest first */
    assert_int_equal(hits->phys[1], 100);
    assert_int_equal(query(&f, "b", 0, INT64_MAX)->count, 1);
    assert_int_equal(query(&f, "c", 0, INT64_MAX)->count, 1);
    assert_int_equal(query(&f, "prepared", 0, INT64_MAX)->count, 1);
    assert_int_equal(query(&f, "rolled_back", 0, INT64_MAX)->count, 0);
    assert_int_equal(query(&f, "committed", 0, INT64_MAX)->count, 1);
    assert_int_equal(f.index->files[0]->header.count, 1 + 7);
    tear_down(&f);
}

/* ---- queries ---- */

static void a_query_sees_what_was_just_put_and_crosses_files(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 17, 50);
    put_numbered(&f, 0, 200);
    check_numbered(&f, 0, 200);
    assert_true(f.index->file_count > 5);
    int64_t begin;
    int64_t end;
    int64_t phys;
    index_service_range(f.index, &begin, &end, &phys);
    assert_int_equal(begin, T0);
    assert_int_equal(end, T0 + 19900);
    assert_int_equal(phys, 19900);
    tear_down(&f);
}

static void a_query_can_be_stopped_and_bounded_in_time(void **state)
{
    (void)state;
    struct fixture f;
    struct hits hits = {.limit = 3};
    set_up(&f, 1, 17, 50);
    put_numbered(&f, 0, 400);
    assert_ok(index_service_query(f.index, TOPIC, "common", 0, INT64_MAX, add_hit, &hits));
    assert_int_equal(hits.count, 3);
    assert_int_equal(hits.phys[0], 39900);
    struct hits *ranged = query(&f, "common", T0 + 10000, T0 + 20000);
    int wanted = 0;
    for (size_t i = 0; i < ranged->count; i++) {
        assert_in_range(ranged->phys[i], 9000, 21000); /* to the second */
        wanted += ranged->phys[i] >= 10000 && ranged->phys[i] <= 20000;
    }
    assert_int_equal(wanted, 101);
    assert_int_equal(query(&f, "common", T0 + 50000, INT64_MAX)->count, 0);
    assert_int_equal(query(&f, "common", 0, T0 - 1)->count, 0);
    tear_down(&f);
}

static void an_empty_index_says_so(void **state)
{
    (void)state;
    struct fixture f;
    int64_t begin = 1;
    int64_t end = 1;
    int64_t phys = 1;
    set_up(&f, 1, 17, 50);
    assert_int_equal(query(&f, "x", 0, INT64_MAX)->count, 0);
    index_service_range(f.index, &begin, &end, &phys);
    assert_int_equal(begin | end | phys, 0);
    flush(&f);
    assert_int_equal(f.safe_ms, 0);
    tear_down(&f);
}

static void the_task_applies_within_a_second(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 17, 50);
    put_numbered(&f, 0, 5);
    assert_int_equal(files(&f), 0);
    sim_run_for(f.sim.sched, 1100 * 1000000ll);
    assert_int_equal(f.index->files[0]->header.count, 11);
    put_numbered(&f, 5, 6);
    sim_run_for(f.sim.sched, 1100 * 1000000ll);
    assert_int_equal(f.index->files[0]->header.count, 13);
    tear_down(&f);
}

/* ---- expiry and cuts ---- */

static void expiry_removes_files_before_the_log(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 17, 21); /* 10 records a file */
    put_numbered(&f, 0, 95);
    flush(&f);
    assert_int_equal(f.index->file_count, 10);
    assert_ok(index_service_expire(f.index, 3000, &f.err));
    assert_int_equal(files(&f), 7);
    check_numbered(&f, 30, 95);
    assert_ok(index_service_expire(f.index, INT64_MAX, &f.err));
    assert_int_equal(files(&f), 1); /* never the last */
    put_numbered(&f, 95, 120);
    check_numbered(&f, 95, 120);
    tear_down(&f);
}

/* The log was cut: what reaches beyond its end is taken back, the rest stays. */
static void entries_beyond_the_log_are_taken_back(void **state)
{
    (void)state;
    for (int end = 0; end <= 95; end += 19) {
        struct fixture f;
        int64_t end_phys;
        set_up(&f, 1, 17, 21);
        put_numbered(&f, 0, 95);
        flush(&f);
        index_service_destroy(f.index);
        f.log_end = end * 100;
        open_index(&f, end % 2, &end_phys);
        assert_int_equal(end_phys, end ? (end - 1) * 100 : 0);
        f.log_end = INT64_MAX;
        check_numbered(&f, 0, end);
        struct hits *hits = query(&f, "common", 0, INT64_MAX);
        assert_int_equal(hits->count, end);
        put_numbered(&f, end, 95);
        check_numbered(&f, 0, 95);
        tear_down(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key_has_rocketmqs_bytes),
        cmocka_unit_test(hashes_are_javas_made_positive),
        cmocka_unit_test(batches_give_the_bytes_of_single_puts),
        cmocka_unit_test(uniq_key_and_each_word_of_keys_are_indexed),
        cmocka_unit_test(a_query_sees_what_was_just_put_and_crosses_files),
        cmocka_unit_test(a_query_can_be_stopped_and_bounded_in_time),
        cmocka_unit_test(an_empty_index_says_so),
        cmocka_unit_test(the_task_applies_within_a_second),
        cmocka_unit_test(expiry_removes_files_before_the_log),
        cmocka_unit_test(entries_beyond_the_log_are_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
