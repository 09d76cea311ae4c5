/* SPDX-License-Identifier: Apache-2.0 */
/* What a driver exports that the one list does not know; joined to the null driver. */

int cuStrangeCall(int number, double weight);

int cuStrangeCall(int number, double weight)
{
	return number + (int)weight;
}
