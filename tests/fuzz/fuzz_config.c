/* YAML configuration files: read through a real file, since that is how they come. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "tests/fuzz/fuzz.h"

struct settings {
    int64_t number, size, duration;
    bool flag;
    int32_t choice;
    char text[CONFIG_STRING_BYTES];
};

static const struct config_row rows[] = {
    {.key = "number",
     .type = CONFIG_INT,
     .offset = offsetof(struct settings, number),
     .fallback = "1",
     .min = 0,
     .max = 100,
     .help = "n"},
    {.key = "size",
     .type = CONFIG_SIZE,
     .offset = offsetof(struct settings, size),
     .fallback = "1MiB",
     .min = 1,
     .max = 1 << 30,
     .help = "s"},
    {.key = "duration",
     .type = CONFIG_DURATION,
     .offset = offsetof(struct settings, duration),
     .fallback = "1s",
     .min = 1,
     .max = 100000,
     .help = "d"},
    {.key = "flag",
     .type = CONFIG_BOOL,
     .offset = offsetof(struct settings, flag),
     .fallback = "false",
     .help = "f"},
    {.key = "choice",
     .type = CONFIG_ENUM,
     .offset = offsetof(struct settings, choice),
     .fallback = "A",
     .choices = "A|B",
     .help = "c"},
    {.key = "text",
     .type = CONFIG_STRING,
     .offset = offsetof(struct settings, text),
     .fallback = "x",
     .min = 1,
     .max = 50,
     .help = "t"},
};
static const struct config_table table = {rows, sizeof rows / sizeof rows[0], "fuzz"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings settings;
    struct tern_error err;
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/ternmq-fuzz-%ld.yml", (long)getpid());
    FILE *file = fopen(path, "wb");
    ENSURE(file != NULL);
    ENSURE(fwrite(data, 1, size, file) == size);
    fclose(file);
    config_defaults(&table, &settings);
    if (config_load_file(&table, &settings, path, &err) == TERN_OK)
        ENSURE(settings.number >= 0 && settings.number <= 100 && settings.choice <= 1);
    unlink(path);
    return 0;
}
