/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generation.c: which driver this object plays. Built once per generation, with
 * SIM_GENERATION and SIM_DRIVER_VERSION from rules.mk.
 */

const int sim_generation = SIM_GENERATION;
const char sim_driver_version[] = SIM_DRIVER_VERSION;

/* Marks the library as the stand-in for whoever opens it. */
__attribute__((visibility("default"))) const char divvy_standin[] = "divvy stand-in driver " SIM_DRIVER_VERSION;
