#include "tests/unit/store/pair_world.h"

void pair_init(struct pair *p, uint64_t seed)
{
    world_init(&p->w, seed);
    copy_init(&p->c, &p->w);
    world_open(&p->w);
    copy_open(&p->c);
}

void pair_fini(struct pair *p)
{
    copy_fini(&p->c);
    world_fini(&p->w);
}

void pair_append_mixed(struct pair *p, int count)
{
    for (int i = 0; i < count; i++) {
        size_t body =
            world_pick(&p->w, 8) == 0 ? world_pick(&p->w, 12000) : world_pick(&p->w, 3000);
        uint32_t batch = world_pick(&p->w, 4) == 0 && body < 2000 ? 1 + world_pick(&p->w, 5) : 1;
        uint32_t type = world_pick(&p->w, 10) == 0 ? SYS_TX_PREPARED : 0;
        struct sent *s =
            world_append_typed(&p->w, (int32_t)world_pick(&p->w, WORLD_QUEUES), body, batch, type);
        world_wait(&p->w, s);
        world_run(&p->w, world_pick(&p->w, 3));
    }
}
