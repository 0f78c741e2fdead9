/* The nameserver's KV configuration: its rules, its file, and what a crash may do to it. */
#include "namesrv/kv_config.h"

#include "base/fs.h"
#include "tests/sim/sim_env.h"
#include "tests/unit/base/unit.h"

#define PATH "/ns/kvConfig.json"

struct world {
    struct sim_env sim;
    struct kv_config *kv;
    struct arena arena;
    struct tern_error err;
};

static void open_kv(struct world *w)
{
    assert_ok(kv_config_create(&w->sim.env, PATH, &w->kv));
}

static int set_up(void **state)
{
    static struct world world;
    memset(&world, 0, sizeof world);
    sim_env_init(&world.sim, 7);
    arena_init(&world.arena, 32 << 20);
    open_kv(&world);
    assert_ok(kv_config_load(world.kv, &world.err));
    *state = &world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    kv_config_destroy(w->kv);
    arena_fini(&w->arena);
    sim_env_fini(&w->sim);
    return 0;
}

static enum tern_code change(struct world *w, const char *name_space, const char *key,
                             const char *value)
{
    struct kv_change one = {.name_space = name_space, .key = key, .value = value};
    kv_config_apply(w->kv, &one, 1);
    w->err = one.err;
    return one.code;
}

static const char *get(struct world *w, const char *name_space, const char *key)
{
    const char *value = NULL;
    return kv_config_get(w->kv, name_space, key, &w->arena, &value) == TERN_OK ? value : NULL;
}

/* The process ends; the next one reads what is there. */
static enum tern_code restart(struct world *w)
{
    kv_config_destroy(w->kv);
    open_kv(w);
    return kv_config_load(w->kv, &w->err);
}

static enum tern_code power_loss(struct world *w, enum sim_torn torn)
{
    sim_fs_power_loss(w->sim.fs, torn);
    return restart(w);
}

static void write_file(struct world *w, const char *path, const char *text)
{
    struct file *file;
    assert_ok(fs_mkdirs(w->sim.env.fs, "/ns"));
    assert_ok(fs_open(w->sim.env.fs, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file));
    assert_ok(file_pwrite(file, text, strlen(text), 0));
    assert_ok(file_sync(file));
    file_close(file);
    assert_ok(fs_sync_dir(w->sim.env.fs, "/ns"));
}

static void entry_is_found_changed_and_deleted(void **state)
{
    struct world *w = *state;
    assert_null(get(w, "N", "k"));
    assert_ok(change(w, "N", "k", "v1"));
    assert_string_equal(get(w, "N", "k"), "v1");
    assert_ok(change(w, "N", "k", ""));
    assert_string_equal(get(w, "N", "k"), "");
    assert_int_equal(kv_config_count(w->kv), 1);
    assert_ok(change(w, "N", "k", NULL));
    assert_null(get(w, "N", "k"));
    assert_int_equal(kv_config_count(w->kv), 0);
}

static void namespace_is_listed_by_key(void **state)
{
    struct world *w = *state;
    struct kv_entry *entries;
    size_t count;
    assert_ok(change(w, "N", "b", "2"));
    assert_ok(change(w, "N", "a", "1"));
    assert_ok(change(w, "M", "c", "3"));
    assert_ok(kv_config_list(w->kv, "N", &w->arena, &entries, &count));
    assert_int_equal(count, 2);
    assert_string_equal(entries[0].key, "a");
    assert_string_equal(entries[1].value, "2");
    assert_int_equal(kv_config_list(w->kv, "X", &w->arena, &entries, &count), TERN_QUERY_NOT_FOUND);
}

static void answered_changes_survive_a_power_loss(void **state)
{
    struct world *w = *state;
    assert_ok(change(w, "ORDER_TOPIC_CONFIG", "T", "broker-a:4"));
    assert_ok(change(w, "N", "\xC3\xA4", "line\none\t\"two\""));
    assert_ok(power_loss(w, SIM_TORN_NONE));
    assert_string_equal(get(w, "ORDER_TOPIC_CONFIG", "T"), "broker-a:4");
    assert_string_equal(get(w, "N", "\xC3\xA4"), "line\none\t\"two\"");
}

/* ST-20 for this file: whichever disk call fails or is the last before the power goes. */
static void power_loss_at_any_disk_call_leaves_the_old_or_the_new_value(void **state)
{
    struct world *w = *state;
    assert_ok(change(w, "N", "k", "value-0"));
    for (unsigned nth = 1, round = 1; nth < 60; nth++, round++) {
        char before[32], after[32];
        struct sim_fs_fault fault = {
            .op = SIM_FS_ANY, .nth = nth, .errno_value = 5, .forever = true};
        snprintf(before, sizeof before, "value-%u", round - 1);
        snprintf(after, sizeof after, "value-%u", round);
        sim_fs_fail(w->sim.fs, &fault);
        enum tern_code code = change(w, "N", "k", after);
        sim_fs_fail_clear(w->sim.fs);
        assert_string_equal(get(w, "N", "k"), code == TERN_OK ? after : before);
        assert_ok(power_loss(w, (enum sim_torn)(nth % 3)));
        const char *now = get(w, "N", "k");
        assert_non_null(now);
        if (code == TERN_OK)
            assert_string_equal(now, after);
        else if (strcmp(now, after) != 0)
            assert_string_equal(now, before);
        assert_ok(change(w, "N", "k", after));
    }
}

static void failed_write_is_answered_and_changes_nothing(void **state)
{
    struct world *w = *state;
    struct sim_fs_fault fault = {
        .op = SIM_FS_PWRITEV, .nth = 1, .errno_value = 28 /* ENOSPC */, .forever = true};
    assert_ok(change(w, "N", "k", "v"));
    sim_fs_fail(w->sim.fs, &fault);
    assert_int_equal(change(w, "N", "k", "w"), TERN_NO_SPACE);
    assert_int_equal(change(w, "N", "", "w"), TERN_INVALID);
    sim_fs_fail_clear(w->sim.fs);
    assert_string_equal(get(w, "N", "k"), "v");
    assert_ok(change(w, "N", "k", "w"));
}

/* ST-20: main file replaced by nothing, zeros, half of it, garbage. */
static void damaged_file_is_replaced_by_its_backup_with_a_warning(void **state)
{
    struct world *w = *state;
    static const char *const damages[] = {"", "{\"configTable\":{\"N\"", "garbage", "[1]",
                                          "{\"configTable\":{\"N\":{\"k\":1}}}"};
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        assert_ok(change(w, "N", "k", "older"));
        assert_ok(change(w, "N", "k", "newer"));
        write_file(w, PATH, damages[i]);
        sim_log_clear(&w->sim);
        assert_ok(restart(w));
        assert_string_equal(get(w, "N", "k"), "older");
        assert_true(sim_log_count(&w->sim, " WARN ") > 0);
    }
}

static void both_generations_damaged_refuse_the_start_and_are_kept(void **state)
{
    struct world *w = *state;
    struct fs_stat stat;
    assert_ok(change(w, "N", "k", "older"));
    assert_ok(change(w, "N", "k", "newer"));
    write_file(w, PATH, "garbage");
    write_file(w, PATH ".bak", "garbage2");
    assert_int_equal(restart(w), TERN_CORRUPT);
    assert_contains(w->err.text, "kvConfig.json");
    assert_ok(fs_stat(w->sim.env.fs, PATH, &stat));
    assert_int_equal(stat.size_bytes, 7);
    assert_ok(fs_stat(w->sim.env.fs, PATH ".bak", &stat));
    assert_int_equal(stat.size_bytes, 8);
}

static void file_of_rocketmq_is_read(void **state)
{
    struct world *w = *state;
    write_file(w, PATH, "{\"configTable\":{\"ORDER_TOPIC_CONFIG\":{\"T\":\"a:4;b:4\"},\"E\":{}}}");
    assert_ok(restart(w));
    assert_string_equal(get(w, "ORDER_TOPIC_CONFIG", "T"), "a:4;b:4");
    assert_int_equal(kv_config_count(w->kv), 1);
    write_file(w, PATH, "{}");
    assert_ok(restart(w));
    assert_int_equal(kv_config_count(w->kv), 0);
}

static void second_nameserver_on_the_same_file_may_read_but_not_change(void **state)
{
    struct world *w = *state;
    struct kv_config *first = w->kv;
    assert_ok(change(w, "N", "k", "v"));
    open_kv(w);
    assert_ok(kv_config_load(w->kv, &w->err));
    assert_string_equal(get(w, "N", "k"), "v");
    assert_int_equal(change(w, "N", "k", "mine"), TERN_IN_USE);
    assert_contains(w->err.text, "kvConfigPath");
    assert_string_equal(get(w, "N", "k"), "v");
    kv_config_destroy(first);
    assert_ok(change(w, "N", "other", "mine"));
}

static void owner_that_takes_over_sees_what_the_last_one_wrote(void **state)
{
    struct world *w = *state;
    struct kv_config *first = w->kv;
    open_kv(w);
    struct kv_config *second = w->kv;
    assert_ok(kv_config_load(second, &w->err));
    w->kv = first;
    assert_ok(change(w, "N", "k", "v"));
    kv_config_destroy(first);
    w->kv = second;
    assert_ok(change(w, "N", "other", "mine"));
    assert_string_equal(get(w, "N", "k"), "v");
}

static void names_and_values_outside_the_rules_are_refused(void **state)
{
    struct world *w = *state;
    static char long_name[KV_NAME_MAX + 2];
    static char long_value[KV_VALUE_MAX + 2];
    memset(long_name, 'n', KV_NAME_MAX + 1);
    memset(long_value, 'v', KV_VALUE_MAX + 1);
    assert_int_equal(change(w, "", "k", "v"), TERN_INVALID);
    assert_int_equal(change(w, "N", "", "v"), TERN_INVALID);
    assert_int_equal(change(w, long_name, "k", "v"), TERN_INVALID);
    assert_int_equal(change(w, "N", "a\nb", "v"), TERN_INVALID);
    assert_int_equal(change(w, "N", "\xFF", "v"), TERN_INVALID);
    assert_int_equal(change(w, "N", "k", "\xC3"), TERN_INVALID);
    assert_int_equal(change(w, "N", "k", long_value), TERN_INVALID);
    assert_contains(w->err.text, "65536");
    long_name[KV_NAME_MAX] = 0;
    long_value[KV_VALUE_MAX] = 0;
    assert_ok(change(w, long_name, "k", long_value));
    assert_int_equal(kv_config_count(w->kv), 1);
}

static void more_than_the_most_entries_are_refused(void **state)
{
    struct world *w = *state;
    static struct kv_change changes[KV_ENTRIES_MAX + 1];
    static char keys[KV_ENTRIES_MAX + 1][16];
    for (int i = 0; i <= KV_ENTRIES_MAX; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        changes[i] = (struct kv_change){.name_space = "N", .key = keys[i], .value = "v"};
    }
    kv_config_apply(w->kv, changes, KV_ENTRIES_MAX + 1);
    assert_int_equal(changes[KV_ENTRIES_MAX - 1].code, TERN_OK);
    assert_int_equal(changes[KV_ENTRIES_MAX].code, TERN_LIMIT);
    assert_int_equal(kv_config_count(w->kv), KV_ENTRIES_MAX);
    assert_ok(change(w, "N", "k5", "changed"));
    assert_ok(change(w, "N", "k6", NULL));
    assert_ok(change(w, "N", "one-more", "v"));
}

static void more_than_the_most_bytes_are_refused(void **state)
{
    struct world *w = *state;
    static char value[KV_VALUE_MAX + 1];
    static struct kv_change changes[KV_TOTAL_MAX / KV_VALUE_MAX];
    static char keys[KV_TOTAL_MAX / KV_VALUE_MAX][16];
    int count = (int)(sizeof changes / sizeof changes[0]);
    memset(value, 'v', KV_VALUE_MAX);
    for (int i = 0; i < count; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        changes[i] = (struct kv_change){.name_space = "N", .key = keys[i], .value = value};
    }
    kv_config_apply(w->kv, changes, (size_t)count);
    assert_int_equal(changes[count - 2].code, TERN_OK);
    assert_int_equal(changes[count - 1].code, TERN_LIMIT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(entry_is_found_changed_and_deleted),
        CASE(namespace_is_listed_by_key),
        CASE(answered_changes_survive_a_power_loss),
        CASE(power_loss_at_any_disk_call_leaves_the_old_or_the_new_value),
        CASE(failed_write_is_answered_and_changes_nothing),
        CASE(damaged_file_is_replaced_by_its_backup_with_a_warning),
        CASE(both_generations_damaged_refuse_the_start_and_are_kept),
        CASE(file_of_rocketmq_is_read),
        CASE(second_nameserver_on_the_same_file_may_read_but_not_change),
        CASE(owner_that_takes_over_sees_what_the_last_one_wrote),
        CASE(names_and_values_outside_the_rules_are_refused),
        CASE(more_than_the_most_entries_are_refused),
        CASE(more_than_the_most_bytes_are_refused),
    };
    return cmocka_run_group_tests_name("kv_config", tests, NULL, NULL);
}
