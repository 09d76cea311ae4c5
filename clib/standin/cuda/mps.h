/* SPDX-License-Identifier: Apache-2.0 */
/* mps.h: this process as a client of MPS. */
#ifndef DIVVY_STANDIN_MPS_H
#define DIVVY_STANDIN_MPS_H

/* Connects to the control daemon, if one listens where CUDA_MPS_PIPE_DIRECTORY
 * says, and takes the limits of this process on its visible cards. Without a daemon
 * the process goes on without limits, and nothing says so. */
void sd_mps_connect(void);

#endif
