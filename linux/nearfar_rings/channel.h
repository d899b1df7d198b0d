/* SPDX-License-Identifier: GPL-2.0 */
/* Channels, for the function that they are of. */
#ifndef NEARFAR_CHANNEL_H
#define NEARFAR_CHANNEL_H

#include "nearfar_nic.h"

int nfn_channel_alloc(struct nfn_channel *channel);
void nfn_channel_free(struct nfn_channel *channel);
void nfn_channel_start(struct nfn_channel *channel);
void nfn_channel_stop(struct nfn_channel *channel);

#endif
