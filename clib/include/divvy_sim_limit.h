/* SPDX-License-Identifier: Apache-2.0 */
/*
 * divvy_sim_limit.h: bounds on what processes may hold of a simulated card, as the
 * hardware driver keeps them; part of divvy_sim.h.
 *
 * Two kinds. A limit of a control group holds all processes in it and below it
 * together (NVML's memory limits, driver generation 13.0). A cap holds one process,
 * which asks for it itself, as a client of MPS is told one by its server. What is
 * held already stays; what would pass a bound is answered NO_ROOM, with an event
 * that says which.
 */
#ifndef DIVVY_SIM_LIMIT_H
#define DIVVY_SIM_LIMIT_H

/* any role, of root or of the simulator's own user, else DENIED; card; bytes: the hard
 * limit, DIVVY_SIM_NO_LIMIT for none; offset: the soft one, kept and not enforced;
 * payload: full path of the control group's folder, without a zero.
 * NOT_FOUND: no such group; UNSUPPORTED: a MIG device, or an older generation */
#define DIVVY_SIM_LIMIT_SET 68u
/* any role; card; payload: as above. out: bytes, offset: the limits; object: held */
#define DIVVY_SIM_LIMIT_GET 69u
/* compute role; card; bytes: the most that this process may hold of it */
#define DIVVY_SIM_CAP 70u

#define DIVVY_SIM_NO_LIMIT 0xffffffffffffffffu

#endif
