/* Small durable files: every crash leaves a good generation. */
#include "tests/unit/base/unit.h"

#include <errno.h>

#include "base/durable_file.h"
#include "base/fs.h"
#include "tests/sim/sim_env.h"

#define PATH "/conf/topics.json"

static struct sim_env sim;

static void world_begin(uint64_t seed)
{
    sim_env_init(&sim, seed);
    assert_ok(fs_mkdirs(sim.env.fs, "/conf"));
}

static int setup(void **state)
{
    (void)state;
    world_begin(3);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sim_env_fini(&sim);
    return 0;
}

/* A text is good when it is "<number>"; the number is what is got. */
struct got {
    int number;
    char extra[32];
    bool had_extra;
};

static enum tern_code parse(void *arg, const char *text, size_t len, const char *extra,
                            struct tern_error *err)
{
    struct got *got = arg;
    char *end;
    if (len < 3 || text[0] != '<' || text[len - 1] != '>' || strlen(text) != len)
        return error_set(err, TERN_CORRUPT, "not a number in brackets");
    got->number = (int)strtol(text + 1, &end, 10);
    if (*end != '>')
        return error_set(err, TERN_CORRUPT, "not a number in brackets");
    got->had_extra = extra != NULL;
    snprintf(got->extra, sizeof got->extra, "%s", extra ? extra : "");
    return TERN_OK;
}

static enum tern_code write_number(int number)
{
    char text[32];
    char extra[32];
    snprintf(text, sizeof text, "<%d>", number);
    snprintf(extra, sizeof extra, "version %d", number);
    return durable_write(&sim.env, PATH, text, strlen(text), extra, NULL);
}

static enum tern_code read_number(struct got *got)
{
    struct tern_error err;
    memset(got, 0, sizeof *got);
    return durable_read(&sim.env, PATH, parse, got, &err);
}

static void expect_number(int number, bool with_extra)
{
    struct got got;
    char extra[32] = "";
    assert_ok(read_number(&got));
    assert_int_equal(got.number, number);
    assert_int_equal(got.had_extra, with_extra);
    if (with_extra)
        snprintf(extra, sizeof extra, "version %d", number);
    assert_string_equal(got.extra, extra);
}

/* What an editor, RocketMQ or a broken disk leaves. */
static void put_file(const char *path, const char *text)
{
    struct file *file;
    assert_ok(fs_open(sim.env.fs, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file));
    assert_ok(file_pwrite(file, text, strlen(text), 0));
    assert_ok(file_sync(file));
    file_close(file);
    assert_ok(fs_sync_dir(sim.env.fs, "/conf"));
}

static void the_last_written_generation_is_read(void **state)
{
    (void)state;
    for (int i = 1; i <= 5; i++) {
        assert_ok(write_number(i));
        expect_number(i, true);
        sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
        expect_number(i, true);
    }
    assert_false(fs_exists(sim.env.fs, PATH ".tmp"));
    assert_int_equal(sim_log_count(&sim, "WARN"), 0);
    assert_int_equal(sim_fs_open_handles(sim.fs), 0);
}

static void the_file_itself_holds_exactly_the_text(void **state)
{
    (void)state;
    struct file *file;
    char buf[16];
    size_t got;
    assert_ok(write_number(1));
    assert_ok(write_number(22));
    assert_ok(fs_open(sim.env.fs, PATH, FS_READ, &file));
    assert_ok(file_pread(file, buf, sizeof buf, 0, &got));
    assert_int_equal(got, 4);
    assert_memory_equal(buf, "<22>", 4);
    file_close(file);
    assert_ok(fs_open(sim.env.fs, PATH ".bak", FS_READ, &file));
    assert_ok(file_pread(file, buf, sizeof buf, 0, &got));
    assert_memory_equal(buf, "<1>", 3);
    file_close(file);
}

static void nothing_there_is_not_found(void **state)
{
    (void)state;
    struct got got;
    assert_int_equal(read_number(&got), TERN_NOT_FOUND);
}

static void empty_texts_and_missing_extras_are_kept(void **state)
{
    (void)state;
    struct got got;
    assert_ok(durable_write(&sim.env, PATH, "<7>", 3, NULL, NULL));
    assert_ok(read_number(&got));
    assert_true(got.had_extra);
    assert_string_equal(got.extra, "");
    assert_ok(durable_write(&sim.env, PATH, "", 0, NULL, NULL));
    assert_ok(read_number(&got)); /* the empty one does not parse: the one before */
    assert_int_equal(got.number, 7);
}

static void sizes_are_limited(void **state)
{
    (void)state;
    char *extra = calloc(1, 20000);
    memset(extra, 'e', 19999);
    assert_int_equal(durable_write(&sim.env, PATH, "<1>", 3, extra, NULL), TERN_TOO_LARGE);
    extra[16384] = 0;
    for (int i = 0; i < 3; i++) /* three of the largest fit into the companion */
        assert_ok(durable_write(&sim.env, PATH, i % 2 ? "<1>" : "<2>", 3, extra, NULL));
    free(extra);
    struct got got;
    assert_ok(read_number(&got));
    assert_int_equal(got.number, 2);
    assert_true(got.had_extra);
}

/* Number of calls that one write makes. */
static unsigned calls_of_a_write(void)
{
    world_begin(9);
    assert_ok(write_number(1));
    assert_ok(write_number(2));
    uint64_t before = sim_fs_calls(sim.fs, SIM_FS_ANY);
    assert_ok(write_number(3));
    unsigned calls = (unsigned)(sim_fs_calls(sim.fs, SIM_FS_ANY) - before);
    sim_env_fini(&sim);
    return calls;
}

/* After `good` was written, the write of good + 1 ended with `code` or died: one of both is there.
 */
static void expect_one_of_both(int good, enum tern_code code)
{
    struct got got;
    assert_ok(read_number(&got));
    assert_true(got.number == good || got.number == good + 1);
    if (code == TERN_OK)
        assert_int_equal(got.number, good + 1);
    assert_true(got.had_extra);
    char extra[32];
    snprintf(extra, sizeof extra, "version %d", got.number);
    assert_string_equal(got.extra, extra);
}

static void failing_any_call_leaves_a_good_generation(void **state)
{
    (void)state;
    unsigned calls = calls_of_a_write();
    assert_true(calls > 10);
    for (unsigned nth = 1; nth <= calls; nth++) {
        for (int good = 0; good <= 2; good++) {
            world_begin(nth);
            for (int i = 1; i <= good; i++)
                assert_ok(write_number(i));
            struct sim_fs_fault fault = {.op = SIM_FS_ANY, .nth = nth, .errno_value = ENOSPC};
            sim_fs_fail(sim.fs, &fault);
            enum tern_code code = write_number(good + 1);
            sim_fs_fail_clear(sim.fs);
            struct got got;
            if (good > 0)
                expect_one_of_both(good, code);
            else if (code != TERN_OK && read_number(&got) == TERN_OK)
                assert_int_equal(got.number, 1);
            sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
            if (good > 0)
                expect_one_of_both(good, code);
            assert_ok(write_number(9)); /* and goes on working */
            expect_number(9, true);
            assert_int_equal(sim_fs_open_handles(sim.fs), 0);
            sim_env_fini(&sim);
        }
    }
}

/* The machine dies at the nth call: that one and all after it fail, then comes the power loss. */
static void die_at(unsigned nth, enum sim_torn torn, uint64_t seed, int good)
{
    world_begin(seed);
    for (int i = 1; i <= good; i++)
        assert_ok(write_number(i));
    struct sim_fs_fault fault = {.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO, .forever = true};
    sim_fs_fail(sim.fs, &fault);
    enum tern_code code = write_number(good + 1);
    sim_fs_fail_clear(sim.fs);
    sim_fs_power_loss(sim.fs, torn);
    expect_one_of_both(good, code);
    assert_ok(write_number(good + 1)); /* the same again, and another crash right after it */
    sim_fs_power_loss(sim.fs, torn);
    expect_number(good + 1, true);
    sim_env_fini(&sim);
}

static void power_loss_at_any_call_leaves_a_good_generation(void **state)
{
    (void)state;
    unsigned calls = calls_of_a_write();
    for (unsigned nth = 1; nth <= calls + 1; nth++) {
        for (int good = 1; good <= 3; good++) {
            die_at(nth, SIM_TORN_NONE, nth, good);
            for (uint64_t seed = 1; seed <= 10; seed++) {
                die_at(nth, SIM_TORN_PAGES, seed * 1000 + nth, good);
                die_at(nth, SIM_TORN_SECTORS, seed * 2000 + nth, good);
                die_at(nth, SIM_TORN_UNORDERED, seed * 3000 + nth, good);
            }
        }
    }
}

static void repeated_crashes_never_lose_both(void **state)
{
    (void)state;
    world_begin(77);
    assert_ok(write_number(1));
    int last = 1;
    for (unsigned i = 0; i < 500; i++) {
        struct sim_fs_fault fault = {.op = SIM_FS_ANY,
                                     .nth = 1 + (unsigned)rng_below(sim.env.rng, 30),
                                     .errno_value = EIO,
                                     .forever = true};
        sim_fs_fail(sim.fs, &fault);
        enum tern_code code = write_number(last + 1);
        sim_fs_fail_clear(sim.fs);
        sim_fs_power_loss(sim.fs, i % 2 ? SIM_TORN_PAGES : SIM_TORN_UNORDERED);
        struct got got;
        assert_ok(read_number(&got));
        if (code == TERN_OK)
            assert_int_equal(got.number, last + 1);
        assert_in_range(got.number, last, last + 1);
        assert_true(got.had_extra);
        last = got.number;
    }
    sim_env_fini(&sim);
}

static void a_damaged_file_gives_the_one_before_with_a_warning(void **state)
{
    (void)state;
    assert_ok(write_number(1));
    assert_ok(write_number(2));
    put_file(PATH, "<2");
    expect_number(1, true);
    assert_int_equal(sim_log_count(&sim, "WARN previous_generation_used"), 1);
    assert_ok(write_number(3)); /* the damaged one does not become the backup */
    put_file(PATH, "garbage");
    expect_number(1, true);
}

static void an_unreadable_file_gives_the_one_before(void **state)
{
    (void)state;
    assert_ok(write_number(1));
    assert_ok(write_number(2));
    struct sim_fs_fault fault = {.op = SIM_FS_PREAD,
                                 .path_part = "topics.json",
                                 .nth = 2, /* the first is the companion's */
                                 .errno_value = EIO};
    sim_fs_fail(sim.fs, &fault);
    expect_number(1, true);
}

static void lack_of_handles_is_no_damage(void **state)
{
    (void)state;
    struct got got;
    assert_ok(write_number(1));
    assert_ok(write_number(2));
    struct sim_fs_fault fault = {.op = SIM_FS_OPEN, .nth = 2, .errno_value = EMFILE};
    sim_fs_fail(sim.fs, &fault);
    assert_int_equal(read_number(&got), TERN_LIMIT);
    expect_number(2, true);
}

static void both_damaged_is_corrupt_and_names_them(void **state)
{
    (void)state;
    struct got got;
    struct tern_error err;
    assert_ok(write_number(1));
    assert_ok(write_number(2));
    put_file(PATH, "");
    put_file(PATH ".bak", "<x>");
    assert_int_equal(durable_read(&sim.env, PATH, parse, &got, &err), TERN_CORRUPT);
    assert_string_equal(err.text,
                        PATH ": not a number in brackets; " PATH ".bak: not a number in brackets");
    assert_true(fs_exists(sim.env.fs, PATH) && fs_exists(sim.env.fs, PATH ".bak"));
    assert_ok(fs_unlink(sim.env.fs, PATH ".bak"));
    assert_int_equal(durable_read(&sim.env, PATH, parse, &got, &err), TERN_CORRUPT);
    assert_string_equal(err.text, PATH ": not a number in brackets; " PATH ".bak: missing");
}

static void files_that_were_removed_are_missed(void **state)
{
    (void)state;
    struct got got;
    assert_ok(write_number(1));
    assert_ok(write_number(2));
    assert_ok(fs_unlink(sim.env.fs, PATH));
    assert_ok(fs_unlink(sim.env.fs, PATH ".bak"));
    assert_int_equal(read_number(&got), TERN_NOT_FOUND);
    assert_int_equal(sim_log_count(&sim, "ERROR generations_missing"), 1);
    assert_ok(write_number(3));
    expect_number(3, true);
}

static void a_file_edited_by_hand_wins_with_a_warning(void **state)
{
    (void)state;
    assert_ok(write_number(1));
    assert_ok(write_number(2));
    put_file(PATH, "<42>");
    expect_number(42, false);
    assert_int_equal(sim_log_count(&sim, "WARN file_changed_by_others"), 1);
    assert_ok(write_number(43));
    expect_number(43, true);
}

static void rocketmqs_files_are_read_without_a_companion(void **state)
{
    (void)state;
    put_file(PATH, "<5>");
    put_file(PATH ".bak", "<4>");
    expect_number(5, false);
    assert_int_equal(sim_log_count(&sim, "WARN"), 0);
    put_file(PATH, "<tor");
    expect_number(4, false);
    assert_ok(write_number(6)); /* must not put the torn file over the good backup */
    expect_number(6, true);
    put_file(PATH, "bad again");
    expect_number(4, false);
}

static void a_first_write_beside_a_foreign_file_keeps_it_as_backup(void **state)
{
    (void)state;
    put_file(PATH, "<5>");
    assert_ok(write_number(6));
    put_file(PATH, "bad");
    expect_number(5, false);
}

static void a_damaged_companion_is_no_obstacle(void **state)
{
    (void)state;
    assert_ok(write_number(1));
    assert_ok(write_number(2));
    static const char *const bad[] = {"", "x", "ternmq-generations 1 00000000\n1 3 0 0\n\n",
                                      "ternmq-generations 1 ZZ", "ternmq-generations 1 "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_file(PATH ".meta", bad[i]);
        expect_number(2, false);
    }
    assert_true(sim_log_count(&sim, "WARN companion_damaged") > 0);
    assert_ok(write_number(3));
    expect_number(3, true);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_last_written_generation_is_read),
        TEST(the_file_itself_holds_exactly_the_text),
        TEST(nothing_there_is_not_found),
        TEST(empty_texts_and_missing_extras_are_kept),
        TEST(sizes_are_limited),
        cmocka_unit_test(failing_any_call_leaves_a_good_generation),
        cmocka_unit_test(power_loss_at_any_call_leaves_a_good_generation),
        cmocka_unit_test(repeated_crashes_never_lose_both),
        TEST(a_damaged_file_gives_the_one_before_with_a_warning),
        TEST(an_unreadable_file_gives_the_one_before),
        TEST(lack_of_handles_is_no_damage),
        TEST(both_damaged_is_corrupt_and_names_them),
        TEST(files_that_were_removed_are_missed),
        TEST(a_file_edited_by_hand_wins_with_a_warning),
        TEST(rocketmqs_files_are_read_without_a_companion),
        TEST(a_first_write_beside_a_foreign_file_keeps_it_as_backup),
        TEST(a_damaged_companion_is_no_obstacle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
