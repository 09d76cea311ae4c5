/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sharedevent.h: events that other processes may hold (cuIpcGetEventHandle). Each
 * of these may release the lock meanwhile.
 */
#ifndef DIVVY_STANDIN_SHAREDEVENT_H
#define DIVVY_STANDIN_SHAREDEVENT_H

#include "stream.h"

CUresult sd_shared_make(struct sd_event *event, const unsigned char *handle);
void sd_shared_end(struct sd_event *event);
CUresult sd_shared_publish(const struct sd_event *event);
CUresult sd_shared_wait(const struct sd_event *event, struct sd_stream *stream);
bool sd_shared_done(const struct sd_event *event);
CUresult sd_shared_await(const struct sd_event *event);

#endif
