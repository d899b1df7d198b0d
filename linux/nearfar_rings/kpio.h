/* SPDX-License-Identifier: GPL-2.0 */
/* Programmed I/O of a channel. */
#ifndef NEARFAR_KPIO_H
#define NEARFAR_KPIO_H

#include "nearfar_nic.h"

int nfn_kpio_alloc(struct nfn_channel *channel);
void nfn_kpio_free(struct nfn_channel *channel);
void nfn_kpio_start(struct nfn_channel *channel);
void nfn_kpio_stop(struct nfn_channel *channel);
bool nfn_kpio_takes(const struct nfn_channel *channel, const struct sk_buff *skb);
void nfn_kpio_xmit(struct nfn_channel *channel, struct sk_buff *skb);
bool nfn_kpio_is_ready(struct nfn_channel *channel);
void nfn_kpio_read_held(const struct nfn_channel *channel, u16 count, void *to,
			unsigned int length);

#endif
