/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SD_SLOW_H
#define SD_SLOW_H

/* Before a launch is submitted, without the lock. */
void sd_slow_launch(void);

#endif
