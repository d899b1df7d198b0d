// What `nearfar place` takes for a guest of QEMU: a process with a tap device, its vhost thread and a vCPU. Its name is to begin with
// `qemu-`; `guest TAP` runs until it is killed.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/vhost.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

static void *vcpu(void *unused)
{
    prctl(PR_SET_NAME, "CPU 0/KVM");
    for (;;)
        pause();
    return unused;
}

int main(int count, char **words)
{
    struct ifreq wish = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
    int tap = open("/dev/net/tun", O_RDWR), vhost = open("/dev/vhost-net", O_RDWR);
    pthread_t thread;

    if (count != 2)
        return 2;
    strncpy(wish.ifr_name, words[1], IFNAMSIZ - 1);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &wish) || vhost < 0 || ioctl(vhost, VHOST_SET_OWNER)) {
        perror("tap and vhost");
        return 1;
    }
    return pthread_create(&thread, NULL, vcpu, NULL) || pause();
}
