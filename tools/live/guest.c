// What `nearfar place` takes for a guest of QEMU: a process with a tap device, its vhost thread and a vCPU. Its name is to begin with
// `qemu-`; `guest TAP` runs until it is killed. From SIGUSR1 to SIGUSR2 it sends bursts of frames, which keep its vhost thread at work for
// about half of the time, to a group that bridges keep to themselves.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/vhost.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define ENTRIES 256
#define FRAME 1024
#define BURST 64
#define MEMORY (16 << 20) /* of the guest, which says where its home is */
#define SEND 1 /* number of the ring by which a guest sends */

// A ring, and the one frame that all of its descriptors are of.
struct ring {
    struct vring_desc desc[ENTRIES];
    struct vring_avail avail;
    __virtio16 slots[ENTRIES];
    struct vring_used used __attribute__((aligned(4096)));
    struct vring_used_elem done[ENTRIES];
    struct virtio_net_hdr head __attribute__((aligned(4096)));
    unsigned char frame[FRAME];
};

static volatile sig_atomic_t sends;

static void hear(int signal)
{
    sends = signal == SIGUSR1;
}

static void *vcpu(void *unused)
{
    prctl(PR_SET_NAME, "CPU 0/KVM");
    for (;;)
        pause();
    return unused;
}

// Gives the vhost thread a ring in this process's memory. Returns what wakes it, or -1.
static int give(int vhost, int tap, struct ring *ring)
{
    struct vhost_memory *memory = calloc(1, sizeof *memory + sizeof *memory->regions);
    __u64 at = (unsigned long)ring, features = 0;
    int kick = eventfd(0, EFD_CLOEXEC), call = eventfd(0, EFD_CLOEXEC);
    struct vhost_vring_state size = { SEND, ENTRIES }, base = { SEND, 0 };
    struct vhost_vring_addr addr = { .index = SEND, .desc_user_addr = at, .avail_user_addr = (unsigned long)&ring->avail,
                                     .used_user_addr = (unsigned long)&ring->used };
    struct vhost_vring_file kicks = { SEND, kick }, calls = { SEND, call }, backend = { SEND, tap };

    if (!memory)
        return -1;
    memory->nregions = 1;
    memory->regions[0] = (struct vhost_memory_region){ at, sizeof *ring, at, 0 };
    for (int n = 0; n < ENTRIES; n++)
        ring->desc[n] = (struct vring_desc){ (unsigned long)&ring->head, sizeof ring->head + FRAME, 0, 0 };
    memcpy(ring->frame, "\x01\x80\xc2\0\0\0\x02\0\0\0\0\x01\x88\xb5", 14);
    return ioctl(vhost, VHOST_SET_FEATURES, &features) || ioctl(vhost, VHOST_SET_MEM_TABLE, memory) ||
                   ioctl(vhost, VHOST_SET_VRING_NUM, &size) || ioctl(vhost, VHOST_SET_VRING_BASE, &base) ||
                   ioctl(vhost, VHOST_SET_VRING_ADDR, &addr) || ioctl(vhost, VHOST_SET_VRING_KICK, &kicks) ||
                   ioctl(vhost, VHOST_SET_VRING_CALL, &calls) || ioctl(vhost, VHOST_NET_SET_BACKEND, &backend)
               ? -1
               : kick;
}

int main(int count, char **words)
{
    struct ifreq wish = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
    int tap = open("/dev/net/tun", O_RDWR), vhost = open("/dev/vhost-net", O_RDWR), kick;
    struct ring *ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *memory = malloc(MEMORY);
    __u16 given = 0;
    pthread_t thread;

    if (count != 2 || ring == MAP_FAILED || !memory)
        return 2;
    memset(memory, 1, MEMORY);
    strncpy(wish.ifr_name, words[1], IFNAMSIZ - 1);
    signal(SIGUSR1, hear);
    signal(SIGUSR2, hear);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &wish) || vhost < 0 || ioctl(vhost, VHOST_SET_OWNER)) {
        perror("tap and vhost");
        return 1;
    }
    kick = give(vhost, tap, ring);
    if (kick < 0 || pthread_create(&thread, NULL, vcpu, NULL)) {
        perror("ring");
        return 1;
    }
    for (;;) {
        __u16 done = __atomic_load_n(&ring->used.idx, __ATOMIC_ACQUIRE);

        if (!sends) {
            usleep(50000);
            continue;
        }
        for (; (__u16)(given - done) < BURST; given++)
            ring->avail.ring[given % ENTRIES] = given % ENTRIES;
        __atomic_store_n(&ring->avail.idx, given, __ATOMIC_SEQ_CST);
        if (!(__atomic_load_n(&ring->used.flags, __ATOMIC_SEQ_CST) & VRING_USED_F_NO_NOTIFY))
            eventfd_write(kick, 1);
        usleep(1500);
    }
}
