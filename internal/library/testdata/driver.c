/* SPDX-License-Identifier: Apache-2.0 */
/* A driver with a few exports that the list has, and some that it lacks. */

int cuDeviceGetName(char *name, int len, int dev)
{
	(void)name;
	return len + dev;
}

int cuDriverGetVersion(int *version)
{
	*version = 12345;
	return 0;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned int *minor)
{
	(void)device;
	*minor = 7;
	return 0;
}

/* Not in the list. */

int cuBrandNew(int x)
{
	return x + 1;
}

int nvmlBrandNew(int x)
{
	return x + 2;
}

/* Arguments in every register that a call can use, and on the stack. */
double cuBrandNewSum(int a, int b, int c, int d, int e, int f, int g, int h,
	double p, double q, double r, double s, double t, double u, double v, double w, double x, double y)
{
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h +
		p * 10 + q * 20 + r * 30 + s * 40 + t * 50 + u * 60 + v * 70 + w * 80 + x * 90 + y * 100;
}

/* What is never passed on. */

int cuBrandNewData = 5;

int divvy_standin(void)
{
	return 1;
}
