/* broker/ha/epochs: where two logs part, and a list of epochs that no crash makes longer or gives a
 * number twice. */
#include "tests/unit/broker/broker_unit.h"

#include <errno.h>

#include "broker/ha/epochs.h"

#define ROOT "/store"
#define FILE_PATH ROOT "/ternmq/epochs.json"

static struct sim_env sim;
static struct tern_error err;

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 11);
    assert_ok(fs_mkdirs(sim.env.fs, ROOT));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sim_env_fini(&sim);
    return 0;
}

static struct epochs *open_at(int64_t log_end)
{
    struct epochs *epochs = NULL;
    enum tern_code code = epochs_open(&sim.env, ROOT, log_end, &epochs, &err);
    if (code != TERN_OK)
        fail_msg("%s", error_text(&err, code));
    return epochs;
}

static bool same(struct ha_epoch a, struct ha_epoch b)
{
    return a.number == b.number && a.id == b.id && a.start == b.start;
}

/* ---- pure ---- */

static void logs_part_where_the_shorter_common_epoch_ends(void **state)
{
    (void)state;
    struct ha_epoch a[] = {{1, 10, 0}, {2, 20, 100}, {4, 40, 250}};
    struct ha_epoch b[] = {{1, 10, 0}, {2, 20, 100}, {3, 30, 200}};
    struct ha_common common;
    assert_true(ha_epochs_common(a, 3, 400, b, 3, 300, &common));
    assert_true(same(common.epoch, a[1]));
    assert_int_equal(common.end, 200);
    assert_true(ha_epochs_common(b, 3, 300, a, 3, 400, &common));
    assert_int_equal(common.end, 200);
}

static void logs_of_one_epoch_part_at_the_lower_end(void **state)
{
    (void)state;
    struct ha_epoch a[] = {{1, 10, 0}, {2, 20, 100}};
    struct ha_common common;
    assert_true(ha_epochs_common(a, 2, 400, a, 2, 333, &common));
    assert_int_equal(common.epoch.number, 2);
    assert_int_equal(common.end, 333);
    /* one side has only the first */
    assert_true(ha_epochs_common(a, 2, 400, a, 1, 60, &common));
    assert_int_equal(common.epoch.number, 1);
    assert_int_equal(common.end, 60);
}

static void a_number_with_another_id_is_another_epoch(void **state)
{
    (void)state;
    struct ha_epoch a[] = {{1, 10, 0}, {2, 20, 100}};
    struct ha_epoch b[] = {{1, 10, 0}, {2, 21, 150}};
    struct ha_common common;
    assert_true(ha_epochs_common(a, 2, 400, b, 2, 400, &common));
    assert_int_equal(common.epoch.number, 1);
    assert_int_equal(common.end, 100);
    struct ha_epoch c[] = {{1, 11, 0}};
    assert_false(ha_epochs_common(a, 2, 400, c, 1, 400, &common));
    assert_false(ha_epochs_common(a, 0, 400, c, 1, 400, &common));
    assert_false(ha_epochs_common(a, 2, 400, c, 0, 0, &common));
}

static void an_epoch_begun_at_the_other_ones_end_is_common_there(void **state)
{
    (void)state;
    struct ha_epoch master[] = {{1, 10, 0}, {2, 20, 100}};
    struct ha_common common;
    assert_true(ha_epochs_common(master, 2, 100, master, 2, 100, &common));
    assert_int_equal(common.epoch.number, 2);
    assert_int_equal(common.end, 100);
    /* an end before the last start does not count that epoch */
    assert_true(ha_epochs_common(master, 2, 100, master, 2, 90, &common));
    assert_int_equal(common.epoch.number, 1);
    assert_int_equal(common.end, 90);
}

static void a_byte_belongs_to_the_epoch_that_reaches_it(void **state)
{
    (void)state;
    struct ha_epoch list[] = {{1, 10, 50}, {2, 20, 100}, {4, 40, 250}};
    int64_t end;
    assert_null(ha_epochs_at(list, 3, 49, &end));
    assert_null(ha_epochs_at(list, 0, 49, &end));
    assert_ptr_equal(ha_epochs_at(list, 3, 50, &end), &list[0]);
    assert_int_equal(end, 100);
    assert_ptr_equal(ha_epochs_at(list, 3, 99, &end), &list[0]);
    assert_ptr_equal(ha_epochs_at(list, 3, 100, &end), &list[1]);
    assert_int_equal(end, 250);
    assert_ptr_equal(ha_epochs_at(list, 3, 1000, &end), &list[2]);
    assert_true(end == INT64_MAX);
}

static void a_list_that_cannot_be_is_told_from_one_that_can(void **state)
{
    (void)state;
    struct ha_epoch good[] = {{1, 10, 0}, {2, 20, 100}};
    struct ha_epoch number[] = {{2, 10, 0}, {2, 20, 100}};
    struct ha_epoch start[] = {{1, 10, 100}, {2, 20, 100}};
    struct ha_epoch negative[] = {{1, 10, -1}};
    struct ha_epoch zero[] = {{0, 10, 0}};
    struct ha_epoch high[] = {{HA_EPOCH_NUMBER_MAX + 1, 10, 0}};
    assert_true(ha_epochs_sound(good, 2));
    assert_true(ha_epochs_sound(good, 0));
    assert_false(ha_epochs_sound(number, 2));
    assert_false(ha_epochs_sound(start, 2));
    assert_false(ha_epochs_sound(negative, 1));
    assert_false(ha_epochs_sound(zero, 1));
    assert_false(ha_epochs_sound(high, 1));
    assert_false(ha_epochs_sound(good, EPOCHS_MAX + 1));
}

/* The slow way: byte by byte. */
static bool byte_epoch(const struct ha_epoch *list, size_t count, int64_t at, struct ha_epoch *out)
{
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        if (list[i].start <= at) {
            *out = list[i];
            found = true;
        }
    }
    return found;
}

/* Random lists that share a beginning: before the common end all bytes are of equal epochs, and the
 * next byte, if both have one, is not. */
static void the_common_point_is_the_last_of_equal_bytes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct rng_seeded random;
        rng_seeded_init(&random, seed);
        struct ha_epoch list[2][8];
        int64_t end[2];
        size_t count[2];
        size_t shared = 1 + rng_below(&random.rng, 3);
        for (int side = 0; side < 2; side++) {
            int64_t at = 0;
            uint64_t number = 1;
            count[side] = shared + rng_below(&random.rng, 4);
            for (size_t i = 0; i < count[side]; i++) {
                list[side][i] = i < shared && side == 1
                                    ? list[0][i]
                                    : (struct ha_epoch){number, rng_next(&random.rng), at};
                number = list[side][i].number + 1 + rng_below(&random.rng, 2);
                at = list[side][i].start + 1 + (int64_t)rng_below(&random.rng, 6);
            }
            end[side] = list[side][count[side] - 1].start + (int64_t)rng_below(&random.rng, 6);
        }
        struct ha_common common;
        assert_true(
            ha_epochs_common(list[0], count[0], end[0], list[1], count[1], end[1], &common));
        for (int64_t at = 0; at <= common.end; at++) {
            struct ha_epoch of[2];
            bool has = at < end[0] && at < end[1] && byte_epoch(list[0], count[0], at, &of[0]) &&
                       byte_epoch(list[1], count[1], at, &of[1]);
            if (at < common.end)
                assert_true(has && same(of[0], of[1]));
            else
                assert_true(!has || !same(of[0], of[1]));
        }
    }
}

/* ---- the durable list ---- */

static void a_master_begins_epochs_that_survive(void **state)
{
    struct ha_epoch first, second, got;
    struct ha_epoch list[EPOCHS_MAX];
    (void)state;
    struct epochs *epochs = open_at(5000);
    assert_false(epochs_last(epochs, &got));
    assert_int_equal(epochs_highest(epochs), 0);
    /* the first one also covers what was there before */
    assert_ok(epochs_begin(epochs, 1000, 5000, &first, &err));
    assert_int_equal(first.number, 1);
    assert_int_equal(first.start, 1000);
    assert_ok(epochs_begin(epochs, 1000, 6000, &second, &err));
    assert_int_equal(second.number, 2);
    assert_int_equal(second.start, 6000);
    assert_true(first.id != second.id);
    epochs_close(epochs);
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    epochs = open_at(7000);
    assert_int_equal(epochs_copy(epochs, list), 2);
    assert_true(same(list[0], first) && same(list[1], second));
    epochs_close(epochs);
}

static void large_numbers_and_ids_survive(void **state)
{
    (void)state;
    struct ha_epoch list[EPOCHS_MAX];
    struct ha_epoch big[] = {{(UINT64_C(1) << 53) + 1, UINT64_MAX, (INT64_C(1) << 53) + 1},
                             {HA_EPOCH_NUMBER_MAX, UINT64_C(0x8000000000000001), INT64_MAX - 1}};
    struct epochs *epochs = open_at(0);
    assert_ok(epochs_adopt(epochs, big, 2, INT64_MAX, &err));
    epochs_close(epochs);
    epochs = open_at(INT64_MAX);
    assert_int_equal(epochs_copy(epochs, list), 2);
    assert_true(same(list[0], big[0]) && same(list[1], big[1]));
    struct ha_epoch next;
    assert_int_equal(epochs_begin(epochs, 0, INT64_MAX, &next, &err), TERN_LIMIT);
    epochs_close(epochs);
}

static void an_epoch_without_a_byte_is_replaced(void **state)
{
    (void)state;
    struct ha_epoch epoch;
    struct ha_epoch list[EPOCHS_MAX];
    struct epochs *epochs = open_at(100);
    assert_ok(epochs_begin(epochs, 0, 100, &epoch, &err));
    assert_ok(epochs_begin(epochs, 0, 100, &epoch, &err));
    assert_ok(epochs_begin(epochs, 0, 100, &epoch, &err));
    assert_int_equal(epoch.number, 3);
    assert_int_equal(epochs_copy(epochs, list), 2);
    assert_int_equal(list[0].number, 1);
    assert_int_equal(list[1].number, 3);
    assert_int_equal(epochs_begin(epochs, 0, 99, &epoch, &err), TERN_INVALID);
    epochs_close(epochs);
}

static void numbers_are_above_any_seen_and_never_reused(void **state)
{
    (void)state;
    struct ha_epoch epoch;
    struct epochs *epochs = open_at(0);
    epochs_seen(epochs, 41);
    epochs_seen(epochs, 7);
    epochs_seen(epochs, UINT64_MAX);          /* cannot be */
    epochs_seen(epochs, HA_EPOCH_NUMBER_MAX); /* would be the last one of this set */
    epochs_seen(epochs, 42 + HA_EPOCH_LEAP_MAX);
    assert_ok(epochs_begin(epochs, 0, 0, &epoch, &err));
    assert_int_equal(epoch.number, 42);
    assert_ok(epochs_begin(epochs, 0, 500, &epoch, &err));
    assert_int_equal(epoch.number, 43);
    epochs_close(epochs);
    /* the log lost the bytes of 43: it goes, its number stays taken */
    epochs = open_at(500);
    assert_true(epochs_last(epochs, &epoch));
    assert_int_equal(epoch.number, 42);
    assert_int_equal(epochs_highest(epochs), 43);
    assert_ok(epochs_begin(epochs, 0, 500, &epoch, &err));
    assert_int_equal(epoch.number, 44);
    epochs_close(epochs);
}

static void a_dropped_epoch_does_not_come_back_when_the_log_has_grown(void **state)
{
    (void)state;
    struct ha_epoch epoch;
    struct epochs *epochs = open_at(0);
    assert_ok(epochs_begin(epochs, 0, 0, &epoch, &err));
    assert_ok(epochs_begin(epochs, 0, 500, &epoch, &err));
    epochs_close(epochs);
    epochs_close(open_at(400));
    epochs = open_at(900); /* bytes of epoch 1 by now */
    assert_true(epochs_last(epochs, &epoch));
    assert_int_equal(epoch.number, 1);
    epochs_close(epochs);
}

/* A slave that comes back after they expired has no other one in common. */
static void epochs_whose_bytes_have_expired_stay(void **state)
{
    (void)state;
    struct ha_epoch list[EPOCHS_MAX];
    struct ha_epoch three[] = {{1, 10, 0}, {2, 20, 100}, {4, 40, 250}};
    struct epochs *epochs = open_at(0);
    assert_ok(epochs_adopt(epochs, three, 3, 1000, &err));
    epochs_close(epochs);
    epochs = open_at(1000);
    assert_int_equal(epochs_copy(epochs, list), 3);
    assert_int_equal(list[0].number, 1);
    epochs_close(epochs);
}

/* A source that began later has expired ones no more; a third member may be known by them. */
static void older_epochs_than_the_sources_stay(void **state)
{
    (void)state;
    struct ha_epoch list[EPOCHS_MAX];
    struct ha_epoch three[] = {{1, 10, 0}, {2, 20, 100}, {4, 40, 250}};
    struct epochs *epochs = open_at(0);
    assert_ok(epochs_adopt(epochs, three, 3, 1000, &err));
    assert_ok(epochs_adopt(epochs, &three[1], 2, 200, &err));
    assert_int_equal(epochs_copy(epochs, list), 2);
    assert_memory_equal(list, three, 2 * sizeof list[0]);
    assert_ok(epochs_adopt(epochs, &three[2], 1, 1000, &err));
    assert_int_equal(epochs_copy(epochs, list), 3);
    assert_ok(epochs_adopt(epochs, NULL, 0, 0, &err));
    assert_int_equal(epochs_copy(epochs, list), 0);
    epochs_close(epochs);
}

static void a_receiver_takes_what_its_source_has(void **state)
{
    (void)state;
    struct ha_epoch list[EPOCHS_MAX];
    struct ha_epoch at;
    int64_t end;
    struct ha_epoch source[] = {{1, 10, 0}, {2, 20, 100}, {4, 40, 250}};
    struct ha_epoch fifth = {5, 50, 400};
    struct ha_epoch old = {3, 30, 500};
    struct ha_epoch early = {6, 60, 399};
    struct epochs *epochs = open_at(0);
    assert_ok(epochs_adopt(epochs, source, 3, 250, &err));
    assert_int_equal(epochs_copy(epochs, list), 2); /* the third has no byte before 250 */
    assert_int_equal(epochs_highest(epochs), 4);
    assert_ok(epochs_add(epochs, &source[2], &err));
    assert_ok(epochs_add(epochs, &fifth, &err));
    assert_ok(epochs_add(epochs, &source[2], &err)); /* known */
    assert_int_equal(epochs_add(epochs, &old, &err), TERN_INVALID);
    assert_int_equal(epochs_add(epochs, &early, &err), TERN_INVALID);
    assert_true(epochs_find(epochs, 300, &at, &end));
    assert_true(same(at, source[2]) && end == 400);
    assert_int_equal(epochs_adopt(epochs, (struct ha_epoch[]){{2, 1, 5}, {1, 1, 6}}, 2, 9, &err),
                     TERN_INVALID);
    assert_int_equal(epochs_copy(epochs, list), 4);
    epochs_close(epochs);
}

static void a_full_list_forgets_its_oldest(void **state)
{
    (void)state;
    static struct ha_epoch list[EPOCHS_MAX];
    struct ha_epoch epoch;
    for (size_t i = 0; i < EPOCHS_MAX; i++)
        list[i] = (struct ha_epoch){i + 1, i, (int64_t)i * 10};
    struct epochs *epochs = open_at(0);
    assert_ok(epochs_adopt(epochs, list, EPOCHS_MAX, INT64_MAX, &err));
    assert_ok(epochs_begin(epochs, 0, EPOCHS_MAX * 10, &epoch, &err));
    assert_int_equal(epochs_copy(epochs, list), EPOCHS_MAX);
    assert_int_equal(list[0].number, 2);
    assert_int_equal(list[EPOCHS_MAX - 1].number, EPOCHS_MAX + 1);
    int64_t end = 0;
    assert_true(epochs_find(epochs, 0, &epoch, &end)); /* its bytes can still be copied */
    assert_int_equal(epoch.number, 2);
    assert_int_equal(end, 20);
    epochs_close(epochs);
}

/* Fails the Nth call of the disk, for each N, with and without a power loss after it. */
static void a_failed_write_leaves_the_old_list_and_burns_the_number(void **state)
{
    (void)state;
    for (unsigned nth = 1, failed = 1; failed; nth++) {
        teardown(NULL);
        setup(NULL);
        struct ha_epoch first, second, last;
        struct ha_epoch list[EPOCHS_MAX];
        struct epochs *epochs = open_at(0);
        assert_ok(epochs_begin(epochs, 0, 0, &first, &err));
        sim_fs_fail(sim.fs,
                    &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO});
        failed = epochs_begin(epochs, 0, 100, &second, &err) != TERN_OK;
        sim_fs_fail_clear(sim.fs);
        if (failed) {
            assert_int_equal(epochs_copy(epochs, list), 1);
            assert_ok(epochs_begin(epochs, 0, 100, &second, &err));
            assert_int_equal(second.number, 3);
        }
        epochs_close(epochs);
        sim_fs_power_loss(sim.fs, SIM_TORN_PAGES);
        epochs = open_at(1000);
        assert_true(epochs_last(epochs, &last));
        assert_true(same(last, second));
        epochs_close(epochs);
        assert_true(nth < 100);
    }
}

static void a_damaged_file_is_refused_and_kept(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}",
        "[]",
        "{\"epochs\": [], \"highestNumber\": -1}",
        "{\"epochs\": [{\"number\": 1, \"id\": \"12\", \"start\": 0}], \"highestNumber\": 1}",
        "{\"epochs\": [{\"number\": 0, \"id\": \"0000000000000012\", \"start\": 0}], "
        "\"highestNumber\": 1}",
        "{\"epochs\": [{\"number\": 1, \"id\": \"0000000000000012\", \"start\": -4}], "
        "\"highestNumber\": 1}"};
    assert_ok(fs_mkdirs(sim.env.fs, ROOT "/ternmq"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct epochs *epochs = NULL;
        size_t len;
        put_file(&sim, FILE_PATH, bad[i], strlen(bad[i]));
        assert_int_equal(epochs_open(&sim.env, ROOT, 10, &epochs, &err), TERN_CORRUPT);
        assert_contains(err.text, "epochs.json");
        assert_null(epochs);
        char *kept = get_file(&sim, FILE_PATH, &len);
        assert_string_equal(kept, bad[i]);
        free(kept);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(logs_part_where_the_shorter_common_epoch_ends),
        T(logs_of_one_epoch_part_at_the_lower_end),
        T(a_number_with_another_id_is_another_epoch),
        T(an_epoch_begun_at_the_other_ones_end_is_common_there),
        T(a_byte_belongs_to_the_epoch_that_reaches_it),
        T(a_list_that_cannot_be_is_told_from_one_that_can),
        T(the_common_point_is_the_last_of_equal_bytes),
        T(a_master_begins_epochs_that_survive),
        T(large_numbers_and_ids_survive),
        T(an_epoch_without_a_byte_is_replaced),
        T(numbers_are_above_any_seen_and_never_reused),
        T(a_dropped_epoch_does_not_come_back_when_the_log_has_grown),
        T(epochs_whose_bytes_have_expired_stay),
        T(older_epochs_than_the_sources_stay),
        T(a_receiver_takes_what_its_source_has),
        T(a_full_list_forgets_its_oldest),
        T(a_failed_write_leaves_the_old_list_and_burns_the_number),
        T(a_damaged_file_is_refused_and_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
