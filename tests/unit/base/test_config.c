/* Configuration: values, files, errors, printing. */
#include "tests/unit/base/unit.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"

struct settings {
    bool flag;
    int64_t port;
    int64_t segment_bytes;
    int64_t timeout_ms;
    int64_t reserved_ms;
    int64_t anything;
    char name[CONFIG_STRING_BYTES];
    char path[CONFIG_STRING_BYTES];
    int32_t role;
};

#define AT(field) .offset = offsetof(struct settings, field)

static const struct config_row rows[] = {
    {.key = "slaveReadEnable",
     .type = CONFIG_BOOL,
     AT(flag),
     .fallback = "true",
     .live = true,
     .help = "Whether slaves answer pulls."},
    {.key = "listenPort",
     .type = CONFIG_INT,
     AT(port),
     .fallback = "10911",
     .min = 1,
     .max = 65535,
     .help = "TCP port."},
    {.key = "mappedFileSizeCommitLog",
     .type = CONFIG_SIZE,
     AT(segment_bytes),
     .fallback = "1GiB",
     .min = 4096,
     .max = INT64_C(1) << 34,
     .help = "Size of a segment."},
    {.key = "syncFlushTimeout",
     .type = CONFIG_DURATION,
     AT(timeout_ms),
     .fallback = "5s",
     .min = 1,
     .max = 3600000,
     .help = "Wait for a flush."},
    {.key = "fileReservedTime",
     .type = CONFIG_DURATION,
     AT(reserved_ms),
     .fallback = "72",
     .min = 3600000,
     .max = INT64_C(86400000) * 365,
     .plain_unit_ms = 3600000,
     .help = "Age of deletion; a bare number is hours."},
    {.key = "anything", .type = CONFIG_INT, AT(anything), .fallback = "-3"},
    {.key = "brokerName",
     .type = CONFIG_STRING,
     AT(name),
     .fallback = "broker-a",
     .min = 1,
     .max = 127,
     .help = "Name of the set."},
    {.key = "storePathRootDir",
     .type = CONFIG_STRING,
     AT(path),
     .fallback = "",
     .help = "Root | of the store."},
    {.key = "brokerRole",
     .type = CONFIG_ENUM,
     AT(role),
     .fallback = "ASYNC_MASTER",
     .choices = "ASYNC_MASTER|SYNC_MASTER|SLAVE",
     .help = "Role."},
    {.key = "enableDLegerCommitLog",
     .type = CONFIG_BOOL,
     .refused = "a DLedger store is not supported; use master and slaves"},
};

static const struct config_table table = {rows, sizeof rows / sizeof rows[0], "mqtest"};

static struct settings config;
static char path[64];

static int setup(void **state)
{
    (void)state;
    memset(&config, 0xEE, sizeof config);
    config_defaults(&table, &config);
    snprintf(path, sizeof path, "/tmp/tern-config-XXXXXX");
    int fd = mkstemp(path);
    return fd >= 0 ? close(fd) : -1;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static enum tern_code load_bytes(const char *text, size_t len, struct tern_error *err)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, len, out), len);
    assert_int_equal(fclose(out), 0);
    *err = (struct tern_error){.text = ""};
    return config_load_file(&table, &config, path, err);
}

static void load(const char *text)
{
    struct tern_error err;
    enum tern_code code = load_bytes(text, strlen(text), &err);
    if (code)
        fail_msg("%s", err.text);
}

/* The error must begin with FILE:LINE and contain the parts. */
static void expect_refused(const char *text, int line, const char *part, const char *part2)
{
    struct tern_error err;
    char where[80];
    assert_int_equal(load_bytes(text, strlen(text), &err), TERN_CONFIG);
    snprintf(where, sizeof where, "%s:%d: ", path, line);
    if (strncmp(err.text, where, strlen(where)) != 0 || !strstr(err.text, part) ||
        !strstr(err.text, part2))
        fail_msg("unexpected text: %s", err.text);
}

static void defaults_fill_every_field(void **state)
{
    (void)state;
    assert_true(config.flag);
    assert_int_equal(config.port, 10911);
    assert_true(config.segment_bytes == INT64_C(1) << 30);
    assert_int_equal(config.timeout_ms, 5000);
    assert_true(config.reserved_ms == INT64_C(72) * 3600000);
    assert_int_equal(config.anything, -3);
    assert_string_equal(config.name, "broker-a");
    assert_string_equal(config.path, "");
    assert_int_equal(config.role, 0);
}

static void a_file_sets_values_of_every_type(void **state)
{
    (void)state;
    load("# comment\n"
         "slaveReadEnable: false\n"
         "listenPort: 10921\n"
         "mappedFileSizeCommitLog: 64MiB\n"
         "syncFlushTimeout: \"500ms\"\n"
         "fileReservedTime: 3d\n"
         "brokerName: 'b-1'\n"
         "storePathRootDir: /var/lib/tern:mq\xE6\xA0\x87 # odd but valid\n"
         "brokerRole: SYNC_MASTER\n");
    assert_false(config.flag);
    assert_int_equal(config.port, 10921);
    assert_int_equal(config.segment_bytes, 64 << 20);
    assert_int_equal(config.timeout_ms, 500);
    assert_true(config.reserved_ms == INT64_C(3) * 86400000);
    assert_string_equal(config.name, "b-1");
    assert_string_equal(config.path, "/var/lib/tern:mq\xE6\xA0\x87");
    assert_int_equal(config.role, 1);
}

static void units_and_bare_numbers_are_understood(void **state)
{
    (void)state;
    load("mappedFileSizeCommitLog: 65536\nsyncFlushTimeout: 700\nfileReservedTime: 48\n"
         "storePathRootDir: \"/a \\\"b\\\"\"\nbrokerRole: SLAVE\n");
    assert_int_equal(config.segment_bytes, 65536);
    assert_int_equal(config.timeout_ms, 700);
    assert_true(config.reserved_ms == INT64_C(48) * 3600000);
    assert_string_equal(config.path, "/a \"b\"");
    assert_int_equal(config.role, 2);
    load("mappedFileSizeCommitLog: 8 KiB\nsyncFlushTimeout: 2m\nfileReservedTime: 36h\n");
    assert_int_equal(config.segment_bytes, 8192);
    assert_int_equal(config.timeout_ms, 120000);
    assert_true(config.reserved_ms == INT64_C(36) * 3600000);
}

static void empty_files_change_nothing(void **state)
{
    (void)state;
    load("");
    load("# only a comment\n");
    load("---\n");
    load("{}\n");
    assert_int_equal(config.port, 10911);
}

static void wrong_types_name_line_key_and_what_is_allowed(void **state)
{
    (void)state;
    expect_refused("\nlistenPort: many\n", 2, "listenPort: \"many\" is no number",
                   "allowed 1..65535");
    expect_refused("listenPort: 10.5\n", 1, "\"10.5\"", "allowed 1..65535");
    expect_refused("listenPort: 99999999999999999999\n", 1, "no number", "1..65535");
    expect_refused("slaveReadEnable: maybe\n", 1, "slaveReadEnable: ", "allowed true, false");
    expect_refused("mappedFileSizeCommitLog: 1GB\n", 1, "no size", "allowed 4KiB..16GiB");
    expect_refused("mappedFileSizeCommitLog: 9223372036854775807KiB\n", 1, "no size", "");
    expect_refused("syncFlushTimeout: 5 parsecs\n", 1, "no duration", "allowed 1ms..1h");
    expect_refused("brokerRole: MASTER\n", 1, "allowed ASYNC_MASTER, SYNC_MASTER, SLAVE", "");
    expect_refused("listenPort:\n", 1, "listenPort: \"\"", "1..65535");
}

static void values_out_of_range_are_refused_and_change_nothing(void **state)
{
    (void)state;
    expect_refused("listenPort: 0\n", 1, "listenPort: \"0\" is out of range", "1..65535");
    expect_refused("listenPort: -1\n", 1, "out of range", "1..65535");
    expect_refused("mappedFileSizeCommitLog: 4095\n", 1, "out of range", "4KiB..16GiB");
    expect_refused("syncFlushTimeout: 2h\n", 1, "out of range", "1ms..1h");
    expect_refused("brokerName: \"\"\n", 1, "too short", "1..127 bytes");
    expect_refused("brokerName: \"a\\nb\"\n", 1, "not printable", "");
    expect_refused("brokerName: \"a\\0b\"\n", 1, "not printable", "");
    assert_int_equal(config.port, 10911);
    assert_string_equal(config.name, "broker-a");
}

static void long_strings_are_refused(void **state)
{
    (void)state;
    char text[400] = "brokerName: ";
    memset(text + strlen(text), 'n', 128);
    expect_refused(text, 1, "too long", "1..127 bytes");
    memset(text, 0, sizeof text);
    snprintf(text, sizeof text, "storePathRootDir: ");
    memset(text + strlen(text), 'p', 256);
    expect_refused(text, 1, "too long", "0..255 bytes");
    text[strlen(text) - 1] = 0;
    load(text);
    assert_int_equal(strlen(config.path), 255);
}

static void unknown_keys_are_refused_with_a_suggestion(void **state)
{
    (void)state;
    expect_refused("listenPort: 1\nbrokerNam: x\n", 2, "brokerNam: unknown key",
                   "did you mean brokerName?");
    expect_refused("BROKERROLE: SLAVE\n", 1, "unknown key", "did you mean brokerRole?");
    struct tern_error err;
    assert_int_equal(load_bytes("colour: red\n", 12, &err), TERN_CONFIG);
    assert_null(strstr(err.text, "did you mean"));
    assert_contains(err.text, "unknown key of mqtest");
}

static void refused_keys_say_why(void **state)
{
    (void)state;
    expect_refused("enableDLegerCommitLog: false\n", 1, "not offered", "use master and slaves");
}

static void a_key_given_twice_is_refused(void **state)
{
    (void)state;
    expect_refused("listenPort: 1\nbrokerName: a\nlistenPort: 2\n", 3, "listenPort: given before",
                   "line 1");
}

static void anything_but_flat_settings_is_refused(void **state)
{
    (void)state;
    expect_refused("listenPort: [1, 2]\n", 1, "listenPort: ", "a list is not allowed");
    expect_refused("brokerName:\n  first: a\n", 2, "brokerName: ", "a nested mapping");
    expect_refused("brokerName: &x a\n", 1, "brokerName: ", "an anchor");
    expect_refused("brokerName: !!str a\n", 1, "brokerName: ", "a tag");
    expect_refused("brokerName: *x\n", 1, "", "");
    expect_refused("- a\n- b\n", 1, "a list", "");
    expect_refused("just text\n", 1, "a lone value", "");
    expect_refused("brokerName=a\nbrokerId=0\n", 1, "properties file", "lines of key: value");
    expect_refused("listenPort: 1\n---\nlistenPort: 2\n", 2, "a second document", "");
    expect_refused("brokerName: a\nlistenPort: 1: 2\n", 2, "not valid YAML", "");
    expect_refused("? [a]\n: b\n", 1, "a list", "");
    expect_refused("brokerName: \"unterminated\n", 2, "not valid YAML", "");
}

static void bombs_are_refused_quickly(void **state)
{
    (void)state;
    enum { SIZE = 100000 };
    struct tern_error err;
    char *text = malloc(SIZE);
    int64_t start = clock_mono_ns(clock_system());
    memset(text, '[', SIZE);
    assert_int_equal(load_bytes(text, SIZE, &err), TERN_CONFIG);
    memset(text, '{', SIZE);
    assert_int_equal(load_bytes(text, SIZE, &err), TERN_CONFIG);
    memcpy(text, "brokerName: ", 12);
    memset(text + 12, '[', SIZE - 12);
    assert_int_equal(load_bytes(text, SIZE, &err), TERN_CONFIG);
    free(text);
    expect_refused("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n"
                   "c: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n",
                   1, "a list", "");
    assert_true(clock_mono_ns(clock_system()) - start < ms_to_ns(10000));
}

static void oversized_and_missing_files_are_refused(void **state)
{
    (void)state;
    struct tern_error err;
    char *text = malloc(CONFIG_FILE_MAX_BYTES + 1);
    memset(text, '#', CONFIG_FILE_MAX_BYTES + 1);
    assert_int_equal(load_bytes(text, CONFIG_FILE_MAX_BYTES + 1, &err), TERN_CONFIG);
    assert_contains(err.text, "larger than 1048576 bytes");
    assert_ok(load_bytes(text, CONFIG_FILE_MAX_BYTES, &err));
    free(text);
    assert_int_equal(config_load_file(&table, &config, "/nonexistent/x.yaml", &err),
                     TERN_NOT_FOUND);
    assert_contains(err.text, "/nonexistent/x.yaml: No such file");
}

static void assignments_set_one_value(void **state)
{
    (void)state;
    struct tern_error err;
    assert_ok(config_set(&table, &config, "listenPort=12345", "-o", &err));
    assert_int_equal(config.port, 12345);
    assert_ok(config_set(&table, &config, "storePathRootDir=/a=b", "-o", &err));
    assert_string_equal(config.path, "/a=b");
    assert_int_equal(config_set(&table, &config, "listenPort=x", "-o", &err), TERN_CONFIG);
    assert_contains(err.text, "-o: listenPort: \"x\" is no number, allowed 1..65535");
    assert_int_equal(config_set(&table, &config, "listenPort", "-o", &err), TERN_CONFIG);
    assert_contains(err.text, "not of the form key=value");
    assert_int_equal(config_set(&table, &config, "=1", "-o", &err), TERN_CONFIG);
    assert_int_equal(config_set(&table, &config, "listenport=1", "-o", NULL), TERN_CONFIG);
    assert_int_equal(config.port, 12345);
}

static char *print_to_text(void (*print)(FILE *out))
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    print(out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void print_config(FILE *out)
{
    config_print(&table, &config, out);
}

static void print_reference(FILE *out)
{
    config_print_reference(&table, out);
}

static void what_is_printed_is_read_back(void **state)
{
    (void)state;
    static const char *const odd[] = {"/plain/path", "",  "- x", "a: b", "#c", "say \"x\" \\ y",
                                      "'",           "*", "&a",  "null", "~",  "\xE6\xA0\x87",
                                      " padded "};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        config_defaults(&table, &config);
        snprintf(config.path, sizeof config.path, "%s", odd[i]);
        config.segment_bytes = 12 << 20;
        config.timeout_ms = 90000;
        config.role = 1;
        char *text = print_to_text(print_config);
        struct settings printed = config;
        config_defaults(&table, &config);
        load(text);
        assert_string_equal(config.path, odd[i]);
        assert_int_equal(config.segment_bytes, printed.segment_bytes);
        assert_int_equal(config.timeout_ms, printed.timeout_ms);
        assert_int_equal(config.role, printed.role);
        if (i == 0) {
            assert_contains(text, "mappedFileSizeCommitLog: 12MiB\n");
            assert_contains(text, "syncFlushTimeout: 90s\n");
            assert_contains(text, "fileReservedTime: 3d\n");
            assert_contains(text, "brokerRole: SYNC_MASTER\n");
            assert_null(strstr(text, "DLeger"));
        }
        free(text);
    }
}

static void the_reference_has_every_key(void **state)
{
    (void)state;
    char *text = print_to_text(print_reference);
    for (size_t i = 0; i < table.count; i++)
        assert_contains(text, rows[i].key);
    assert_contains(text, "| `slaveReadEnable` | boolean | `true` | true, false | yes | Whether");
    assert_contains(text, "| `listenPort` | number | `10911` | 1..65535 | no | TCP port. |");
    assert_contains(text, "Root \\| of the store.");
    assert_contains(text, "| `enableDLegerCommitLog` | a DLedger store is not supported");
    free(text);
}

/* ---- at run time ---- */

/* SE-02: only live keys, all others say how they are changed */
static void live_key_is_changed_and_no_other(void **state)
{
    struct tern_error err = {.text = ""};
    (void)state;
    config_defaults(&table, &config);
    assert_ok(config_change(&table, &config, "slaveReadEnable", "false", &err));
    assert_false(config.flag);
    assert_int_equal(config_change(&table, &config, "listenPort", "1", &err), TERN_INVALID);
    assert_non_null(strstr(err.text, "listenPort cannot be changed"));
    assert_int_equal(config_change(&table, &config, "noSuchKey", "1", &err), TERN_INVALID);
    assert_non_null(strstr(err.text, "unknown key"));
    assert_int_equal(config_change(&table, &config, "slaveReadEnable", "maybe\n", &err),
                     TERN_INVALID);
    assert_null(strchr(err.text, '\n'));
    assert_false(config.flag);
}

/* SE-03 */
static void secret_is_shown_as_stars_and_printed_for_its_owner(void **state)
{
    static const struct config_row secret = {
        .key = "secretKey", .type = CONFIG_STRING, AT(name), .secret = true};
    char text[64];
    (void)state;
    snprintf(config.name, sizeof config.name, "hunter2");
    config_show_value(&secret, &config, text, sizeof text);
    assert_string_equal(text, "******");
    config_format_value(&secret, &config, text, sizeof text);
    assert_non_null(strstr(text, "hunter2"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults_fill_every_field),
        TEST(a_file_sets_values_of_every_type),
        TEST(units_and_bare_numbers_are_understood),
        TEST(empty_files_change_nothing),
        TEST(wrong_types_name_line_key_and_what_is_allowed),
        TEST(values_out_of_range_are_refused_and_change_nothing),
        TEST(long_strings_are_refused),
        TEST(unknown_keys_are_refused_with_a_suggestion),
        TEST(refused_keys_say_why),
        TEST(a_key_given_twice_is_refused),
        TEST(anything_but_flat_settings_is_refused),
        TEST(bombs_are_refused_quickly),
        TEST(oversized_and_missing_files_are_refused),
        TEST(assignments_set_one_value),
        TEST(what_is_printed_is_read_back),
        TEST(the_reference_has_every_key),
        TEST(live_key_is_changed_and_no_other),
        TEST(secret_is_shown_as_stars_and_printed_for_its_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
