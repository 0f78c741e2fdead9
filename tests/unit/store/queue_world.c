#include "tests/unit/store/queue_world.h"

struct queue_unit unit_at(int64_t offset)
{
    return (struct queue_unit){offset * RECORD_BYTES, RECORD_BYTES, offset * 7 + 1};
}

void open_table(struct fixture *f)
{
    assert_ok(queue_table_create(&f->sim.env, DIR, FILE_BYTES, 2, false, &f->table));
}

void open_queue(struct fixture *f)
{
    assert_ok(queue_table_ref(f->table, TOPIC, strlen(TOPIC), 0, &f->queue));
}

void set_up(struct fixture *f, uint64_t seed)
{
    memset(f, 0, sizeof *f);
    sim_env_init(&f->sim, seed);
    open_table(f);
    open_queue(f);
}

void close_table(struct fixture *f)
{
    consume_queue_unref(f->queue);
    queue_table_destroy(f->table);
    f->queue = NULL;
    f->table = NULL;
}

void tear_down(struct fixture *f)
{
    close_table(f);
    sim_env_fini(&f->sim);
}

void recover(struct fixture *f, int64_t log_min, int64_t log_end)
{
    enum tern_code rc = queue_table_recover(f->table, log_min, log_end, &f->max_phys, &f->err);
    if (rc)
        fail_msg("%s", error_text(&f->err, rc));
    open_queue(f);
}

void restart(struct fixture *f, int torn, int64_t log_min, int64_t log_end)
{
    if (torn >= 0)
        sim_fs_power_loss(f->sim.fs, (enum sim_torn)torn);
    close_table(f);
    open_table(f);
    recover(f, log_min, log_end);
}

enum tern_code try_put(struct consume_queue *queue, int64_t from, int64_t end)
{
    enum tern_code code = TERN_OK;
    while (from < end && code == TERN_OK) {
        struct queue_unit units[37];
        uint32_t n = 0;
        while (n < 37 && from + n < end) {
            units[n] = unit_at(from + n);
            n++;
        }
        code = consume_queue_put(queue, from, units, n);
        from += n;
    }
    return code;
}

void put(struct fixture *f, int64_t from, int64_t end)
{
    assert_ok(try_put(f->queue, from, end));
}

void flush(struct fixture *f, bool durable)
{
    assert_ok(queue_table_flush(f->table, durable, &f->err));
}

void check_range(struct consume_queue *queue, int64_t from, int64_t end)
{
    while (from < end) {
        struct queue_unit units[64];
        uint32_t got;
        uint32_t want = end - from < 64 ? (uint32_t)(end - from) : 64;
        assert_ok(consume_queue_read(queue, from, units, want, false, &got));
        assert_in_range(got, 1, want);
        for (uint32_t i = 0; i < got; i++) {
            struct queue_unit right = unit_at(from + i);
            assert_int_equal(units[i].phys_off, right.phys_off);
            assert_int_equal(units[i].size, right.size);
            assert_int_equal(units[i].tags_code, right.tags_code);
        }
        from += got;
    }
}

void check(struct fixture *f, int64_t min, int64_t max)
{
    assert_int_equal(consume_queue_min(f->queue), min);
    assert_int_equal(consume_queue_max(f->queue), max);
    check_range(f->queue, min, max);
}

void read_file(struct fixture *f, const char *name, void *buf, size_t size, int64_t at)
{
    char path[FS_PATH_BYTES];
    struct file *file;
    size_t got;
    assert_ok(fs_join(path, DIR "/" TOPIC "/0", name));
    assert_ok(fs_open(f->sim.env.fs, path, FS_READ, &file));
    assert_ok(file_pread(file, buf, size, at, &got));
    assert_int_equal(got, size);
    file_close(file);
}

bool file_exists(struct fixture *f, int64_t start)
{
    char path[FS_PATH_BYTES];
    snprintf(path, sizeof path, DIR "/" TOPIC "/0/%020lld", (long long)start);
    return fs_exists(f->sim.env.fs, path);
}
