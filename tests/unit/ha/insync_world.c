#include "tests/unit/ha/insync_world.h"

#include "base/clock.h"

struct insync in;
int64_t now_ns;

struct insync_member member(int64_t id, uint8_t mark)
{
    struct insync_member made = {.id = id};
    memset(made.uuid, mark, sizeof made.uuid);
    snprintf(made.ha_address, sizeof made.ha_address, "10.0.0.%d:10912", (int)id);
    return made;
}

void begin(uint32_t replicas, uint32_t min_replicas, const struct insync_set *set)
{
    struct insync_options options = {.replicas = replicas,
                                     .min_replicas = min_replicas,
                                     .max_behind_ns = ms_to_ns(MAX_BEHIND_MS)};
    struct insync_set none = {0};
    now_ns = SIM_START_NS;
    insync_init(&in, &options, set ? set : &none, 0, now_ns);
}

struct insync_set set_of(size_t count, ...)
{
    struct insync_set set = {.count = count};
    va_list args;
    va_start(args, count);
    for (size_t i = 0; i < count; i++) {
        int id = va_arg(args, int);
        set.members[i] = member(id, (uint8_t)id);
    }
    va_end(args);
    return set;
}

void own(int64_t end)
{
    insync_own_end(&in, end, now_ns);
    (void)insync_confirmed(&in);
}

int64_t confirmed(void)
{
    return insync_confirmed(&in);
}

bool is_member(int64_t id)
{
    for (size_t i = 0; i < in.set.count; i++)
        if (in.set.members[i].id == id)
            return true;
    return false;
}
