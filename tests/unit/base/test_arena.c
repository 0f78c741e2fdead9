/* Arena: alignment, budget, reset. */
#include "tests/unit/base/unit.h"

#include "base/arena.h"

static void allocations_are_aligned_and_apart(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 1 << 20);
    uint8_t *last = NULL;
    for (size_t size = 0; size < 3000; size += 37) {
        uint8_t *p = arena_alloc(&arena, size);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        assert_ptr_not_equal(p, last);
        memset(p, 0x5A, size);
        last = p;
    }
    arena_fini(&arena);
}

static void budget_is_never_exceeded(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 100000);
    assert_null(arena_alloc(&arena, 100001));
    assert_non_null(arena_alloc(&arena, 90000));
    assert_null(arena_alloc(&arena, 10001));
    assert_non_null(arena_alloc(&arena, 9984));
    assert_null(arena_alloc(&arena, SIZE_MAX));
    assert_null(arena_alloc(&arena, SIZE_MAX - 15));
    arena_fini(&arena);
}

static void reset_makes_the_whole_budget_available_again(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 200000);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 12; i++)
            assert_non_null(arena_alloc(&arena, 16000));
        arena_reset(&arena);
        assert_int_equal(arena.used_bytes, 0);
    }
    assert_non_null(arena_alloc(&arena, 200000));
    arena_reset(&arena);
    assert_non_null(arena_alloc(&arena, 200000));
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_aligned_and_apart),
        cmocka_unit_test(budget_is_never_exceeded),
        cmocka_unit_test(reset_makes_the_whole_budget_available_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
