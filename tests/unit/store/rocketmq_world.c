#include "tests/unit/store/rocketmq_world.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void run(char *const argv[])
{
    pid_t pid;
    int status = -1;
    assert_int_equal(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void read_manifest(struct fixture *f, const char *name)
{
    char path[128];
    char *line = malloc(LINE_BYTES);
    assert_non_null(line);
    snprintf(path, sizeof path, "%s/%s.jsonl", f->dir, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    f->manifest = json_array();
    while (fgets(line, LINE_BYTES, file)) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        json_array_append_new(f->manifest, row);
    }
    fclose(file);
    free(line);
    assert_true(json_array_size(f->manifest) > 1000);
}

int setup(void **state, const char *name)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    *state = f;
    env_init_system(&f->env, NULL);
    f->bytes = malloc(GET_BYTES);
    assert_non_null(f->bytes);
    snprintf(f->dir, sizeof f->dir, "/tmp/rocketmq-store-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->root, sizeof f->root, "%s/%s", f->dir, name);
    run((char *[]){"tar", "-xzf", ROCKETMQ_STORES, "-C", f->dir, NULL});
    read_manifest(f, name);
    return 0;
}

int setup_clean(void **state)
{
    return setup(state, "clean");
}

int teardown(void **state)
{
    struct fixture *f = *state;
    (void)store_close(f->store, NULL);
    run((char *[]){"rm", "-rf", f->dir, NULL});
    json_decref(f->manifest);
    free(f->bytes);
    free(f);
    return 0;
}

int64_t number(const json_t *row, const char *key)
{
    assert_true(json_is_integer(json_object_get(row, key)));
    return json_integer_value(json_object_get(row, key));
}

void on_appended(struct store_append *append)
{
    ((struct one_append *)append)->done = true;
}
