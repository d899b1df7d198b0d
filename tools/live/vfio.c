// A user of VFIO, for the tests: drives an NVMe drive by its own queues, with memory at addresses of its choice. `vfio FUNCTION DO`, DO
// being `drive`, or `hold` to stay until its input ends or the kernel asks for the function.
#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define KIB 1024ull
#define MIB (1024 * KIB)
#define PAGE (4 * KIB)

/* Where the function is to find memory: low as a guest's, and above 4 GiB. */
#define LOW (1 * MIB)
#define LOW_BYTES (2 * MIB)
#define HIGH (4096 * MIB)
#define HIGH_BYTES (64 * KIB)

#define QUEUE_ENTRIES 16

static int container, group, device;
static uint64_t config_offset;
static volatile uint8_t *registers;
static uint8_t *low, *high;
static int events[2];

#define MUST(what) must((what), #what)
static int must(int result, const char *what) {
    if (result < 0) {
        printf("%s: %s\n", what, strerror(errno));
        exit(1);
    }
    return result;
}

static void judge(const char *name, int is_right) {
    printf("%s %s\n", is_right ? "pass" : "fail", name);
    fflush(stdout);
}

static uint32_t read32(unsigned at) { return *(volatile uint32_t *)(registers + at); }
static void write32(unsigned at, uint32_t value) { *(volatile uint32_t *)(registers + at) = value; }
static void write64(unsigned at, uint64_t value) {
    write32(at, value);
    write32(at + 4, value >> 32);
}

static void command_register(uint16_t bits) { MUST(pwrite(device, &bits, 2, config_offset + 4)); }

static int map(void *memory, uint64_t iova, uint64_t bytes) {
    struct vfio_iommu_type1_dma_map map = { .argsz = sizeof(map), .flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
        .vaddr = (uintptr_t)memory, .iova = iova, .size = bytes };
    return ioctl(container, VFIO_IOMMU_MAP_DMA, &map);
}

static int unmap(uint64_t iova, uint64_t bytes) {
    struct vfio_iommu_type1_dma_unmap unmap = { .argsz = sizeof(unmap), .iova = iova, .size = bytes };
    return ioctl(container, VFIO_IOMMU_UNMAP_DMA, &unmap);
}

static void open_function(const char *name) {
    char path[256], link[256] = "";
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", name);
    MUST(readlink(path, link, sizeof(link) - 1));
    snprintf(path, sizeof(path), "/dev/vfio/%s", strrchr(link, '/') + 1);
    container = MUST(open("/dev/vfio/vfio", O_RDWR));
    group = MUST(open(path, O_RDWR));
    MUST(ioctl(group, VFIO_GROUP_SET_CONTAINER, &container));
    MUST(ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU));
    device = MUST(ioctl(group, VFIO_GROUP_GET_DEVICE_FD, name));
    struct vfio_region_info region = { .argsz = sizeof(region), .index = VFIO_PCI_CONFIG_REGION_INDEX };
    MUST(ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &region));
    config_offset = region.offset;
    region.index = VFIO_PCI_BAR0_REGION_INDEX;
    MUST(ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &region));
    registers = mmap(NULL, region.size, PROT_READ | PROT_WRITE, MAP_SHARED, device, region.offset);
    if (registers == MAP_FAILED)
        must(-1, "mmap of BAR 0");
}

static void connect_messages(void) {
    struct {
        struct vfio_irq_set set;
        int files[2];
    } irqs = { .set = { .argsz = sizeof(irqs), .flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
                   .index = VFIO_PCI_MSIX_IRQ_INDEX, .count = 2 } };
    for (int n = 0; n < 2; n++)
        irqs.files[n] = events[n] = MUST(eventfd(0, EFD_NONBLOCK));
    MUST(ioctl(device, VFIO_DEVICE_SET_IRQS, &irqs));
}

/* How often a vector has been told, once it is or a time has passed. */
static uint64_t told(int vector, int ms) {
    struct pollfd poll_for = { .fd = events[vector], .events = POLLIN };
    uint64_t count = 0;
    if (poll(&poll_for, 1, ms) > 0 && read(events[vector], &count, sizeof(count)) < 0)
        count = 0;
    return count;
}

/* A queue pair: submissions at LOW + 64 KiB * number, completions a page behind. */
struct queue {
    unsigned number, tail, head, phase;
};

static struct queue admin = { 0, 0, 0, 1 }, io = { 1, 0, 0, 1 };

static uint64_t submissions(const struct queue *queue) { return LOW + 64 * KIB * queue->number; }
static uint64_t completions(const struct queue *queue) { return submissions(queue) + PAGE; }

/* Does a command, waits for its interrupt, and returns its status; -1 without an interrupt, -2 without a completion. */
static int do_command(struct queue *queue, uint32_t opcode, uint32_t namespace, uint64_t data, uint32_t ten, uint32_t eleven,
    uint32_t twelve) {
    uint32_t *entry = (uint32_t *)(low + (submissions(queue) - LOW)) + 16 * queue->tail;
    volatile uint32_t *done = (uint32_t *)(low + (completions(queue) - LOW)) + 4 * queue->head;
    memset(entry, 0, 64);
    entry[0] = opcode | queue->tail << 16;
    entry[1] = namespace;
    entry[6] = data;
    entry[7] = data >> 32;
    entry[10] = ten;
    entry[11] = eleven;
    entry[12] = twelve;
    queue->tail = (queue->tail + 1) % QUEUE_ENTRIES;
    __sync_synchronize();
    write32(0x1000 + 8 * queue->number, queue->tail);
    if (!told(queue->number, 10000))
        return -1;
    if ((done[3] >> 16 & 1) != queue->phase)
        return -2;
    int status = done[3] >> 17 & 0x7ff;
    queue->head = (queue->head + 1) % QUEUE_ENTRIES;
    queue->phase ^= queue->head == 0;
    write32(0x1004 + 8 * queue->number, queue->head);
    return status;
}

static int ready(unsigned wanted) {
    struct timespec pause = { 0, 1000000 };
    for (int n = 0; n < 5000 && (read32(0x1c) & 1) != wanted; n++)
        nanosleep(&pause, NULL);
    return (read32(0x1c) & 1) == wanted;
}

static int start(void) {
    write32(0x14, 0);
    if (!ready(0))
        return 0;
    write32(0x24, (QUEUE_ENTRIES - 1) << 16 | (QUEUE_ENTRIES - 1));
    write64(0x28, submissions(&admin));
    write64(0x30, completions(&admin));
    write32(0x14, 6 << 16 | 4 << 20 | 1);
    return ready(1);
}

static int make_queues(void) {
    return do_command(&admin, 0x05, 0, completions(&io), (QUEUE_ENTRIES - 1) << 16 | 1, 1 << 16 | 3, 0) == 0 &&
        do_command(&admin, 0x01, 0, submissions(&io), (QUEUE_ENTRIES - 1) << 16 | 1, 1 << 16 | 1, 0) == 0;
}

/* Blocks of 512 bytes, at a block of the drive. */
static int transfer(int writes, uint64_t iova, uint32_t block, uint32_t blocks) {
    return do_command(&io, writes ? 0x01 : 0x02, 1, iova, block, 0, blocks - 1);
}

static void fill(uint8_t *memory, size_t bytes, unsigned seed) {
    for (size_t n = 0; n < bytes; n++)
        memory[n] = (seed = seed * 1103515245 + 12345) >> 16;
}

static void drive(void) {
    uint8_t *data = low + MIB, *other = data + PAGE;
    judge("memory is mapped before bus mastering is on", map(low, LOW, LOW_BYTES) == 0 && map(high, HIGH, HIGH_BYTES) == 0);
    connect_messages();
    command_register(6);
    judge("the drive starts by queues of this program", start());
    int status = do_command(&admin, 0x06, 0, LOW + MIB, 1, 0, 0);
    printf("status %d, model %.40s\n", status, (char *)data + 24);
    judge("it says what it is, and tells by an interrupt", status == 0 && !memcmp(data + 24, "Intel", 5));
    judge("it makes queues with an interrupt of their own", make_queues());
    fill(data, PAGE, 1);
    memset(other, 0, PAGE);
    judge("what is written is read", transfer(1, LOW + MIB, 64, 8) == 0 && transfer(0, LOW + MIB + PAGE, 64, 8) == 0 &&
        !memcmp(data, other, PAGE));
    judge("memory above 4 GiB is known as well", transfer(0, HIGH + PAGE, 64, 8) == 0 && !memcmp(data, high + PAGE, PAGE));
    judge("the program has no interrupt too many", told(0, 100) == 0 && told(1, 0) == 0);
    /* Of a write, the drive reads. */
    status = transfer(1, 64 * MIB, 72, 8);
    printf("a read of what is not mapped: status %#x\n", status);
    judge("what is not mapped is not read", status > 0);
    transfer(0, LOW + MIB + PAGE, 72, 8);
    fill(data, PAGE, 2);
    memset(other, 0x55, PAGE);
    judge("what is mapped still is", transfer(1, LOW + MIB, 80, 8) == 0);
    transfer(0, 64 * MIB, 80, 8);
    judge("high memory is unmapped", unmap(HIGH, HIGH_BYTES) == 0);
    memset(high, 0x55, HIGH_BYTES);
    transfer(0, HIGH + PAGE, 80, 8);
    int is_kept = 1;
    for (unsigned n = 0; n < HIGH_BYTES; n++)
        is_kept &= high[n] == 0x55;
    judge("and written no longer", is_kept);
    judge("low memory is", transfer(0, LOW + MIB + PAGE, 80, 8) == 0 && !memcmp(data, other, PAGE));
}

int main(int count, char **words) {
    if (count != 3)
        return 2;
    low = mmap(NULL, LOW_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    high = mmap(NULL, HIGH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    open_function(words[1]);
    if (!strcmp(words[2], "drive"))
        drive();
    if (!strcmp(words[2], "hold")) {
        struct {
            struct vfio_irq_set set;
            int file;
        } irq = { .set = { .argsz = sizeof(irq), .flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
                      .index = VFIO_PCI_REQ_IRQ_INDEX, .count = 1 }, .file = MUST(eventfd(0, 0)) };
        MUST(ioctl(device, VFIO_DEVICE_SET_IRQS, &irq));
        judge("memory is mapped", map(low, LOW, LOW_BYTES) == 0);
        command_register(6);
        struct pollfd either[2] = { { .fd = 0, .events = POLLIN }, { .fd = irq.file, .events = POLLIN } };
        poll(either, 2, -1);
        if (either[1].revents)
            puts("asked to let go");
    }
    return 0;
}
