// Fails the n-th allocation of a program, for tools/bad-days.py: FAIL_ALLOCATION=n with this library in LD_PRELOAD; 0 counts.
// cc -shared -fPIC -O2 -o fail-malloc.so fail-malloc.c
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static atomic_ulong count;
static unsigned long wanted;

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("FAIL_ALLOCATION");
    wanted = text ? strtoul(text, NULL, 10) : 0;
    // What the loader took before the program began does not count.
    atomic_store(&count, 0);
}

static void say(const char *format, unsigned long number) {
    char text[80];
    int length = snprintf(text, sizeof text, format, number);
    (void)!write(2, text, (size_t)length);
}

static int fails(void) {
    unsigned long number = atomic_fetch_add(&count, 1) + 1;
    if (wanted == 0 || number != wanted)
        return 0;
    say("allocation %lu fails as asked for\n", number);
    errno = ENOMEM;
    return 1;
}

__attribute__((destructor)) static void end(void) {
    if (wanted == 0)
        say("%lu allocations\n", atomic_load(&count));
}

void *malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void *calloc(size_t many, size_t size) { return fails() ? NULL : __libc_calloc(many, size); }
void *realloc(void *old, size_t size) { return fails() ? NULL : __libc_realloc(old, size); }
void *memalign(size_t alignment, size_t size) { return fails() ? NULL : __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **to, size_t alignment, size_t size) { return (*to = memalign(alignment, size)) ? 0 : ENOMEM; }
